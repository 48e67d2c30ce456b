"""Arrays in memory: the same training as of a store, and no file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from helpers import plain_fit as fit

from streamsvm import load_model, plan
from streamsvm.errors import Interrupted

N, D, K = 120, 15, 6


@pytest.fixture(scope="module")
def problem() -> tuple[sp.csr_array, np.ndarray]:
    return make_problem(N, D, K, noise=1.5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"passes": 1, "inner_passes": 0},
        {"passes": 4, "loss": "cs", "dtype": "float64", "average": False},
        {"passes": 6, "tol": 1e-2, "dtype": "float64"},
    ],
)
def test_arrays_give_the_model_of_a_store_with_the_same_rows(
    tmp_path: Path, problem, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    X, labels = problem
    settings = {"C": 0.5, **settings}
    store = make_store(tmp_path / "a.zarr", X, labels)
    stored = fit(store, out=tmp_path / "run", **settings)
    expected = load_model(tmp_path / "run")
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    model = fit(X, labels, **settings)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert list(model.class_names) == list(expected.class_names)
    assert model.result.relative_gap == stored.relative_gap
    assert model.result.passes == stored.passes
    assert list(folder.iterdir()) == []


def test_dense_and_sparse_arrays_of_any_type_give_one_model(problem) -> None:
    X, labels = problem
    of_csr = fit(X, labels, passes=2)
    for same in (X.toarray(), X.tocoo(), sp.csc_matrix(X), X.astype(np.float64)):
        np.testing.assert_array_equal(fit(same, labels, passes=2).coef_, of_csr.coef_)


def test_a_training_is_stopped(problem) -> None:
    with pytest.raises(Interrupted, match=r"stopped in pass 1 after \d of \d blocks$"):
        fit(*problem, stop=lambda: True)


def test_any_path_names_a_store(tmp_path: Path, problem) -> None:
    """Whatever has ``__fspath__``, not only what `pathlib` makes."""

    store = make_store(tmp_path / "a.zarr", *problem)
    (named,) = os.scandir(tmp_path)
    fit(named, out=tmp_path / "run", valid=named, passes=1)
    fit(store, out=tmp_path / "same", valid=store, passes=1)
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, load_model(tmp_path / "same").coef_)
    assert plan(named)["rows"] == N
