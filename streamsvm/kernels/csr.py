"""Compiled functions that validate CSR rows, compute column statistics, and select columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def check_rows(data, indices, indptr, n_features, norm2):
    """Write the squared norms of the rows to `norm2`; return the index of the first invalid row, or -1.

    A valid row has a finite norm and strictly increasing indices in ``0..n_features - 1``. `data` is float32
    or float64, and `indices` is int32 or int64. `indptr` is int64, and must be valid: it is not checked.
    """
    for i in range(len(indptr) - 1):
        begin, end = indptr[i], indptr[i + 1]
        total = 0.0
        for p in range(begin, end):
            value = np.float64(data[p])
            total += value * value
        is_valid = True
        for p in range(begin + 1, end):
            is_valid &= indices[p] > indices[p - 1]
        if end > begin:
            is_valid &= indices[begin] >= 0
            is_valid &= indices[end - 1] < n_features
        norm2[i] = total
        if not (is_valid and total < np.inf):
            return i
    return -1


def places_of(features: np.ndarray, n_features: int, dtype: np.dtype) -> np.ndarray:
    """Return the position of each feature in `features`, or -1 if it is not listed; shape (n_features,)."""
    places = np.full(n_features, -1, dtype)
    places[features] = np.arange(len(features))
    return places


def with_places(rows: Any, columns: np.ndarray, places: np.ndarray, dtype: np.dtype) -> Any:
    """Return `rows` with the indices ``places[columns]``, without the entries whose place is negative."""
    data, indices = np.empty_like(rows.data), np.empty(len(rows.data), dtype)
    indptr = np.empty_like(rows.indptr)
    _keep_columns(rows.data, columns, rows.indptr, places, data, indices, indptr)
    return rows._replace(data=data[: indptr[-1]], indices=indices[: indptr[-1]], indptr=indptr)


@kernel
def _keep_columns(data, indices, indptr, places, new_data, new_indices, new_indptr):
    filled = 0
    new_indptr[0] = 0
    for i in range(len(indptr) - 1):
        for p in range(indptr[i], indptr[i + 1]):
            place = places[indices[p]]
            if place >= 0:
                new_data[filled] = data[p]
                new_indices[filled] = place
                filled += 1
        new_indptr[i + 1] = filled


@kernel
def add_counts(data, indices, count):
    for p in range(len(data)):
        if data[p] != 0:
            count[indices[p]] += 1.0


@kernel
def add_moments(data, indices, count, moments):
    """Update count, mean, sum of squared deviations and maximum |x| of each feature's non-zeros (Welford)."""
    for p in range(len(data)):
        f, x = indices[p], np.float64(data[p])
        if x != 0:
            count[f] += 1.0
            change = x - moments[f, 0]
            moments[f, 0] += change / count[f]
            moments[f, 1] += change * (x - moments[f, 0])
            moments[f, 2] = max(moments[f, 2], abs(x))
