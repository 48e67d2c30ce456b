"""Weights with a sparse row for each feature, for very many classes.

A feature that occurs in c rows of the data has at most c * (duals per row + 1) non-zero weights. If c is 200
and a row has 9 duals, that is 2,000 weights, even with 17,000 classes. In a matrix, they would be spread over
nearly every page of the feature's weights, and each step would process thousands of zeros. A sparse row
therefore stores only classes with non-zero weights, unless there are many (see
`streamsvm.kernels.sparse_rows` and docs/measurements/engine.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import RunError
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.sparse_rows import (
    SparseRows,
    class_at,
    drop_negligible,
    entries,
    most_places,
    reserve_entries,
    restart_sparse_average,
    scale_sparse_rows,
)
from streamsvm.kernels.weights import Weights
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.segments import HEADER
from streamsvm.run.sums import mapped
from streamsvm.run.weights import WeightStorage, check_mapped, map_array

_PART_ENTRIES = 2**16


class SparseWeights(WeightStorage):
    """Weights as sparse rows in memory or, if they outgrow it, in a memory-mapped file.

    `columns` is the number of classes, padded to whole vectors. If `average` is True, an average can be kept,
    with the time unit `time_unit` (see `Weights`). When the rows exceed `max_bytes`, they move to the new
    file `path`, which is not used for resuming. If `path` is None, they always stay in memory.
    """

    sparse_rows: SparseRows

    def __init__(
        self,
        n_features: int,
        columns: int,
        dtype: np.dtype,
        time_unit: float,
        path: Path | None = None,
        max_bytes: int = 0,
        *,
        average: bool,
    ) -> None:
        empty = np.zeros((0, columns), dtype)
        self.weights = Weights(empty, empty.copy(), time_unit)
        self.sparse_rows = SparseRows.create(n_features, columns, dtype, average=average)
        self._columns, self._path, self._max_bytes = columns, path, max_bytes
        self._in_file = False
        if path is not None:
            path.unlink(missing_ok=True)

    @staticmethod
    def size(n_features: int, columns: int) -> int:
        """Return the size of the extents and scratch arrays in bytes, without the entries."""
        return n_features * 3 * 8 + 9 * columns

    @property
    def n_features(self) -> int:
        return len(self.sparse_rows.extents)

    def make_room(self, rows: Rows, i: int) -> None:
        n_features = int(rows.indptr[i + 1] - rows.indptr[i])
        self.reserve(n_features * self.sparse_rows.width * self._columns)  # as in `has_sparse_room`

    def reserve(self, n: int) -> None:
        """Make room for `n` more elements in the pool."""
        old, used = self.sparse_rows.pool, int(self.sparse_rows.used[0])
        if (needed := used + n) <= len(old):
            return
        n = max(needed, 2 * len(old))
        if self._path is None:
            pool = map_array(None, (1, n), old.dtype)[0]
        elif needed * old.itemsize <= self._max_bytes:
            # Allocated in full to avoid copies; unused pages take no memory.
            pool = map_array(None, (1, self._max_bytes // old.itemsize), old.dtype)[0]
        else:
            pool = map_array(self._path, (1, n), old.dtype, fresh=not self._in_file)[0]
            check_mapped([(self._path, pool[None])], 1)
        if not self._in_file:
            pool[:used] = old[:used]
        self._in_file = self._path is not None and needed * old.itemsize > self._max_bytes
        self.sparse_rows = self.sparse_rows._replace(pool=pool, classes=pool.view(f"u{pool.itemsize}"))

    def begin_average(self) -> None:
        restart_sparse_average(self.sparse_rows)

    def scale(self, factor: float) -> None:
        scale_sparse_rows(self.sparse_rows, factor)

    def end_pass(self) -> None:
        drop_negligible(self.sparse_rows, self._columns)

    def state(self) -> Iterator[np.ndarray]:
        """For each group of rows, yield a header, the row numbers, the row sizes and the entries.

        An entry consists of a class, its weight and, if an average can be kept, its average delta.
        """
        rows = self.sparse_rows
        for numbers in _parts_of_rows(rows):
            sizes = np.ascontiguousarray(rows.extents[numbers, 1])
            values = np.empty((int(sizes.sum()), rows.width), rows.pool.dtype)
            gather_entries(rows, numbers, values)
            yield np.array([len(numbers), len(values), 0])
            yield from (numbers, sizes, values)

    def restore(self, path: Path) -> None:
        content, at = mapped(path), 0

        def take(dtype: Any, n: int) -> np.ndarray:
            nonlocal at
            end = at + n * np.dtype(dtype).itemsize
            if not 0 <= at <= end <= len(content):
                raise RunError(f"{path} is damaged: its sizes are not valid")
            array = np.frombuffer(content[at:end].tobytes(), dtype)
            at = end
            return array

        while at < len(content):
            n, n_entries, _ = take(np.int64, HEADER).tolist()
            numbers, sizes = take(np.int64, n), take(np.int64, n)
            values = take(self.sparse_rows.pool.dtype, n_entries * self.sparse_rows.width)
            self._restore(path, numbers, sizes, values)

    def _restore(self, path: Path, numbers: np.ndarray, sizes: np.ndarray, values: np.ndarray) -> None:
        rows, columns = self.sparse_rows, self._columns
        entries = values.reshape(-1, rows.width)
        if not (
            ((numbers >= 0) & (numbers < len(rows.extents))).all()
            and ((sizes >= 0) & (sizes <= columns)).all()
            and sizes.sum() == len(entries)
            and ((entries[:, 0] >= 0) & (entries[:, 0] < columns)).all()
        ):
            raise RunError(f"{path} is damaged: its numbers are not valid")
        keys = np.repeat(np.arange(len(numbers)) * columns, sizes) + entries[:, 0].astype(np.int64)
        if len(np.unique(keys)) < len(entries):  # kernels have no room for duplicate classes
            raise RunError(f"{path} is damaged: a row contains a class twice")
        self.reserve(int(most_places(rows, sizes, columns)))
        scatter_entries(self.sparse_rows, numbers, sizes, entries)

    def check_room(self, rows: Rows) -> None:
        if self._in_file and self._path is not None:
            check_mapped([(self._path, self.sparse_rows.pool[None])], 1)

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        return Coefficients(_Spread(self.sparse_rows, average_scale or 0.0), columns)


def _parts_of_rows(sparse_rows: SparseRows) -> Iterator[np.ndarray]:
    numbers = np.flatnonzero(sparse_rows.extents[:, 1])
    ends, begin = np.cumsum(sparse_rows.extents[numbers, 1]), 0
    while begin < len(numbers):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _PART_ENTRIES, "right")))
        yield numbers[begin:end]
        begin = end


class _Spread:
    def __init__(self, sparse_rows: SparseRows, average_scale: float) -> None:
        self.shape = (len(sparse_rows.extents), len(sparse_rows.marks))
        self.dtype = sparse_rows.pool.dtype
        self._rows, self._scale = sparse_rows, average_scale

    def dense(self, begin: int, end: int) -> np.ndarray:
        spread = np.empty((end - begin, self.shape[1]), self.dtype)
        spread_rows(self._rows, begin, self._scale, spread)
        return spread


@kernel
def spread_rows(sparse_rows, first, average_scale, spread):
    """Write the weights or average weights of the features starting at `first` to the rows of `spread`."""
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


@kernel
def gather_entries(sparse_rows, numbers, gathered):
    """Copy the entries of the sparse rows `numbers` to `gathered`, row by row."""
    at, columns = 0, len(sparse_rows.marks)
    for k in range(len(numbers)):
        begin, size, distance = entries(sparse_rows, numbers[k])
        for e in range(size):
            gathered[at, 0] = class_at(sparse_rows, numbers[k], e, columns)
            for column in range(1, gathered.shape[1]):
                gathered[at, column] = sparse_rows.pool[begin + (column - 1) * distance + e]
            at += 1


@kernel
def scatter_entries(sparse_rows, numbers, sizes, gathered):
    """Replace the entries of the sparse rows `numbers`; the pool must have enough room."""
    at, columns = 0, len(sparse_rows.marks)
    for k in range(len(numbers)):
        f, size = numbers[k], sizes[k]
        if sparse_rows.extents[f, 1] < columns:
            sparse_rows.extents[f, 1] = 0
            reserve_entries(sparse_rows, f, size, columns)
        is_full = sparse_rows.extents[f, 1] == columns
        if not is_full:
            sparse_rows.extents[f, 1] = size
        begin, n, distance = entries(sparse_rows, f)
        for e in range(n if is_full else 0):
            for column in range(1, gathered.shape[1]):
                sparse_rows.pool[begin + (column - 1) * distance + e] = 0
        for e in range(size):
            c = np.int64(gathered[at + e, 0])
            if not is_full:
                sparse_rows.classes[begin - distance + e] = c
            for column in range(1, gathered.shape[1]):
                place = begin + (column - 1) * distance + (c if is_full else e)
                sparse_rows.pool[place] = gathered[at + e, column]
        at += size
