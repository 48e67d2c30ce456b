"""Weights of which the rows of rare features are sparse, for very many classes.

A feature that occurs in c rows gets at most c * (duals of a row + 1) weights other than zero: 2,000 of 17,000
if c is 200. As a row of a matrix these would lie on nearly every one of its pages; each page would be read,
changed and written again all the time, and each visit would score thousands of zeros. So the weights of
frequent features stay a matrix, and those of the others are sparse rows of (class, weight) that grow (see
`streamsvm.kernels.sparse_rows`). docs/engine.md has the measurements.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm import durable, format
from streamsvm.coefficients import Coefficients
from streamsvm.data.blocks import Blocks
from streamsvm.data.prefetch import Prefetcher
from streamsvm.data.rows import Rows
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.kernels.sparse_rows import SparseRows, restart_sparse_average, scale_sparse_rows
from streamsvm.run.weights import DenseWeights

_NOTHING = np.zeros(0, np.int64)


class SplitRows(NamedTuple):
    """Rows divided between the features of the matrix and the rare ones."""

    rows: Rows  # the part that is multiplied by the matrix
    indptr: np.ndarray  # the other part, as in `SparseRows`
    indices: np.ndarray
    data: np.ndarray
    longest: int  # the most rare features of a row


class HybridWeights(DenseWeights):
    """A matrix for frequent features, and sparse rows in a memory-mapped file for the others.

    Parameters
    ----------
    rare : ndarray of bool, shape (n_features,)
        Which features are rare.
    columns : int
        Classes, padded to whole vectors.
    n_classes : int
        Columns that are not padding.
    dtype : dtype
    time_unit : float
    paths : tuple of Path
        As for `DenseWeights`.
    entries_path : Path
        File of the sparse rows, made anew: like the weights, a run never resumes from it.
    average : bool
    """

    sparse_rows: SparseRows

    def __init__(
        self,
        rare: np.ndarray,
        columns: int,
        n_classes: int,
        dtype: np.dtype,
        time_unit: float,
        paths: tuple[Path | None, Path | None, Path | None],
        entries_path: Path,
        *,
        average: bool,
    ) -> None:
        # Where a feature is: its row of the matrix, or the complement of its sparse row.
        self._place = np.empty(len(rare), np.int64)
        n_frequent = number_features(rare, self._place)
        super().__init__((n_frequent, columns), dtype, time_unit, paths, average=average)
        self.n_classes = n_classes
        self._columns = columns
        self.entry_width = 2 + average  # numbers in an entry
        self._path = entries_path
        self._path.unlink(missing_ok=True)
        self._entries = np.zeros((0, self.entry_width), dtype)
        self._longest = 0
        n_rare = len(rare) - n_frequent
        self.sparse_rows = SparseRows(
            np.zeros(1, np.int64),
            _NOTHING,
            np.zeros(0, dtype),
            self._entries,
            np.zeros((n_rare, 3), np.int64),
            np.zeros(n_rare, np.uint8),
            np.zeros(1, np.int64),
            np.zeros(columns * dtype.itemsize // VECTOR_BYTES, np.int64),
        )

    @staticmethod
    def size(n_features: int) -> int:
        """Bytes in memory at most, whichever features are rare: a feature's place, extent and dirty byte.

        Counting features takes no more, and dividing rows takes no more than a plan counts for reading them.
        """
        return n_features * (8 + 3 * 8 + 1)

    @property
    def n_features(self) -> int:
        return len(self._place)

    def prepare(self, rows: Rows) -> SplitRows:
        n_rare = count_rare(rows.indices, self._place)
        n_frequent = len(rows.indices) - n_rare
        part = rows._replace(
            data=np.empty(n_frequent, rows.data.dtype),
            indices=np.empty(n_frequent, rows.indices.dtype),
            indptr=np.empty(len(rows.indptr), np.int64),
        )
        indptr, indices = np.empty(len(rows.indptr), np.int64), np.empty(n_rare, np.int64)
        data = np.empty(n_rare, rows.data.dtype)
        longest = split_rows(rows, self._place, part, indptr, indices, data)
        return SplitRows(part, indptr, indices, data, longest)

    def bind(self, prepared: SplitRows) -> Rows:
        self._longest = prepared.longest
        self.sparse_rows = self.sparse_rows._replace(
            indptr=prepared.indptr, indices=prepared.indices, data=prepared.data
        )
        self.make_room()
        return prepared.rows

    def release(self) -> None:
        self._longest = 0
        self.sparse_rows = self.sparse_rows._replace(
            indptr=np.zeros(1, np.int64), indices=_NOTHING, data=self.sparse_rows.data[:0].copy()
        )

    def make_room(self) -> None:
        self.reserve(2 * self._longest * self._columns)

    def reserve(self, n_entries: int) -> None:
        """Have room for so many entries more."""
        needed = int(self.sparse_rows.used[0]) + n_entries
        if needed > len(self._entries):
            self._grow_file(max(needed, 2 * len(self._entries)))
            self.sparse_rows = self.sparse_rows._replace(entries=self._entries)

    def _grow_file(self, n_entries: int) -> None:
        dtype = self._entries.dtype
        size = n_entries * self.entry_width * dtype.itemsize
        with durable.open_file(self._path, "a+b") as file:
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        mapped.madvise(mmap.MADV_RANDOM)
        self._entries = np.frombuffer(mapped, dtype).reshape(n_entries, self.entry_width)

    def scale(self, factor: float) -> None:
        super().scale(factor)
        scale_sparse_rows(self.sparse_rows, factor)

    def begin_average(self) -> None:
        super().begin_average()
        restart_sparse_average(self.sparse_rows)

    def coefficients(self, average_scale: float | None, columns: np.ndarray) -> Coefficients:
        weights = self.weights
        delta = None if average_scale is None else _Whole(self, weights.average_delta, 2)
        return Coefficients(_Whole(self, weights.current, 1), delta, average_scale or 0.0, columns, None)

    def spread(self, matrix: np.ndarray, column: int, begin: int, end: int) -> np.ndarray:
        """Features `begin` to `end` as rows of a matrix, from `matrix` and that column of the entries."""
        spread = np.zeros((end - begin, matrix.shape[1]), matrix.dtype)
        spread_rows(matrix, self.sparse_rows, self._place[begin:end], column, spread)
        return spread


class _Whole:
    """All weights, or all of their average's delta, as a matrix that is read a slice at a time."""

    def __init__(self, weights: HybridWeights, matrix: np.ndarray, column: int) -> None:
        self.shape = (weights.n_features, matrix.shape[1])
        self.dtype, self.itemsize = matrix.dtype, matrix.itemsize
        self._weights, self._matrix, self._column = weights, matrix, column

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        begin, end, _ = key[0].indices(self.shape[0])
        return self._weights.spread(self._matrix, self._column, begin, end)[:, key[1]]


