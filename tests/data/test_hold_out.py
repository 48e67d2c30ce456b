"""Rows held out by a hash: the parts divide the rows, and a training does not see its part."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import fit_path, make_problem
from helpers import plain_fit as fit

from streamsvm.data.hold_out import HeldOutPart, is_trained_on
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, SettingsError
from streamsvm.settings.fit import Settings
from streamsvm.store.arrays import ArrayStore
from streamsvm.store.ranges import Ranges
from streamsvm.store.store import Columns

N, D, K = 400, 20, 4


def rows_of(n: int, qid: np.ndarray | None = None) -> Rows:
    none = np.zeros(n, np.int32)
    rows = Rows(np.zeros(0), np.zeros(0, np.int32), np.zeros(n + 1, np.int64), none, np.zeros(n))
    return rows if qid is None else rows._replace(qid=qid)


@pytest.mark.parametrize("parts", [2, 5, 10])
def test_parts_divide_the_rows_evenly_however_they_are_read(parts: int) -> None:
    n = 20_000
    found = np.array([HeldOutPart(part + 1, parts).has(np.arange(n)) for part in range(parts)])
    np.testing.assert_array_equal(found.sum(axis=0), 1)
    np.testing.assert_allclose(found.sum(axis=1), n / parts, rtol=0.1)
    pieces = [HeldOutPart(1, parts).has(np.arange(begin, begin + 2_500)) for begin in range(0, n, 2_500)]
    np.testing.assert_array_equal(np.concatenate(pieces), found[0])
    assert abs(np.corrcoef(found[0], np.arange(n))[0, 1]) < 0.05


def test_groups_stay_whole() -> None:
    qid = np.repeat(np.arange(300), 7)
    found = HeldOutPart(2, 3).has(np.arange(len(qid)), qid).reshape(300, 7)
    assert (found == found[:, :1]).all()
    assert 60 < found[:, 0].sum() < 140


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"cost"}),
        ({"sample_weight": "none"}, set()),
        ({"hold_out": "1/4"}, {"cost", "qid", "numbers"}),
        ({"sample_weight": "none", "hold_out": "1/4"}, {"qid", "numbers"}),
    ],
)
def test_only_the_columns_that_say_which_rows_are_trained_on_are_read(
    settings: dict[str, Any], expected: set[str]
) -> None:
    wanted: set[str] = set()

    class Counted(ArrayStore):
        def columns(self, ranges: Ranges, names: Set[str]) -> Columns:
            wanted.update(names)
            return super().columns(ranges, names)

    weights, qid = np.arange(N) % 3.0, np.arange(N) // 5
    store = Counted(rows_of(N, qid)._replace(cost=weights), {"classes": ["a", "b"]}, D)
    found = is_trained_on(store, Settings(**settings), 3, N)
    assert wanted == expected
    used = weights > 0 if "cost" in expected else np.ones(N, bool)
    if "hold_out" in settings:
        used = used & ~HeldOutPart(1, 4).has(np.arange(N), qid)
    np.testing.assert_array_equal(found, used[3:])
    assert found.dtype == bool


def test_wrong_parts_are_refused() -> None:
    X, labels = make_problem(40, D, K)
    for text in ("0/10", "11/10", "1/1", "1", "a/b", "1/1001"):
        with pytest.raises(SettingsError, match="hold_out must be a part such as 1/10"):
            fit(X, labels, hold_out=text)
    with pytest.raises(SettingsError, match="hold_out must be left out with valid"):
        fit("a.h5", out="run", hold_out="1/10", valid="b.h5")


# -- one training with several values of C ---------------------------------------------------------


def by_numpy(X: sp.csr_array, y: np.ndarray, C: float, W: np.ndarray) -> float:
    """The Weston-Watkins primal."""
    scores = X @ W
    slacks = np.maximum(0, 1 - (scores[np.arange(len(y)), y][:, None] - scores))
    slacks[np.arange(len(y)), y] = 0
    return float(0.5 * (W**2).sum() + C * slacks.sum())


def test_a_path_ends_at_the_optimum_of_its_last_c() -> None:
    X, labels = make_problem(N, D, K)
    facts: dict[str, Any] = {"C": 0.05, "dtype": "float64", "average": False, "gap": "pass"}
    factors = (0.25,) * 80 + (1.0,) * 80 + (4.0,) * 80
    path = fit_path(X, labels, C_factors=factors, passes=240, **facts)
    assert path.result.C == path.record["C"] == pytest.approx(0.2)
    assert [record["C"] for record in path.result.history[::80]] == pytest.approx([0.0125, 0.05, 0.2])
    cold = fit(X, labels, passes=200, **(facts | {"C": 0.2}))
    expected = by_numpy(X, labels, 0.2, cold.coef_.T)
    assert by_numpy(X, labels, 0.2, path.coef_.T) == pytest.approx(expected, rel=1e-5)
    assert path.result.primal == pytest.approx(expected, rel=1e-5)
    for record, C in ((path.result.history[79], 0.0125), (path.result.history[159], 0.05)):
        of_c = fit(X, labels, passes=200, **(facts | {"C": C}))
        assert record["dual"] == pytest.approx(by_numpy(X, labels, C, of_c.coef_.T), rel=1e-4)


def test_rows_of_weight_0_are_not_measured() -> None:
    X, labels = make_problem(N, D, K)
    weights = (np.arange(N) % 2).astype(float)
    wrong = np.where(weights == 0, (labels + 1) % K, labels).astype(labels.dtype)
    facts: dict[str, Any] = {"hold_out": "1/3", "passes": 3, "sample_weight": weights}
    found = [fit(X, y, **facts).result.valid_accuracy for y in (labels, wrong)]
    assert found[0] == found[1]


def test_a_part_without_rows_is_an_error() -> None:
    X, labels = make_problem(40, D, K)
    empty = next(part for part in range(1, 1000) if not HeldOutPart(part, 1000).has(np.arange(40)).any())
    with pytest.raises(InputError, match=f"part {empty}/1000 that hold_out names has no rows"):
        fit(X, labels, hold_out=f"{empty}/1000")
