"""Training on rows with several labels: from stores of both kinds, resumed, in memory, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import as_rows, make_problem, write_rows
from helpers import plain_fit as fit
from resuming import assert_resumes
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from small_problem import BLOCK, D, K, N

from streamsvm import evaluate, load_model
from streamsvm.data.label_sets import with_label_sets
from streamsvm.errors import SettingsError

pytestmark = pytest.mark.engine

X, LABELS = make_problem(N, D, K, empty=2)


def indicator() -> np.ndarray:
    """Each row's own class and now and then others; some rows have no label."""
    rng = np.random.default_rng(0)
    own = (np.arange(K) == LABELS[:, None]) | (rng.random((N, K)) < 0.3)
    own[3::9] = False
    return own


def label_store(path: Path) -> Path:
    own = indicator()
    indptr = np.concatenate([[0], np.cumsum(own.sum(axis=1))])
    rows = with_label_sets(as_rows(X, LABELS), np.nonzero(own)[1], indptr)
    return write_rows(path, rows, X.shape[1], K)


@pytest.mark.parametrize(("loss", "suffix"), [("ovr2", ".zarr"), ("ww", ".h5")])
def test_a_run_resumes_to_the_same_bytes(tmp_path: Path, loss: str, suffix: str) -> None:
    store = label_store(tmp_path / f"s{suffix}")
    options: dict[str, Any] = {
        "loss": loss, "passes": 2, "block_rows": BLOCK, "dtype": "float64", "gap": "pass", "valid": store
    }  # fmt: skip
    assert_resumes(tmp_path, store, (1, 4, 9), **options)


@pytest.mark.parametrize("loss", ["ovr2", "ww"])
def test_stores_and_rows_in_memory_give_the_same_coefficients(tmp_path: Path, loss: str) -> None:
    options: dict[str, Any] = {"loss": loss, "C": 0.3, "dtype": "float64"}
    expected = fit(X.astype(float), indicator(), **options)
    result = fit(label_store(tmp_path / "s.zarr"), out=tmp_path / "run", **options)
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, expected.coef_)
    assert result.primal == expected.result.primal
    # One-vs-rest learns from a row without a label, too.
    no_label = (indicator().sum(axis=1) == 0) & (loss == "ww")
    assert result.empty_rows == (no_label | (np.diff(X.indptr) == 0)).sum()


def test_accuracies_are_the_precision_of_the_best_class(tmp_path: Path) -> None:
    store = label_store(tmp_path / "s.zarr")
    result = fit(store, out=tmp_path / "run", loss="ovr2", dtype="float64", valid=store, average=False)
    best = load_model(tmp_path / "run").predict(X).astype(int)
    expected = indicator()[np.arange(N), best].mean()
    assert result.train_accuracy == result.valid_accuracy == pytest.approx(expected)
    assert evaluate(tmp_path / "run", store).precision[1] == pytest.approx(expected)


def test_one_vs_rest_is_that_of_scikit_learn() -> None:
    data, own = X.astype(float), indicator()
    model = fit(
        data, own, loss="ovr2", C=0.5, dtype="float64", passes=5000, inner_passes=30, average=False, tol=1e-9
    )
    assert model.result.status == "converged"
    machine = LinearSVC(C=0.5, fit_intercept=False, tol=1e-8, max_iter=10**6, dual=True)
    other = OneVsRestClassifier(machine).fit(data, own.astype(int))
    expected = np.vstack([each.coef_ for each in other.estimators_]).T
    np.testing.assert_allclose(model.coef_.T, expected, atol=1e-3)


def test_weights_of_classes_are_for_one_vs_rest(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="has several; use row weights"):
        fit(label_store(tmp_path / "s.zarr"), out=tmp_path / "run", class_weight="balanced")
