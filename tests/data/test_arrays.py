"""Matrices in memory as rows: dense if half of the values or more are not 0, else CSR."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from streamsvm.data.arrays import as_matrix, labelled_rows
from streamsvm.errors import InputError

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def values(share: float, dtype: Any = np.float32) -> np.ndarray:
    """A matrix of which this share is not 0."""
    X = np.zeros(200, dtype)
    X[: round(200 * share)] = 1 + np.arange(round(200 * share)) % 9
    return np.random.default_rng(0).permutation(X).reshape(20, 10)


def full(X: Any, dtype: np.dtype = FLOAT32) -> np.ndarray:
    rows = as_matrix(X, dtype).rows(np.zeros(len(X), np.int32), np.zeros(len(X)))
    assert rows.data.dtype == dtype
    if rows.dense:
        return rows.matrix
    return sp.csr_array((rows.data, rows.features, rows.indptr), shape=np.shape(X)).toarray()


@pytest.mark.parametrize(("share", "dense"), [(0.5, True), (1.0, True), (0.495, False), (0.0, False)])
def test_dense_matrices(share: float, dense: bool) -> None:
    X = values(share)
    given: list[Any] = [X.astype(kind) for kind in ("f2", "f4", "f8", "i8", "u1")]
    given += [np.asfortranarray(X), X.tolist(), pd.DataFrame(X), np.repeat(X, 2, axis=1)[:, ::2]]
    for each, dtype in itertools.product(given, (FLOAT32, FLOAT64)):
        assert (as_matrix(each, dtype).indices is None) == dense
        np.testing.assert_array_equal(full(each, dtype), X)
    assert as_matrix(sp.csr_array(X), FLOAT32).indices is not None


@pytest.mark.parametrize("share", [0.4, 0.6])
def test_of_many_rows_some_are_looked_at(share: float) -> None:
    rng = np.random.default_rng(0)
    X = np.zeros((100_000, 3), np.float32)
    X[1::2] = rng.random((50_000, 3)) < 2 * (share - 0.25)  # every second row has other values
    X[::2] = rng.random((50_000, 3)) < 0.5
    assert (as_matrix(X, FLOAT32).indices is None) == (share > 0.5)
    np.testing.assert_array_equal(full(X[:20_000]), X[:20_000])


def test_a_contiguous_matrix_of_the_type_is_not_copied() -> None:
    X = values(0.8)
    rows, _, _ = labelled_rows(X, np.arange(20) % 3, FLOAT32)
    assert rows.dense
    assert np.shares_memory(rows.data, X)
    assert rows.matrix.shape == X.shape
    np.testing.assert_allclose(rows.norm2, (X.astype(float) ** 2).sum(axis=1))
    assert rows.labels.tolist() == (np.arange(20) % 3).tolist()


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_the_place_of_a_value_that_is_not_finite_is_named(share: float) -> None:
    X = values(share, np.float64)
    X[13, 7] = 1e39
    with pytest.raises(InputError, match=r"X\[13, 7\]: 1e\+39 is not finite as float32"):
        as_matrix(X, FLOAT32)
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(10)])
    with pytest.raises(InputError, match=r"X\[13, 7\] \('g7'\)"):
        as_matrix(frame, FLOAT32)


def test_matrices_without_values() -> None:
    for shape in (0, 5), (5, 0), (1, 0), (0, 0):
        found = as_matrix(np.zeros(shape), FLOAT32)
        assert (len(found.indptr) - 1, found.n_features, len(found.data)) == (*shape, 0)


def test_a_masked_array_is_refused() -> None:
    X = np.ma.masked_greater(np.arange(6.0).reshape(3, 2), 3)
    with pytest.raises(InputError, match=r"X is a masked array.*fill"):
        as_matrix(X, np.dtype(np.float64), InputError)


def test_sparse_matrices_whose_arrays_do_not_fit_together_are_refused() -> None:
    """SciPy need not check them, and its conversions would read and write beyond them."""
    for kind, size in ("csr", 10), ("csc", 20), ("coo", 10):
        for wrong in (-1, size, size + 10**8):
            X = sp.csr_array(values(0.2)).asformat(kind)
            (X.coords[1] if kind == "coo" else X.indices)[7] = wrong
            with pytest.raises(InputError, match="X is a sparse matrix with inconsistent arrays: "):
                as_matrix(X, FLOAT32)
    for at, wrong in (0, 1), (5, 10**8), (20, 41), (3, -2):
        X = sp.csr_array(values(0.2))
        X.indptr[at] = wrong
        with pytest.raises(InputError, match="X is a sparse matrix with inconsistent arrays: "):
            as_matrix(X, FLOAT32)
