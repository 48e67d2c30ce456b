"""Data that was prepared otherwise than the training data is noticed before a prediction."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_store
from helpers import plain_fit as fit

from streamsvm import evaluate, load_model, resume
from streamsvm.data.value_kinds import warn_of_difference
from streamsvm.errors import StreamsvmWarning

N, D, K = 200, 12, 3


@pytest.fixture
def counts() -> tuple[sp.csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(N, dtype=np.int32) % K
    centres = rng.gamma(1.0, 6.0, size=(K, D))
    return sp.csr_array(rng.poisson(centres[labels]).astype(np.float64)), labels


DIFFERENCES: list[tuple[list[float], tuple[bool, float], str | None]] = [
    ([1, 2, 50], (False, 8.0), "whole numbers, up to 50, like counts"),
    ([1, 2, -50], (False, 8.0), "whole numbers, up to 50, like counts"),
    ([1, 2, 8], (False, 8.0), None),  # some logarithms are whole numbers
    ([0.5, 90], (False, 8.0), None),
    ([*range(2000), 0.5], (False, 8.0), None),
    ([1, 90], (True, 8.0), None),
    ([0.5, 1], (True, 8.0), "had only whole numbers"),
    ([], (True, 8.0), None),
    ([7], (True, 0.0), None),
]


def test_what_differs() -> None:
    for values, (integers, largest), words in DIFFERENCES:
        record = {"values_in": {"integers": integers, "largest": largest}}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_difference(np.array(values), record, [], "data")
        assert [words in str(each.message) for each in caught] == [True] * (words is not None), values


@pytest.mark.parametrize(("trained_on", "transform"), [("counts", "scale=std"), ("logs", None)])
def test_other_values_are_a_warning_in_every_use(
    tmp_path: Path, counts: tuple[sp.csr_array, np.ndarray], transform: str | None, trained_on: str
) -> None:
    X, labels = counts
    data = {"counts": X, "logs": X.log1p()}
    stores = {name: make_store(tmp_path / f"{name}.h5", values, labels) for name, values in data.items()}
    other = "logs" if trained_on == "counts" else "counts"
    words = "some values are not whole numbers" if other == "logs" else "like counts"
    facts: dict[str, Any] = {"passes": 2, "transform": transform}
    with warnings.catch_warnings(action="error"):
        fit(stores[trained_on], out=tmp_path / "run", valid=stores[trained_on], **facts)
        model = load_model(tmp_path / "run")
        model.predict(data[trained_on])
        evaluate(model, stores[trained_on])
        resume(tmp_path / "run", passes=3)
    for use in (
        lambda: model.predict(data[other]),
        lambda: evaluate(model, stores[other]),
        lambda: fit(stores[trained_on], out=tmp_path / "new", valid=stores[other], **facts),
        lambda: fit(data[trained_on], labels, **facts).predict(data[other]),
    ):
        with pytest.warns(StreamsvmWarning, match=words):
            use()


def test_a_model_whose_transforms_refuse_other_values_does_not_warn(
    tmp_path: Path, counts: tuple[sp.csr_array, np.ndarray]
) -> None:
    X, labels = counts
    model = fit(X, labels, passes=1, transform="normalize,log1p")
    with warnings.catch_warnings(action="error"), pytest.raises(Exception, match="not a whole number"):
        model.predict(X.log1p())