def find_rare(path: Path, blocks: Blocks, classes_per_row: float, step: Callable[[int], None]) -> np.ndarray:
    """Which features are rare, from `path` or else from one reading of all blocks, after which it is written.

    Parameters
    ----------
    path : Path
    blocks : Blocks
    classes_per_row : float
        A feature is rare if fewer than one row for so many classes has it.
    step : callable
        Called with the number of each block that was counted.

    Returns
    -------
    ndarray of bool, shape (n_features,)
    """
    store = blocks.store
    rare = _read_rare(path, store.fingerprint, store.n_features)
    if rare is None:
        frequency = np.zeros(store.n_features, np.int64)
        with Prefetcher(map(blocks.read, range(len(blocks)))) as all_rows:
            for block, rows in enumerate(all_rows):
                count_features(rows.indices, frequency)
                step(block)
        rare = frequency < np.ceil(store.n_classes / classes_per_row)
        bits = np.packbits(rare).tobytes()
        durable.write_atomic(path, _header(len(rare), store.fingerprint, bits) + bits)
    return rare


def _read_rare(path: Path, fingerprint: str, n_features: int) -> np.ndarray | None:
    """What `find_rare` wrote for this store; None if it is missing or damaged: it can be counted again."""
    header_size = format.RARE_FEATURES_HEADER.size
    size = header_size + -(-n_features // 8)
    if not path.exists() or path.stat().st_size != size:
        return None
    with durable.open_file(path) as file:
        content = file.read(size)
    bits = content[header_size:]
    if content[:header_size] != _header(n_features, fingerprint, bits):
        return None
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n_features).view(bool)


def _header(n_features: int, fingerprint: str, bits: bytes) -> bytes:
    crc = zlib.crc32(bits, zlib.crc32(fingerprint.encode()))
    return format.RARE_FEATURES_HEADER.pack(format.RARE_FEATURES_MAGIC, n_features, crc)


@kernel
def count_features(indices, frequency):
    """Add to `frequency` how often each feature is among `indices`."""
    for f in indices:
        frequency[f] += 1


@kernel
def number_features(rare, place):
    """Write to `place` where each feature is; return how many have a row of the matrix."""
    n_frequent, n_rare = 0, 0
    for f in range(len(rare)):
        if rare[f]:
            n_rare += 1
            place[f] = -n_rare
        else:
            place[f] = n_frequent
            n_frequent += 1
    return n_frequent


@kernel
def count_rare(indices, place):
    """How many of `indices` are rare features."""
    n = 0
    for f in indices:
        n += place[f] < 0
    return n


@kernel
def split_rows(rows, place, part, indptr, indices, data):
    """Divide rows between `part`, with rows of the matrix as features, and the arrays of rare features.

    Returns the most rare features that a row has.
    """
    n_frequent, n_rare, longest = 0, 0, 0
    part.indptr[0] = indptr[0] = 0
    for i in range(len(rows.labels)):
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            at = place[rows.indices[p]]
            if at >= 0:
                part.indices[n_frequent], part.data[n_frequent] = at, rows.data[p]
                n_frequent += 1
            else:
                indices[n_rare], data[n_rare] = -1 - at, rows.data[p]
                n_rare += 1
        part.indptr[i + 1], indptr[i + 1] = n_frequent, n_rare
        longest = max(longest, n_rare - indptr[i])
    return longest


@kernel
def spread_rows(matrix, sparse_rows, place, column, spread):
    """Write the weights of the features at `place` into `spread`, which is zero."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    for r in range(len(place)):
        at = place[r]
        if at >= 0:
            for c in range(matrix.shape[1]):
                spread[r, c] = matrix[at, c]
        else:
            begin, size = extents[-1 - at, 0], extents[-1 - at, 1]
            for e in range(begin, begin + size):
                spread[r, np.int64(entries[e, 0])] = entries[e, column]
