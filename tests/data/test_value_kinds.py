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
from streamsvm.data.value_kinds import describe_values, find_difference
from streamsvm.errors import StreamsvmWarning

N, D, K = 200, 12, 3


@pytest.fixture
def counts() -> tuple[sp.csr_array, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(N, dtype=np.int32) % K
    centres = rng.gamma(1.0, 6.0, size=(K, D))
    return sp.csr_array(rng.poisson(centres[labels]).astype(np.float64)), labels


@pytest.mark.parametrize(
    ("found", "trained", "differs"),
    [
        ([1, 2, 50], [0.5, 8.0], "whole numbers, up to 50, as counts are"),
        ([1, 2, 8], [0.5, 8.0], None),  # some logarithms are whole numbers
        ([0.5, 90], [0.5, 8.0], None),
        ([1, 90], [3, 8.0], None),
        ([0.5, 1], [3, 8.0], "those of the training data were"),
        ([], [3, 8.0], None),
        ([7], [], None),
    ],
)
def test_what_differs(found: list[float], trained: list[float], differs: str | None) -> None:
    seen = [describe_values([np.array(values[:1]), np.array(values[1:])]) for values in (found, trained)]
    message = find_difference(*seen, "data")
    assert (message is None) if differs is None else differs in str(message)


@pytest.mark.parametrize(("trained_on", "transform"), [("counts", "scale=std"), ("logs", None)])
def test_other_values_are_a_warning_in_every_use(
    tmp_path: Path, counts: tuple[sp.csr_array, np.ndarray], transform: str | None, trained_on: str
) -> None:
    X, labels = counts
    data = {"counts": X, "logs": X.log1p()}
    stores = {name: make_store(tmp_path / f"{name}.h5", values, labels) for name, values in data.items()}
    other = "logs" if trained_on == "counts" else "counts"
    words = "not all values are whole" if other == "logs" else "as counts are"
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
    with warnings.catch_warnings(action="error"), pytest.raises(Exception, match="no whole number"):
        model.predict(X.log1p())
