"""Compute the scores of rows, and probabilities from scores."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.threads import Threads
from streamsvm.chains.viterbi import piece_bounds
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.losses import LOSSES
from streamsvm.model.coefficients import DenseCoef, SparseCoef, StoredCoef

# Up to this many features, stored rows are looked up in a table; beyond that, by binary search.
_MAX_PLACES = 2**26
_MIN_THREAD_ROWS = 64
_PIECE_SIZE = 2**22


class Scorer:
    """Compute scores of type `dtype` from the coefficients of a model."""

    def __init__(self, coef: StoredCoef, dtype: np.dtype) -> None:
        self._coef = coef
        self._features: Any = None if isinstance(coef, SparseCoef) else coef.features
        self._is_whole = isinstance(coef, DenseCoef) and coef.features is None
        self._dtype = dtype

    def pieces(
        self, rows: Rows, memory: int, *, by_group: bool, workers: Threads
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield pieces of scores as `Model.scores` does; if `by_group` is True, groups are not divided."""
        rows = self._stored_features(rows._replace(data=rows.data.astype(self._dtype, copy=False)))
        n_classes, copies = self._coef.shape[1], 1 + (rows.dense and not self._is_whole)
        step = max(1, memory // max(1, copies * n_classes * self._dtype.itemsize))
        scores = np.empty((min(step, rows.n_rows), n_classes), self._dtype)
        for begin, end in piece_bounds(rows, step, by_group=by_group):
            n = end - begin
            if n > len(scores):
                scores = np.empty((n, n_classes), self._dtype)
            if rows.dense:  # BLAS has its own threads
                self._score_dense(rows.matrix[begin:end], scores[:n])
            else:
                n_parts = min(workers.number, max(n // _MIN_THREAD_ROWS, 1))
                parts = [(n * p // n_parts, n * (p + 1) // n_parts) for p in range(n_parts)]
                workers.map(functools.partial(self._score, rows, begin, scores), parts)
            yield begin, scores[:n]

    def _score_dense(self, matrix: np.ndarray, scores: np.ndarray) -> None:
        n_features, n_classes = self._coef.shape
        step = max(1, n_features if self._is_whole else _PIECE_SIZE // max(1, n_classes))
        first, *rest = range(0, max(n_features, 1), step)
        with np.errstate(over="ignore", invalid="ignore"):  # `Model.scores` rejects such scores
            np.matmul(matrix[:, :step], self._coef.dense(first, min(step, n_features)), out=scores)
            for begin in rest:
                end = min(begin + step, n_features)
                scores += matrix[:, begin:end] @ self._coef.dense(begin, end)

    def _score(self, rows: Rows, first: int, scores: np.ndarray, part: tuple[int, int]) -> None:
        from streamsvm.kernels.score import score_rows
        from streamsvm.kernels.sparse_coef import score_sparse_rows

        begin, end = part
        if isinstance(self._coef, SparseCoef):
            score_sparse_rows(rows, first + begin, first + end, *self._coef[:3], scores[begin:end])
        else:
            score_rows(rows, first + begin, first + end, self._coef.weights, scores[begin:end])

    @functools.cached_property
    def _places(self) -> np.ndarray:
        from streamsvm.kernels.csr import places_of

        n_features = self._coef.shape[0]
        return places_of(self._features, n_features, format.index_dtype(n_features))

    def _places_of(self, indices: np.ndarray) -> np.ndarray:
        places = np.searchsorted(self._features, indices)
        is_stored = places < len(self._features)
        is_stored[is_stored] = self._features[places[is_stored]] == indices[is_stored]
        places[~is_stored] = -1
        return places

    def _stored_features(self, rows: Rows) -> Rows:
        """Replace features of CSR rows by row numbers of the stored weights; drop features that have none.

        Dense rows are returned unchanged. Raises `ModelError` if they have the wrong number of features.
        """
        if rows.dense:
            width, n_features = rows.matrix.shape[1], self._coef.shape[0]
            if rows.n_rows and width != n_features:
                raise ModelError(f"the data has {width} features, but the model has {n_features}")
            return rows
        if self._features is None:
            return rows
        from streamsvm.kernels.csr import with_places

        if self._coef.shape[0] <= _MAX_PLACES:
            columns, places = rows.features, self._places
        else:
            columns, places = np.arange(len(rows.features)), self._places_of(rows.features)
        return with_places(rows, columns, places, places.dtype)


def log_probabilities(scores: np.ndarray, record: dict[str, Any], temperature: float) -> np.ndarray:
    """Return log-probabilities (float64) of finite scores, shape (n, n_classes); see `Model.temperature`."""
    if is_sparsemax(record):
        return _log_sparsemax(scores)
    result = scores.astype(np.float64)
    with np.errstate(over="ignore"):  # -inf is a probability of 0
        result -= result.max(axis=1, keepdims=True)
        result /= temperature
    result -= np.log(np.exp(result).sum(axis=1, keepdims=True))
    return result


def is_sparsemax(record: dict[str, Any]) -> bool:
    loss = LOSSES.get(str(record.get("loss")))
    return loss is not None and loss.probabilities == "sparsemax" and record.get(format.TEMPERATURE) is None


def _log_sparsemax(scores: np.ndarray) -> np.ndarray:
    """Return the logarithms of the projections onto the simplex: Martins & Astudillo (2016), Algorithm 1."""
    result = scores.astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        result -= result.max(axis=1, keepdims=True)
        sums = np.cumsum(-np.sort(-result, axis=1), axis=1)
        result -= ((sums - 1.0) / np.arange(1, scores.shape[1] + 1)).max(axis=1, keepdims=True)
        return np.log(np.maximum(result, 0.0))
