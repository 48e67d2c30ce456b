"""Log of weights, to which commits append and from which runs resume.

Training sets, for each feature, dirty bits of the groups of columns that it changed. A commit appends the
dirty groups and no others, so its cost follows what changed and not what exists. When most of the weights
changed, or the log has grown to twice the size of what it describes, a new log begins with everything that
is not zero. Small weights in memory have no dirty bits, which cost more than they save: each commit begins a
new log.

A part has at most `_PART_VALUES` values of each array. It holds features (int64), the changed groups of
each (uint64, one bit a group), and the values of these groups: first those of the weights, then, with an
average, those of its delta. Other parts hold sparse rows: their numbers and sizes (int64), and their entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.format import SPARSE_WEIGHTS_MAGIC, WEIGHTS_MAGIC
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.kernels.sparse_rows import SparseRows, class_at, entries, most_places, reserve_entries
from streamsvm.kernels.weights import Weights
from streamsvm.run.append_log import AppendLog, Part, mapped, scan
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weights import WeightStorage, mark_known

_PART_VALUES = 2**18
_PART_ROWS = 2**14


def append_weights(log: AppendLog, weights: Weights, sparse_rows: SparseRows | None) -> None:
    """Append the dirty groups and sparse rows, and clear the dirty bits."""
    for (n, size), arrays in _dirty_parts(weights):
        log.append(WEIGHTS_MAGIC, (n, size, 0), arrays)
    if sparse_rows is not None:
        for numbers in _dirty_rows(sparse_rows):
            sizes = np.ascontiguousarray(sparse_rows.extents[numbers, 1])
            entries = np.empty((int(sizes.sum()), sparse_rows.width), sparse_rows.pool.dtype)
            gather_entries(sparse_rows, numbers, entries)
            log.append(SPARSE_WEIGHTS_MAGIC, (len(numbers), len(entries), 0), [numbers, sizes, entries])
        sparse_rows.dirty[:] = 0


def _dirty_parts(weights: Weights) -> Iterator[tuple[tuple[int, int], list[np.ndarray]]]:
    """Yield the sizes and arrays of parts with the dirty groups, whose bits are cleared.

    The arrays are overwritten by the next part.
    """
    arrays = _arrays(weights)
    columns = weights.current.shape[1]
    capacity = _capacity(*weights.current.shape)
    n_features = _most_features(capacity, weights.current.itemsize)
    features, groups = np.empty(n_features, np.int64), np.empty(n_features, np.uint64)
    values = [np.empty(capacity, array.dtype) for array in arrays]
    feature = 0
    while True:
        feature, n, size = collect_dirty(
            weights.dirty, feature, columns, weights.group_bits, capacity, features, groups
        )
        if n == 0:
            break
        for array, packed in zip(arrays, values, strict=True):
            pack(array, features, groups, n, weights.group_bits, packed)
        yield (n, size), [features[:n], groups[:n], *(packed[:size] for packed in values)]


def append_buffer_bytes(n_features: int, columns: int, itemsize: int, *, average: bool, sparse: bool) -> int:
    """Return the bytes of memory that `append_weights` takes."""
    capacity, arrays = _capacity(n_features, columns), 1 + average
    values = capacity * (arrays + sparse * (1 + arrays)) * itemsize
    return values + 16 * _most_features(capacity, itemsize) + sparse * 5 * 8 * _PART_ROWS


def make_dirty(weights: Weights, sparse_rows: SparseRows | None) -> None:
    """Mark everything that was ever written as dirty, so that the next commit begins a new log."""
    if weights.dirty[:, 1].any():  # else the kernel need not be loaded
        mark_known(weights.dirty)
    if sparse_rows is not None:
        sparse_rows.dirty[:] = sparse_rows.extents[:, 1] > 0


def with_dirty(weights: Weights) -> Weights:
    """Return the weights with new dirty bits, set wherever they are not zero."""
    dirty = np.zeros((len(weights.current), 2), np.uint64)
    mark_nonzero(weights.current, weights.group_bits, dirty)
    mark_nonzero(weights.average_delta, weights.group_bits, dirty)
    return weights._replace(dirty=dirty)


def dirty_bytes(weights: Weights, sparse_rows: SparseRows | None) -> tuple[int, int]:
    """Return the bytes of the values that changed since the last commit, and of all that ever changed."""
    columns = weights.current.shape[1]
    value = weights.current.itemsize * (2 if len(weights.average_delta) else 1)
    changed, known = (value * count_values(weights.dirty[:, c], columns, weights.group_bits) for c in (0, 1))
    if sparse_rows is not None:
        entry = sparse_rows.pool.itemsize * sparse_rows.width
        sizes = sparse_rows.extents[:, 1]
        changed += int(sizes.sum(where=sparse_rows.dirty.view(bool))) * entry
        known += int(sizes.sum()) * entry
    return changed, known


def restore(path: Path, length: int, storage: WeightStorage) -> None:
    """Replay a log into `storage`, whose weights must be zero, and mark the restored groups as logged.

    The log must have passed `streamsvm.run.append_log.check`. Raises `RunError` for numbers that would lead
    kernels out of their arrays.
    """
    content = mapped(path, length)
    for part in scan(path, length):
        if isinstance(storage, SparseWeights):
            _restore_sparse(part, content, storage)
        else:
            _restore_groups(part, content, storage.weights)


def _restore_groups(part: Part, content: np.ndarray, weights: Weights) -> None:
    n, n_values, _ = part.numbers
    arrays, columns = _arrays(weights), weights.current.shape[1]
    kinds = (np.int64, n), (np.uint64, n), *((array.dtype, n_values) for array in arrays)
    features, groups, *values = _views(part, content, *kinds)
    if not (
        ((features >= 0) & (features < len(weights.current))).all()
        and int(groups.max(initial=0)) < 1 << -(-columns >> weights.group_bits)
        and count_values(groups, columns, weights.group_bits) == n_values
    ):
        raise part.damaged("impossible numbers")
    for packed, array in zip(values, arrays, strict=True):
        unpack(array, features, groups, n, weights.group_bits, packed)
    if len(weights.dirty):
        weights.dirty[features, 1] |= groups


def _restore_sparse(part: Part, content: np.ndarray, storage: SparseWeights) -> None:
    n, n_entries, _ = part.numbers
    sparse_rows = storage.sparse_rows
    dtype, width, columns = sparse_rows.pool.dtype, sparse_rows.width, len(sparse_rows.marks)
    kinds = (np.int64, n), (np.int64, n), (dtype, n_entries * width)
    numbers, sizes, values = _views(part, content, *kinds)
    entries = values.reshape(n_entries, width)
    if not (
        ((numbers >= 0) & (numbers < len(sparse_rows.extents))).all()
        and ((sizes >= 0) & (sizes <= columns)).all()
        and sizes.sum() == n_entries
        and ((entries[:, 0] >= 0) & (entries[:, 0] < columns)).all()
    ):
        raise part.damaged("impossible numbers")
    keys = np.repeat(np.arange(n) * columns, sizes) + entries[:, 0].astype(np.int64)
    if len(np.unique(keys)) < n_entries:  # kernels have no room for a class twice
        raise part.damaged("a class twice in a row")
    storage.reserve(int(most_places(sparse_rows, sizes, columns)))
    scatter_entries(storage.sparse_rows, numbers, sizes, entries)


def _views(part: Part, content: np.ndarray, *kinds: tuple[Any, int]) -> list[np.ndarray]:
    """Return the arrays of a part, of these types and lengths, as views of the log."""
    begins = part.offsets(*(n * np.dtype(dtype).itemsize for dtype, n in kinds))
    return [np.frombuffer(content, dtype, n, at) for (dtype, n), at in zip(kinds, begins, strict=True)]


def _arrays(weights: Weights) -> list[np.ndarray]:
    return [array for array in (weights.current, weights.average_delta) if len(array)]


def _capacity(n_features: int, columns: int) -> int:
    """Return the largest number of values of each array in a part."""
    return max(columns, min(_PART_VALUES, n_features * columns))


def _most_features(capacity: int, itemsize: int) -> int:
    """Return the largest number of features of a part: a group is at least one vector."""
    return capacity * itemsize // VECTOR_BYTES + 1


def _dirty_rows(sparse_rows: SparseRows) -> Iterator[np.ndarray]:
    """Yield the numbers of the dirty sparse rows, for one part at a time."""
    for first in range(0, len(sparse_rows.dirty), _PART_ROWS):
        dirty = first + np.flatnonzero(sparse_rows.dirty[first : first + _PART_ROWS])
        ends = np.cumsum(sparse_rows.extents[dirty, 1])
        begin = 0
        while begin < len(dirty):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _PART_VALUES, "right")))
            yield dirty[begin:end]
            begin = end


@kernel
def collect_dirty(dirty, feature, columns, group_bits, capacity, features, groups):
    """Collect dirty groups from `feature` on, until `capacity` values are reached, and clear their bits.

    Moves the bits from the first column of `dirty` (changed) to the second (known to the log). Returns
    the next feature, the number of features collected, and the number of their values.
    """
    n, size = 0, 0
    while feature < len(dirty) and size + columns <= capacity:
        word = dirty[feature, 0]
        if word != 0:
            features[n], groups[n] = feature, word
            n += 1
            size += values_in(word, columns, group_bits)
            dirty[feature, 1] |= word
            dirty[feature, 0] = 0
        feature += 1
    return feature, n, size


@kernel
def mark_nonzero(array, group_bits, dirty):
    """Mark the groups of columns in which `array` is not zero."""
    for f in range(len(array)):
        for c in range(array.shape[1]):
            if array[f, c] != 0:
                dirty[f, 0] |= np.uint64(1) << np.uint64(c >> group_bits)


@kernel
def values_in(word, columns, group_bits):
    """Return the number of columns in the groups whose bits are set; the last group may be shorter."""
    size, begin = 0, 0
    while begin < columns:
        if word & np.uint64(1):
            size += min(columns - begin, 1 << group_bits)
        word >>= np.uint64(1)
        begin += 1 << group_bits
    return size


@kernel
def count_values(groups, columns, group_bits):
    """Return the number of values in the groups of all features, in one array."""
    total = 0
    for word in groups:
        total += values_in(word, columns, group_bits)
    return total


def _make_copy(name: str, packs: bool):
    def copy(array, features, groups, n, group_bits, packed):
        at, columns = 0, array.shape[1]
        for k in range(n):
            f, word, begin = features[k], groups[k], 0
            while begin < columns:
                end = min(columns, begin + (1 << group_bits))
                if word & np.uint64(1):
                    for c in range(begin, end):
                        if packs:
                            packed[at + c - begin] = array[f, c]
                        else:
                            array[f, c] = packed[at + c - begin]
                    at += end - begin
                word >>= np.uint64(1)
                begin = end

    return kernel(copy, name=name)


# Copy the `groups` of the first `n` of `features` from `array` to `packed`, one after another; and back.
pack = _make_copy("pack", packs=True)
unpack = _make_copy("unpack", packs=False)


@kernel
def gather_entries(sparse_rows, numbers, gathered):
    """Copy the entries of the sparse rows `numbers` to `gathered`, one row after another."""
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
    """Replace the entries of the sparse rows `numbers`; there is room for them."""
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
