"""Weights of rare features, kept as lists where there are very many classes.

A feature that c rows have gets at most c * (duals of a row + 1) weights that are not zero: 2,000 of
17,000 if c is 200. As a row of a matrix these would lie on nearly every page of it, each page would be
read, changed and written again all the time, and each visit would score thousands of zeros. So the
weights of frequent features stay a matrix, and those of the others are lists of (class, weight) that
grow (see `streamsvm.kernels.steps.Rare`). docs/engine.md has the measurements.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.data.blocks import Blocks, ReadAhead
from streamsvm.data.rows import Rows
from streamsvm.format import RARE_FEATURES_HEADER as _HEADER
from streamsvm.format import RARE_FEATURES_MAGIC as _MAGIC
from streamsvm.kernels.simd import LINE
from streamsvm.kernels.steps import Rare, Weights, kernel, padded_classes

# Classes from which on rare features get lists. Below, a row of the matrix is less than a page.
MANY_CLASSES = 1000
# A feature is rare if fewer than one row for so many classes has it. With fewer classes a row, lists take
# longer than the matrix by more, and no less memory (docs/engine.md has the measurements).
CLASSES_PER_ROW = 256


class SplitRows(NamedTuple):
    """Rows divided between the matrix of weights and the lists of rare features."""

    features: RareFeatures
    rows: Rows  # what meets the matrix
    indptr: np.ndarray  # the rest, as in `streamsvm.kernels.steps.Rare`
    indices: np.ndarray
    data: np.ndarray
    longest: int  # rare features of a row

    def enter(self, weights: Weights) -> tuple[Rows, Weights]:
        """The rows, and weights that hold their other part and have room to train any row of them."""
        return self.rows, self.features.with_rows(weights, self)


class RareFeatures:
    """Which features are rare, and the file in which their lists are.

    Parameters
    ----------
    path : Path
        File to make; like the weights it is never what a run resumes from.
    rare : ndarray of bool, shape (n_features,)
        Which features are.
    n_classes : int
    dtype : dtype
        Of the weights.
    average : bool
        Whether each entry has a lag, too.

    Attributes
    ----------
    n_frequent : int
        Features that are rows of the matrix.
    n_classes : int
    width : int
        Numbers in an entry.
    """

    def __init__(
        self, path: Path, rare: np.ndarray, n_classes: int, dtype: np.dtype, *, average: bool
    ) -> None:
        # Where a feature is: its row of the matrix, or below 0 the complement of its list.
        self._place = np.empty(len(rare), np.int64)
        self.n_frequent = number_features(rare, self._place)
        self._path = path
        self.n_classes = n_classes
        self.width = 2 + average
        self._entries = np.zeros((0, self.width), dtype)
        path.unlink(missing_ok=True)
        self._longest = 0  # rare features of a row of the block
        n_rare = len(rare) - self.n_frequent
        self._rare = Rare(
            np.zeros(1, np.int64),
            np.zeros(0, np.int64),
            np.zeros(0, dtype),
            self._entries,
            np.zeros((n_rare, 3), np.int64),
            np.zeros(n_rare, np.uint8),
            np.zeros(1, np.int64),
            np.zeros(padded_classes(n_classes, dtype) * dtype.itemsize // LINE, np.int64),
        )

    @staticmethod
    def size(n_features: int) -> int:
        """Bytes in memory at most, whichever features are rare: where each is, its list, and a mark.

        While features are counted it is no more, and rows that are divided take no more than a plan
        counts for reading them.
        """
        return n_features * (8 + 3 * 8 + 1)

    def split(self, rows: Rows) -> SplitRows:
        """Divide rows; changes nothing, so that the thread that reads them can do it."""
        n_rare = count_rare(rows.indices, self._place)
        n_frequent = len(rows.indices) - n_rare
        part = Rows(
            np.empty(n_frequent, rows.data.dtype),
            np.empty(n_frequent, rows.indices.dtype),
            np.empty(len(rows.indptr), np.int64),
            rows.labels,
            rows.norm2,
        )
        indptr, indices = np.empty(len(rows.indptr), np.int64), np.empty(n_rare, np.int64)
        data = np.empty(n_rare, rows.data.dtype)
        longest = split_rows(rows, self._place, part, indptr, indices, data)
        return SplitRows(self, part, indptr, indices, data, longest)

    def with_rows(self, weights: Weights, rows: SplitRows) -> Weights:
        """The weights, with the rare part of a block, and lists that can take any row of it."""
        self._longest = rows.longest
        self._rare = self._rare._replace(indptr=rows.indptr, indices=rows.indices, data=rows.data)
        return self.with_room(weights)

    def without_rows(self, weights: Weights) -> Weights:
        """The weights, holding no block in memory."""
        none = Rare.none(self._rare.data.dtype)
        self._rare = self._rare._replace(indptr=none.indptr, indices=none.indices, data=none.data)
        return self.with_entries(weights, 0)

    def with_room(self, weights: Weights) -> Weights:
        """The weights, with lists that can take any row of the block."""
        return self.with_entries(weights, 2 * self._longest * self.n_classes)

    def with_entries(self, weights: Weights, n_entries: int) -> Weights:
        """The weights, with lists that can take so many entries more."""
        needed = int(self._rare.used[0]) + n_entries
        if needed > len(self._entries):
            self._grow(max(needed, 2 * len(self._entries)))
        self._rare = self._rare._replace(entries=self._entries)
        return weights._replace(rare=self._rare)

    def _grow(self, n_entries: int) -> None:
        dtype = self._entries.dtype
        size = n_entries * self.width * dtype.itemsize
        with durable.open_file(self._path, "a+b") as file:
            file.truncate(size)
            mapped = mmap.mmap(file.fileno(), size)
        mapped.madvise(mmap.MADV_RANDOM)
        self._entries = np.frombuffer(mapped, dtype).reshape(n_entries, self.width)

    def coefficients(self, array: np.ndarray, column: int, begin: int, end: int) -> np.ndarray:
        """Rows `begin` to `end` of the whole matrix, as a new array.

        `array` is what is kept of it, and `column` that of the entries: 1 for the weights, 2 for the lag.
        """
        spread = np.zeros((end - begin, array.shape[1]), array.dtype)
        spread_rows(array, self._rare, self._place[begin:end], column, spread)
        return spread


class Spread:
    """The whole matrix of weights, or of their lag, to be read a slice at a time."""

    def __init__(self, features: RareFeatures, array: np.ndarray, column: int, n_features: int) -> None:
        self.shape = (n_features, array.shape[1])
        self.dtype, self.itemsize = array.dtype, array.itemsize
        self._features, self._array, self._column = features, array, column

    def __getitem__(self, key: tuple[slice, slice]) -> np.ndarray:
        begin, end, _ = key[0].indices(self.shape[0])
        return self._features.coefficients(self._array, self._column, begin, end)[:, key[1]]


def find_rare(path: Path, blocks: Blocks, step: Callable[[int], None]) -> np.ndarray:
    """Which features are rare, as bool: what `path` says, or else from one reading of all blocks.

    Then `path` is written. Calls ``step(block)`` after each block.
    """
    store = blocks.store
    rare = _read_rare(path, store.fingerprint, store.n_features)
    if rare is None:
        frequency = np.zeros(store.n_features, np.int64)
        for block, rows in enumerate(ReadAhead()(blocks.read, range(len(blocks)))):
            count_features(rows.indices, frequency)
            step(block)
        rare = frequency < -(-store.n_classes // CLASSES_PER_ROW)
        bits = np.packbits(rare).tobytes()
        durable.write_atomic(
            path,
            _HEADER.pack(_MAGIC, len(rare), _crc(store.fingerprint, bits)) + bits,
        )
    return rare


def _read_rare(path: Path, fingerprint: str, n_features: int) -> np.ndarray | None:
    """What `find_rare` wrote for this store; None if it is not there or not whole: it can be counted anew."""
    size = _HEADER.size + -(-n_features // 8)
    if not path.exists() or path.stat().st_size != size:
        return None
    with durable.open_file(path) as file:
        content = file.read(size)
    bits = content[_HEADER.size :]
    if content[: _HEADER.size] != _HEADER.pack(_MAGIC, n_features, _crc(fingerprint, bits)):
        return None
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n_features).view(bool)


def _crc(fingerprint: str, bits: bytes) -> int:
    return zlib.crc32(bits, zlib.crc32(fingerprint.encode()))


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
    """Divide rows between `part`, with rows of the matrix for features, and the other arrays, with lists.

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
def spread_rows(array, rare, place, column, spread):
    """Write the rows at `place` into `spread`, which is zero."""
    for r in range(len(place)):
        at = place[r]
        if at >= 0:
            for c in range(array.shape[1]):
                spread[r, c] = array[at, c]
        else:
            begin, size = rare.lists[-1 - at, 0], rare.lists[-1 - at, 1]
            for e in range(begin, begin + size):
                spread[r, np.int64(rare.entries[e, 0])] = rare.entries[e, column]
