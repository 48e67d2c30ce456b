"""Compute statistics of features in one pass over the rows, in float64.

Rows are added one by one, in order. Squared deviations from the running mean are summed (Welford 1962),
because a difference of two sums of squares is inaccurate for features with a large mean. Long data is divided
into spans, which depend only on the number of rows. Spans are accumulated separately and combined in order
(Chan et al. 1979); the same formula finally adds the zeros. The results are therefore bit-identical for
any read size and any number of threads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np

from streamsvm.data.checks import PIECE_ELEMENTS
from streamsvm.data.rows import Rows, row_span

BYTES_PER_FEATURE = {"counts": 8, "moments": 32}
_MIN_SPAN_ROWS, _MAX_SPANS = 2**17, 64
_PIECE_FEATURES = 2**16  # number of features combined at a time
_SAMPLE_SLICES, _SLICE_ROWS = 8, 128  # sample of a dense matrix, to estimate the fraction of zeros
_SLICE_VALUES = 2**18


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Statistics of each feature.

    Attributes
    ----------
    n_rows : int
    count : ndarray of float64, shape (n_features,)
        Number of rows in which the feature is not 0.
    moments : ndarray of float64, shape (3, n_features)
        Mean of the non-zero values, sum of their squared deviations from it, and their largest magnitude. The
        shape is (0, n_features) if only counts are gathered.
    centred : bool
        Whether the data was centred after the statistics were gathered; then only the variance is valid.
    """

    n_rows: int
    count: np.ndarray
    moments: np.ndarray
    centred: bool = False

    @property
    def kind(self) -> str:
        return "variance" if self.centred else "moments" if len(self.moments) else "counts"

    @property
    def mean(self) -> np.ndarray:
        """Mean over all rows, including zeros."""
        mean: np.ndarray = self.moments[0] * (self.count / max(self.n_rows, 1))
        return mean

    @property
    def variance(self) -> np.ndarray:
        """Variance over all rows, including zeros, with the divisor `n_rows`."""
        centre, deviations, _ = self.moments
        n = max(self.n_rows, 1)
        fraction = self.count / n
        return deviations / n + centre**2 * fraction * (1 - fraction)

    def times(self, weights: np.ndarray) -> Statistics:
        """Return the statistics of the features after multiplication by positive `weights`."""
        if self.kind == "counts":
            return self
        moments = self.moments * [weights, weights**2, weights]
        return dataclasses.replace(self, moments=moments)

    def take(self, columns: np.ndarray) -> Statistics:
        """Return the statistics of the features in `columns`."""
        return dataclasses.replace(self, count=self.count[columns], moments=self.moments[:, columns])


class StatisticsBuilder:
    """Accumulator of statistics; `n_rows` is the total number of rows that will be added."""

    def __init__(self, n_rows: int, n_features: int, kind: Literal["counts", "moments"] = "moments") -> None:
        from streamsvm.kernels import csr as kernels  # late, because numba is slow to import

        self._kernels = kernels
        self._stops = [stop for _, stop in spans(n_rows)[:-1]]  # ends of all spans but the last
        self._n_features, self._kind = n_features, kind
        self._done = 0
        self._before: Statistics | None = None  # statistics of the complete spans
        self._begin_span()

    def _begin_span(self) -> None:
        self._n_kept = 0
        self._count = np.zeros(self._n_features)
        self._moments = np.zeros((self._n_features, 3 if self._kind == "moments" else 0))

    def add_rows(self, rows: Rows, kept: np.ndarray | None = None) -> None:
        """Add the next m rows, CSR or dense; `kept` is a mask, shape (m,), of the rows to include."""
        if not rows.dense:
            self.add(rows.indptr, rows.data, rows.features, kept)
            return
        step = max(1, PIECE_ELEMENTS // max(1, self._n_features))
        features = np.tile(np.arange(self._n_features, dtype=np.int32), min(step, rows.n_rows))
        for start in range(0, rows.n_rows, step):
            piece = row_span(rows, start, min(start + step, rows.n_rows))
            part = None if kept is None else kept[start : start + step]
            self.add(piece.indptr, piece.data, features[: len(piece.data)], part)

    def add(
        self, indptr: np.ndarray, data: np.ndarray, indices: np.ndarray, kept: np.ndarray | None = None
    ) -> None:
        """Add the next m rows as CSR arrays; `kept` is a mask, shape (m,), of the rows to include."""
        row, n_rows = 0, len(indptr) - 1
        while row < n_rows:
            stop = min(n_rows, row + self._stops[0] - self._done) if self._stops else n_rows
            span = slice(int(indptr[row]), int(indptr[stop]))
            n, values, features = stop - row, data[span], indices[span]
            if kept is not None:
                kept_values = np.repeat(kept[row:stop], np.diff(indptr[row : stop + 1]))
                n, values, features = int(kept[row:stop].sum()), values[kept_values], features[kept_values]
            self._n_kept += n
            if self._kind == "counts":
                self._kernels.add_counts(values, features, self._count)
            else:
                self._kernels.add_moments(values, features, self._count, self._moments)
            self._done += stop - row
            row = stop
            if self._stops and self._done == self._stops[0]:
                del self._stops[0]
                self._before = self.result()
                self._begin_span()

    def result(self) -> Statistics:
        """Return the statistics so far; no rows can be added afterwards."""
        span = Statistics(self._n_kept, self._count, np.ascontiguousarray(self._moments.T))
        return span if self._before is None else _add(self._before, span)


def spans(n_rows: int) -> list[tuple[int, int]]:
    """Divide `n_rows` rows into at least one span, and return the (start, stop) bounds."""
    length = max(_MIN_SPAN_ROWS, -(-n_rows // _MAX_SPANS))
    return [(start, min(start + length, n_rows)) for start in range(0, max(n_rows, 1), length)]


def _add(first: Statistics, second: Statistics) -> Statistics:
    """Combine the statistics of two spans; the arrays of `first` are overwritten."""
    n_rows = first.n_rows + second.n_rows
    if first.kind == "counts":
        first.count[:] += second.count
        return dataclasses.replace(first, n_rows=n_rows)
    for start in range(0, len(first.count), _PIECE_FEATURES):
        part = slice(start, start + _PIECE_FEATURES)
        n, m = first.count[part], second.count[part]
        (mean, deviations, largest), other = first.moments[:, part], second.moments[:, part]
        fraction = m / np.maximum(n + m, 1)
        change = other[0] - mean
        deviations += other[1] + change**2 * fraction * n
        mean += change * fraction
        np.maximum(largest, other[2], out=largest)
        n += m
    return dataclasses.replace(first, n_rows=n_rows)


def bytes_needed(n_rows: int, n_features: int, kind: Literal["counts", "moments"]) -> int:
    """Return the memory, in bytes, needed to gather statistics; several spans need three copies."""
    return BYTES_PER_FEATURE[kind] * n_features * (1 if len(spans(n_rows)) == 1 else 3)


def is_mostly_filled(shape: tuple[int, int], parts: Callable[[int, int], Iterable[np.ndarray]]) -> bool:
    """Return True if at least half of the values in a sample of rows are not 0.

    ``parts(start, stop)`` returns the values of a range of rows, in one or more arrays.
    """
    n_rows, n_columns = shape
    length = min(n_rows, _SLICE_ROWS, max(1, _SLICE_VALUES // max(1, n_columns)))
    filled = size = 0
    for first in np.unique(np.linspace(0, n_rows - length, _SAMPLE_SLICES, dtype=np.int64)).tolist():
        for values in parts(first, first + length):
            filled += int(np.count_nonzero(values))
            size += values.size
    return 2 * filled >= size > 0
