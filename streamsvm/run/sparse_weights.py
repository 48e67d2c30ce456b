"""Weights with a sparse row for each feature, for very many classes.

A feature that occurs in c rows gets at most c * (duals of a row + 1) weights other than zero: 2,000 of 17,000
if c is 200. As a row of a matrix these would lie on nearly every one of its pages, and each visit would score
thousands of zeros. So a row holds only the classes that have a weight, until they are many (see
`streamsvm.kernels.sparse_rows`). docs/measurements/engine.md has the figures.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.sparse_rows import (
    SparseRows,
    class_at,
    drop_negligible,
    entries,
    restart_sparse_average,
    scale_sparse_rows,
)
from streamsvm.kernels.weights import Weights
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.weights import WeightStorage, check_mapped, map_array


class SparseWeights(WeightStorage):
    """Weights as sparse rows in memory, and in a memory-mapped file if they outgrow it.

    Parameters
    ----------
    n_features : int
    columns : int
        Classes, padded to whole vectors.
    dtype : dtype
    time_unit : float
        The unit of the average's time (see `Weights`).
    path : Path, optional
        New file for the rows if they outgrow the memory; a run never resumes from it. By default there is no
        limit to memory, and no file.
    most_bytes : int
        Memory for the rows, if there is a file.
    average : bool
        True if an average can be kept.
    """

    sparse_rows: SparseRows

    def __init__(
        self,
        n_features: int,
        columns: int,
        dtype: np.dtype,
        time_unit: float,
        path: Path | None = None,
        most_bytes: int = 0,
        *,
        average: bool,
    ) -> None:
        nothing = np.zeros((0, columns), dtype)
        self.weights = Weights.create(nothing, nothing.copy(), time_unit)
        self.sparse_rows = SparseRows.create(n_features, columns, dtype, average=average)
        self._columns, self._path, self._most_bytes = columns, path, most_bytes
        self._in_file = False
        if path is not None:
            path.unlink(missing_ok=True)

    @staticmethod
    def size(n_features: int, columns: int) -> int:
        """Return the bytes in memory beside the entries: extents, dirty bytes, scratch."""
        return n_features * (3 * 8 + 1) + 9 * columns

    @property
    def n_features(self) -> int:
        return len(self.sparse_rows.extents)

    def make_room(self, rows: Rows, i: int) -> None:
        n_features = int(rows.indptr[i + 1] - rows.indptr[i])
        self.reserve(n_features * self.sparse_rows.width * self._columns)  # as `has_sparse_room`

    def reserve(self, n: int) -> None:
        """Make room for `n` more elements of the pool."""
        old, used = self.sparse_rows.pool, int(self.sparse_rows.used[0])
        if (needed := used + n) <= len(old):
            return
        n = max(needed, 2 * len(old))
        if self._path is None:
            pool = map_array(None, (1, n), old.dtype)[0]
        elif needed * old.itemsize <= self._most_bytes:
            # All at once, since it is never copied then; what is not used takes no memory.
            pool = map_array(None, (1, self._most_bytes // old.itemsize), old.dtype)[0]
        else:
            pool = map_array(self._path, (1, n), old.dtype, fresh=not self._in_file)[0]
            check_mapped([(self._path, pool[None])], 1)
        if not self._in_file:
            pool[:used] = old[:used]
        self._in_file = self._path is not None and needed * old.itemsize > self._most_bytes
        self.sparse_rows = self.sparse_rows._replace(pool=pool, classes=pool.view(f"u{pool.itemsize}"))

    def begin_average(self) -> None:
        restart_sparse_average(self.sparse_rows)

    def scale(self, factor: float) -> None:
        scale_sparse_rows(self.sparse_rows, factor)

    def end_pass(self) -> None:
        drop_negligible(self.sparse_rows, self._columns)

    def check_room(self, rows: Rows) -> None:
        if self._in_file and self._path is not None:
            check_mapped([(self._path, self.sparse_rows.pool[None])], 1)

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        return Coefficients(_Spread(self.sparse_rows, average_scale or 0.0), columns)


class _Spread:
    """Sparse rows, or their average, in the form that `Coefficients` takes."""

    def __init__(self, sparse_rows: SparseRows, average_scale: float) -> None:
        self.shape = (len(sparse_rows.extents), len(sparse_rows.marks))
        self.dtype = sparse_rows.pool.dtype
        self._rows, self._scale = sparse_rows, average_scale

    def dense(self, begin: int, end: int) -> np.ndarray:
        """Return the weights of some features as a dense array."""
        spread = np.empty((end - begin, self.shape[1]), self.dtype)
        spread_rows(self._rows, begin, self._scale, spread)
        return spread


@kernel
def spread_rows(sparse_rows, first, average_scale, spread):
    """Write the weights of features from `first` on into the rows of `spread`, or their average."""
    columns = spread.shape[1]
    scale = spread.dtype.type(average_scale)
    for r in range(len(spread)):
        for c in range(columns):
            spread[r, c] = 0
        begin, size, distance = entries(sparse_rows, first + r)
        for e in range(size):
            c = class_at(sparse_rows, first + r, e, columns)
            spread[r, c] = sparse_rows.pool[begin + e]
            if average_scale != 0:
                spread[r, c] -= scale * sparse_rows.pool[begin + e + distance]
