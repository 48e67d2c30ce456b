"""The one-vs-rest hinge against binary SVMs of LIBLINEAR."""

from __future__ import annotations

import bz2
from pathlib import Path

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from helpers import make_problem, make_store
from sklearn.svm import LinearSVC
from streamsvm_converters import convert

from streamsvm import fit, load_model, open_store


def binary_svms(X: sp.csr_matrix, labels: np.ndarray, k: int, C: float) -> np.ndarray:
    """The weights of k binary SVMs, shape (n_features, k)."""
    machine = LinearSVC(loss="hinge", fit_intercept=False, C=C, tol=1e-9, max_iter=10**7)
    return np.column_stack([machine.fit(X, np.where(labels == c, 1, -1)).coef_.ravel() for c in range(k)])


@pytest.mark.parametrize("C", [0.05, 2.0])
def test_the_optimum_is_that_of_binary_svms(tmp_path: Path, C: float) -> None:
    X, labels = make_problem(120, 15, 5, noise=1.5)
    store = make_store(tmp_path / "a.h5", X, labels)
    options = {"loss": "ovr", "dtype": "float64", "passes": 2000, "tol": 1e-8, "average": False}
    result = fit(store, out=tmp_path / "run", C=C, **options)
    assert result.status == "converged"
    dense, theirs = X.toarray().astype(float), binary_svms(sp.csr_matrix(X), labels, 5, C)
    assert result.primal == pytest.approx(reference.primal(theirs, dense, labels, C, "ovr"), rel=1e-6)
    coef = load_model(tmp_path / "run").coef_
    np.testing.assert_allclose(coef, theirs, atol=2e-3 * np.abs(theirs).max())


@pytest.mark.parametrize("name", ["dna.scale", "satimage.scale"])
@pytest.mark.parametrize("C", [1.0, 1 / 16])
def test_optima_of_real_rows_are_those_of_binary_svms(
    data_folder: Path, tmp_path: Path, name: str, C: float
) -> None:
    text = bz2.decompress((data_folder / f"{name}.bz2").read_bytes()).decode().splitlines(keepends=True)[:200]
    (tmp_path / "text").write_text("".join(text))
    convert([tmp_path / "text"], tmp_path / "a.zarr", dtype="float64")
    options = {"loss": "ovr", "dtype": "float64", "passes": 5000, "tol": 1e-7, "average": False}
    result = fit(tmp_path / "a.zarr", out=tmp_path / "run", C=C, **options)
    with open_store(tmp_path / "a.zarr") as store:
        rows, k = store.rows(0, 200), store.n_classes
        X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), (200, store.n_features))
    theirs = binary_svms(X, rows.labels, k, C)
    expected = reference.primal(theirs, X.toarray(), rows.labels, C, "ovr")
    assert result.primal == pytest.approx(expected, rel=1e-5)
    assert result.dual <= expected * (1 + 1e-9)
