"""The log of weights: what a commit appends, and what a resumed run starts from.

Training marks, for each feature, which groups of columns it changed. A commit appends the marked groups
and no others, so its cost follows what changed and not what exists. When most of the weights changed, or
the log has grown to twice the size of what it describes, a new log begins with everything that is not
zero. Small weights in memory are not marked, because marking takes longer than it saves: each commit
begins a new log.

A part has at most `_PART_VALUES` values of each array. It holds features (int64), the changed groups of
each (uint64, one bit a group), and the values of these groups: first those of the weights, then, with an
average, those of the lag. Other parts hold lists of rare features: their numbers and sizes (int64), and
their entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamsvm.errors import RunError
from streamsvm.format import SPARSE_WEIGHTS_MAGIC, WEIGHTS_MAGIC
from streamsvm.kernels.simd import LINE
from streamsvm.kernels.steps import OldDuals, Rare, Weights, kernel, repeats_class
from streamsvm.run.append_log import AppendLog, Part, mapped, offsets, scan
from streamsvm.run.hybrid_weights import RareFeatures

MAGICS: tuple[bytes, ...] = (WEIGHTS_MAGIC, SPARSE_WEIGHTS_MAGIC)
_PART_VALUES = 2**18
_PART_LISTS = 2**14


def append_weights(log: AppendLog, weights: Weights) -> None:
    """Append the groups and lists that are marked as changed, and clear the marks."""
    arrays = _arrays(weights)
    columns = weights.now.shape[1]
    capacity = _capacity(*weights.now.shape)
    n_features = _most_features(capacity, weights.now.itemsize)
    features, groups = np.empty(n_features, np.int64), np.empty(n_features, np.uint64)
    values = [np.empty(capacity, array.dtype) for array in arrays]
    feature = 0
    while True:
        feature, n, size = collect_marked(
            weights.marks, feature, columns, weights.shift, capacity, features, groups
        )
        if n == 0:
            break
        for array, packed in zip(arrays, values, strict=True):
            pack(array, features, groups, n, weights.shift, packed)
        log.append(
            WEIGHTS_MAGIC, (n, size, 0), [features[:n], groups[:n], *(packed[:size] for packed in values)]
        )
    for lists in _changed_lists(weights.rare):
        entries = gather_lists(weights.rare, lists)
        sizes = np.ascontiguousarray(weights.rare.lists[lists, 1])
        log.append(SPARSE_WEIGHTS_MAGIC, (len(lists), len(entries), 0), [lists, sizes, entries])
    weights.rare.changed[:] = 0


def append_buffer_bytes(n_features: int, columns: int, itemsize: int, *, average: bool, lists: bool) -> int:
    """Bytes of memory that `append_weights` takes."""
    capacity, arrays = _capacity(n_features, columns), 1 + average
    values = capacity * (arrays + lists * (1 + arrays)) * itemsize
    return values + 16 * _most_features(capacity, itemsize) + lists * 5 * 8 * _PART_LISTS


def mark_all(weights: Weights) -> None:
    """Mark everything that was ever written as changed, so that the next commit begins a new log."""
    mark_known(weights.marks)
    weights.rare.changed[:] = weights.rare.lists[:, 1] > 0


def with_marks(weights: Weights) -> Weights:
    """Weights without marks, with new ones wherever they are not zero."""
    marks = np.zeros((len(weights.now), 2), np.uint64)
    mark_nonzero(weights.now, weights.shift, marks)
    mark_nonzero(weights.lag, weights.shift, marks)
    return weights._replace(marks=marks)


def changed_bytes(weights: Weights) -> tuple[int, int]:
    """Bytes of values and entries that changed since the last commit, and of all that ever did."""
    columns, rare = weights.now.shape[1], weights.rare
    value = weights.now.itemsize * (2 if len(weights.lag) else 1)
    entry = rare.entries.itemsize * rare.entries.shape[1]
    sizes = rare.lists[:, 1]
    changed, known = (count_values(weights.marks[:, c], columns, weights.shift) for c in (0, 1))
    return (
        changed * value + int(sizes.sum(where=rare.changed.view(bool))) * entry,
        known * value + int(sizes.sum()) * entry,
    )


def restore(path: Path, length: int, weights: Weights, features: RareFeatures | None = None) -> Weights:
    """Write what a log says into weights that are zero, and mark it as known to the log; return them.

    The log must have passed `streamsvm.run.append_log.check`. Raises `RunError` if it has impossible
    numbers: kernels rely on them.
    """
    content = mapped(path, length)
    for part in scan(path, length, MAGICS):
        n, n_values, _ = part.numbers
        restored = None
        if n > 0 and n_values >= 0:
            if part.magic == WEIGHTS_MAGIC:
                restored = _restore_groups(part, content, weights)
            elif features is not None:
                restored = _restore_lists(part, content, weights, features)
        if restored is None:
            raise RunError(f"{path}: the part at byte {part.at} does not belong to this run; fit again")
        weights = restored
    return weights


def _restore_groups(part: Part, content: np.ndarray, weights: Weights) -> Weights | None:
    """The weights with the groups of a part; None if they cannot be of these weights."""
    n, n_values, _ = part.numbers
    arrays, columns = _arrays(weights), weights.now.shape[1]
    *at, end = offsets(part.at, 8 * n, 8 * n, *(n_values * array.itemsize for array in arrays))
    if end != part.at + part.size:
        return None
    numbers, groups = _view(content, at[0], n, np.int64), _view(content, at[1], n, np.uint64)
    if not (
        _are_increasing(numbers, len(weights.now))
        and int(groups.max()) < 1 << -(-columns >> weights.shift)
        and count_values(groups, columns, weights.shift) == n_values
    ):
        return None
    for array, values_at in zip(arrays, at[2:], strict=True):
        packed = _view(content, values_at, n_values, array.dtype)
        unpack(array, numbers, groups, n, weights.shift, packed)
    if len(weights.marks):
        weights.marks[numbers, 1] |= groups
    return weights


def _restore_lists(
    part: Part, content: np.ndarray, weights: Weights, features: RareFeatures
) -> Weights | None:
    """The weights with the lists of a part; None if they cannot be of these weights."""
    n, n_entries, _ = part.numbers
    width, dtype = features.width, weights.now.dtype
    *at, end = offsets(part.at, 8 * n, 8 * n, n_entries * width * dtype.itemsize)
    if end != part.at + part.size:
        return None
    numbers, sizes = (_view(content, begin, n, np.int64) for begin in at[:2])
    entries = _view(content, at[2], n_entries * width, dtype).reshape(n_entries, width)
    classes = entries[:, 0]
    if not (
        _are_increasing(numbers, len(weights.rare.lists))
        and 0 <= int(sizes.min()) <= int(sizes.max()) <= features.n_classes
        and int(sizes.sum()) == n_entries
        and bool(((classes >= 0) & (classes < features.n_classes)).all())
        and _are_sets(classes, sizes, features.n_classes)
    ):
        return None
    weights = features.with_entries(weights, n_entries)
    scatter_lists(weights.rare, numbers, sizes, entries)
    return weights


def _arrays(weights: Weights) -> list[np.ndarray]:
    return [array for array in (weights.now, weights.lag) if len(array)]


def _view(content: np.ndarray, at: int, n: int, dtype: np.typing.DTypeLike) -> np.ndarray:
    return content[at : at + n * np.dtype(dtype).itemsize].view(dtype)


def _capacity(n_features: int, columns: int) -> int:
    """Values of each array in a part, at most."""
    return max(columns, min(_PART_VALUES, n_features * columns))


def _most_features(capacity: int, itemsize: int) -> int:
    """Features of a part, at most: a group is at least one vector."""
    return capacity * itemsize // LINE + 1


def _changed_lists(rare: Rare) -> Iterator[np.ndarray]:
    """Numbers of the lists that changed, for one part at a time."""
    for first in range(0, len(rare.changed), _PART_LISTS):
        changed = first + np.flatnonzero(rare.changed[first : first + _PART_LISTS])
        ends = np.cumsum(rare.lists[changed, 1])
        begin = 0
        while begin < len(changed):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _PART_VALUES, "right")))
            yield changed[begin:end]
            begin = end


def _are_increasing(numbers: np.ndarray, length: int) -> bool:
    """Return True if the numbers are indices below `length`, in strictly increasing order."""
    return int(numbers[0]) >= 0 and int(numbers[-1]) < length and bool((numbers[1:] > numbers[:-1]).all())


def _are_sets(classes: np.ndarray, sizes: np.ndarray, n_classes: int) -> bool:
    """Return True if the classes are whole numbers, and none is twice in a list of these sizes.

    Kernels have room for a list with each class once.
    """
    ids, starts = classes.astype(np.int64), np.cumsum(sizes) - sizes
    lists = OldDuals(ids, ids, starts, starts, sizes)
    return bool((ids == classes).all()) and not repeats_class(lists, np.zeros(n_classes, np.int64))


@kernel
def collect_marked(marks, feature, columns, group_bits, capacity, features, groups):
    """Collect marked groups from `feature` on, until `capacity` values are reached, and clear their marks.

    Moves the marks from the first column of `marks` (changed) to the second (known to the log). Returns
    the next feature, the number of features collected, and the number of their values.
    """
    n, size = 0, 0
    while feature < len(marks) and size + columns <= capacity:
        word = marks[feature, 0]
        if word != 0:
            features[n], groups[n] = feature, word
            n += 1
            size += values_in(word, columns, group_bits)
            marks[feature, 1] |= word
            marks[feature, 0] = 0
        feature += 1
    return feature, n, size


@kernel
def mark_known(marks):
    """Mark all groups known to the log as changed. The rest is not touched: it may be holes of a file."""
    for f in range(len(marks)):
        if marks[f, 1] != 0:
            marks[f, 0] |= marks[f, 1]


@kernel
def mark_nonzero(array, group_bits, marks):
    """Mark the groups of columns in which `array` is not zero."""
    for f in range(len(array)):
        for c in range(array.shape[1]):
            if array[f, c] != 0:
                marks[f, 0] |= np.uint64(1) << np.uint64(c >> group_bits)


@kernel
def values_in(word, columns, group_bits):
    """Number of columns in the groups whose bits are set; the last group may be shorter than the others."""
    size, begin = 0, 0
    while begin < columns:
        if word & np.uint64(1):
            size += min(columns - begin, 1 << group_bits)
        word >>= np.uint64(1)
        begin += 1 << group_bits
    return size


@kernel
def count_values(groups, columns, group_bits):
    """Number of values in the groups of all features, in one array."""
    total = 0
    for word in groups:
        total += values_in(word, columns, group_bits)
    return total


@kernel
def pack(array, features, groups, n, group_bits, packed):
    """Copy the `groups` of the first `n` of `features` from `array` to `packed`, one after another."""
    at, columns = 0, array.shape[1]
    for k in range(n):
        f, word, begin = features[k], groups[k], 0
        while begin < columns:
            end = min(columns, begin + (1 << group_bits))
            if word & np.uint64(1):
                for c in range(begin, end):
                    packed[at + c - begin] = array[f, c]
                at += end - begin
            word >>= np.uint64(1)
            begin = end


@kernel
def unpack(array, features, groups, n, group_bits, packed):
    """The inverse of `pack`."""
    at, columns = 0, array.shape[1]
    for k in range(n):
        f, word, begin = features[k], groups[k], 0
        while begin < columns:
            end = min(columns, begin + (1 << group_bits))
            if word & np.uint64(1):
                for c in range(begin, end):
                    array[f, c] = packed[at + c - begin]
                at += end - begin
            word >>= np.uint64(1)
            begin = end


@kernel
def gather_into(rare, lists, entries):
    """Copy the entries of `lists` to `entries`, one list after another."""
    at = 0
    for f in lists:
        for e in range(rare.lists[f, 0], rare.lists[f, 0] + rare.lists[f, 1]):
            for column in range(entries.shape[1]):
                entries[at, column] = rare.entries[e, column]
            at += 1


def gather_lists(rare: Rare, lists: np.ndarray) -> np.ndarray:
    entries = np.empty((int(rare.lists[lists, 1].sum()), rare.entries.shape[1]), rare.entries.dtype)
    gather_into(rare, lists, entries)
    return entries


@kernel
def scatter_lists(rare, lists, sizes, entries):
    """Replace `lists` by new ones with the given entries."""
    at = 0
    for k in range(len(lists)):
        f, size = lists[k], sizes[k]
        if size > rare.lists[f, 2]:
            rare.lists[f, 0], rare.lists[f, 2] = rare.used[0], size
            rare.used[0] += size
        rare.lists[f, 1] = size
        for e in range(size):
            for column in range(entries.shape[1]):
                rare.entries[rare.lists[f, 0] + e, column] = entries[at + e, column]
        at += size
