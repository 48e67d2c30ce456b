"""Lee-Lin-Wahba keeps the mean of the weights apart, so that float32 does not lose how the classes differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import make_problem
from helpers import plain_fit as fit

from streamsvm.kernels.centre import centre, centre_with_shared


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centres_the_classes_of_some_features(dtype: type) -> None:
    rng = np.random.default_rng(0)
    before = rng.normal(3.0, 1.0, (7, 12)).astype(dtype)
    ranges = np.array([[0, 3, 4], [4, 8, 8], [8, 10, 12]])  # columns 3, 10 and 11 are padding
    classes, features = [0, 1, 2, 4, 5, 6, 7, 8, 9], np.array([1, 4, 5])
    expected = before.astype(float)
    part = expected[np.ix_(features, classes)]
    expected[np.ix_(features, classes)] = part - part.mean(axis=1, keepdims=True)
    weights = before.copy()
    centre(features, weights, ranges)
    np.testing.assert_allclose(weights, expected, rtol=0, atol=8 * np.finfo(dtype).eps)


def test_the_shared_column_changes_no_class() -> None:
    rng = np.random.default_rng(1)
    k = 5
    weights = np.zeros((4, 8))
    weights[:, :k] = rng.normal(size=(4, k))
    weights[:, k] = -weights[:, :k].sum(axis=1)
    of_classes = weights[:, :k] + weights[:, k : k + 1] / k
    centre_with_shared(np.arange(4), weights, k)
    np.testing.assert_allclose(weights[:, :k], of_classes, rtol=1e-13)
    assert not weights[:, k:].any()


@pytest.mark.parametrize("average", few([False, True], True))
@pytest.mark.parametrize(
    "settings", few([{}, {"split": "rows"}, {"split": "classes"}], {}, {"split": "rows"})
)
@pytest.mark.parametrize("loss", few(["llw", "llw2"], "llw"))
def test_float32_measures_what_float64_does(loss: str, settings: dict[str, Any], average: bool) -> None:
    """Whose weights would add up to 2,000 times what they are, before a mean is subtracted."""
    problem = make_problem(3000, 12, 10, noise=1.0)
    settings = {"splits": 2, **settings} if settings else {}
    low, high = (
        fit(*problem, loss=loss, C=1.0, passes=4, average=average, dtype=dtype, gap="end", **settings)
        for dtype in ("float32", "float64")
    )
    assert low.result.primal == pytest.approx(high.result.primal, rel=2e-5)
    assert low.result.dual == pytest.approx(high.result.dual, rel=2e-5)
    scale = np.abs(high.coef_).max()
    np.testing.assert_allclose(low.coef_.T.mean(axis=1), 0.0, atol=1e-5 * scale)
    np.testing.assert_allclose(low.coef_, high.coef_, atol=1e-3 * scale)
