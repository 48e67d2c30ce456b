"""The log of weights that changed: what a commit writes, and what a resumed run starts from.

Training marks, for each feature, which groups of columns it changed; a commit appends those to a log
and no others, so its cost follows what changed and not what exists. When most of the weights changed,
or the log has grown to twice of what it describes, a new log begins with everything that is not zero.
Small weights in memory are not marked, which would take longer than it saves: each commit begins a new log.

A log is a sequence of parts, each with at most `_PART_VALUES` values of each array. A part holds a
header, features (int64), the groups of each (uint64, one bit a group), and the values of these groups
(those of the lag, if there is one, behind those of the weights). Parts of another kind hold lists of
rare features: their numbers and sizes (int64), and their entries.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.errors import RunError
from streamsvm.kernels.duals import OldDuals, repeats_class
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.kernels.sparse_rows import SparseRows
from streamsvm.kernels.weights import Weights
from streamsvm.run.dual_log import chained
from streamsvm.run.hybrid_weights import RareFeatures

_MAGIC, _RARE_MAGIC = b"SSVMWGTS", b"SSVMRARE"
_HEADER = struct.Struct("<8sqqII")  # magic, features, values of each array, CRC of payload, CRC of header
_HEADER_CRC = struct.Struct("<I")
_PART_VALUES = 2**18
_PART_LISTS = 2**14


class _Part(NamedTuple):
    at: int  # offset of the payload
    is_rare: bool
    n_features: int
    n_values: int  # or entries
    crc: int
    header: bytes


class ChangeLog:
    """The log that a run's commits append to.

    Parameters
    ----------
    path : Path
    length : int
        Committed bytes: whatever follows them is cut off. 0 begins a new log.
    digest : str
        Of the parts in them (see `streamsvm.run.dual_log.chained`); it goes on as parts are appended.
    """

    def __init__(self, path: Path, length: int = 0, digest: str = "") -> None:
        self.path = path
        self.length = length
        self.digest = digest

    @staticmethod
    def size(n_features: int, columns: int, itemsize: int, *, average: bool, lists: bool) -> int:
        """Bytes of memory that an append takes."""
        capacity, arrays = _capacity(n_features, columns), 1 + average
        values = capacity * (arrays + lists * (1 + arrays)) * itemsize
        return values + 16 * _most_features(capacity, itemsize) + lists * 5 * 8 * _PART_LISTS

    def append(self, weights: Weights, sparse_rows: SparseRows | None = None) -> None:
        """Write what is marked, durably, and clear the marks."""
        arrays = [array for array in (weights.current, weights.average_delta) if len(array)]
        columns = weights.current.shape[1]
        capacity = _capacity(*weights.current.shape)
        n_features = _most_features(capacity, weights.current.itemsize)
        features, groups = np.empty(n_features, np.int64), np.empty(n_features, np.uint64)
        values = [np.empty(capacity, array.dtype) for array in arrays]
        with durable.open_file(self.path, "r+b" if self.length else "wb") as file:
            file.truncate(self.length)
            file.seek(self.length)
            feature = 0
            while True:
                feature, n, size = take_marks(
                    weights.dirty, feature, columns, weights.group_bits, capacity, features, groups
                )
                if n == 0:
                    break
                pieces = [features[:n].data, groups[:n].data]
                for array, packed in zip(arrays, values, strict=True):
                    pack(array, features, groups, n, weights.group_bits, packed)
                    pieces.append(packed[:size].data)
                self._write(file, _MAGIC, n, size, pieces)
            for lists in _rare_parts(sparse_rows) if sparse_rows is not None else ():
                assert sparse_rows is not None
                entries = gather_lists(sparse_rows, lists)
                sizes = np.ascontiguousarray(sparse_rows.extents[lists, 1])
                pieces = [lists.data, sizes.data, entries.reshape(-1).data]
                self._write(file, _RARE_MAGIC, len(lists), len(entries), pieces)
            file.flush()
            os.fsync(file.fileno())
        if sparse_rows is not None:
            sparse_rows.dirty[:] = 0

    def _write(self, file: BinaryIO, magic: bytes, n: int, size: int, pieces: list[memoryview]) -> None:
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        header = _HEADER.pack(magic, n, size, crc, 0)[: -_HEADER_CRC.size]
        header += _HEADER_CRC.pack(zlib.crc32(header))
        file.write(header)
        for piece in pieces:
            file.write(piece)
        self.digest = chained(self.digest, header)
        self.length += _HEADER.size + sum(piece.nbytes for piece in pieces)


def _capacity(n_features: int, columns: int) -> int:
    """Values of a part in each array, at most."""
    return max(columns, min(_PART_VALUES, n_features * columns))


def _most_features(capacity: int, itemsize: int) -> int:
    """Features of a part, at most: a group is a line at least."""
    return capacity * itemsize // VECTOR_BYTES + 1


def _rare_parts(sparse_rows: SparseRows) -> Iterator[np.ndarray]:
    """The lists that changed, some at a time."""
    for first in range(0, len(sparse_rows.dirty), _PART_LISTS):
        changed = first + np.flatnonzero(sparse_rows.dirty[first : first + _PART_LISTS])
        ends = np.cumsum(sparse_rows.extents[changed, 1])
        begin = 0
        while begin < len(changed):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + _PART_VALUES, "right")))
            yield changed[begin:end]
            begin = end


def with_marks(weights: Weights) -> Weights:
    """Weights of which nothing is marked, with marks wherever they are not zero."""
    marks = np.zeros((len(weights.current), 2), np.uint64)
    mark_nonzero(weights.current, weights.group_bits, marks)
    mark_nonzero(weights.average_delta, weights.group_bits, marks)
    return weights._replace(dirty=marks)


def size_of_changes(weights: Weights, sparse_rows: SparseRows | None = None) -> tuple[int, int]:
    """Bytes of values and entries that changed since the last commit, and of all that ever did."""
    columns = weights.current.shape[1]
    value = weights.current.itemsize * (2 if len(weights.average_delta) else 1)
    changed, known = (count_values(weights.dirty[:, c], columns, weights.group_bits) * value for c in (0, 1))
    if sparse_rows is None:
        return changed, known
    entry = sparse_rows.entries.itemsize * sparse_rows.entries.shape[1]
    sizes = sparse_rows.extents[:, 1]
    changed += int(sizes.sum(where=sparse_rows.dirty.view(bool))) * entry
    return changed, known + int(sizes.sum()) * entry


def restore(path: Path, length: int, weights: Weights, features: RareFeatures | None = None) -> None:
    """Write what a log says into fresh weights, and mark it as known to the log.

    `check_changes` has found it undamaged. Raises `RunError` if it is not one of this run.
    """
    arrays = [array for array in (weights.current, weights.average_delta) if len(array)]
    columns = weights.current.shape[1]
    all_groups = (1 << -(-columns >> weights.group_bits)) - 1
    width = 1 + len(arrays) if features is None else features.width  # of an entry
    for part, payload in _parts(path, length, weights.current.dtype, width - 1):
        n = part.n_features
        numbers = payload[: 8 * n].view(np.int64)
        if part.is_rare:
            sizes = payload[8 * n : 16 * n].view(np.int64)
            entries = payload[16 * n :].view(weights.current.dtype).reshape(part.n_values, width)
            classes = entries[:, 0]
            sound = (
                features is not None
                and _are_places(numbers, len(features.sparse_rows.extents))
                and 0 <= int(sizes.min()) <= int(sizes.max()) <= features.n_classes
                and int(sizes.sum()) == part.n_values
                and bool(((classes >= 0) & (classes < features.n_classes)).all())
                and _are_sets(classes, sizes, features.n_classes)
            )
            if sound:
                assert features is not None
                features.make_room(part.n_values)
                scatter_lists(features.sparse_rows, numbers, sizes, entries)
        else:
            groups = payload[8 * n : 16 * n].view(np.uint64)
            sound = (
                _are_places(numbers, len(weights.current))
                and int(groups.max()) <= all_groups
                and count_values(groups, columns, weights.group_bits) == part.n_values
            )
            if sound:
                at = 16 * n
                for array in arrays:
                    size = part.n_values * array.itemsize
                    packed = payload[at : at + size].view(array.dtype)
                    unpack(array, numbers, groups, n, weights.group_bits, packed)
                    at += size
                if len(weights.dirty):
                    weights.dirty[numbers, 1] |= groups
        if not sound:
            raise RunError(f"{path}: the part at byte {part.at} does not belong to this run; fit again")


def _are_places(numbers: np.ndarray, length: int) -> bool:
    """Whether they are in 0..length-1 and increase; at least one."""
    return (
        len(numbers) > 0
        and int(numbers[0]) >= 0
        and int(numbers[-1]) < length
        and bool((numbers[1:] > numbers[:-1]).all())
    )


def _are_sets(classes: np.ndarray, sizes: np.ndarray, n_classes: int) -> bool:
    """Whether the classes, in lists of these sizes, are whole numbers, and in no list twice.

    Compiled code has room for a list with each class once.
    """
    ids, starts = classes.astype(np.int64), np.cumsum(sizes) - sizes
    lists = OldDuals(ids, ids, starts, starts, sizes)
    return bool((ids == classes).all()) and not repeats_class(lists, np.zeros(n_classes, np.int64))


def check_changes(path: Path, length: int, dtype: np.dtype, n_arrays: int) -> str:
    """The digest of the first `length` bytes of a log; `RunError` unless they are whole and undamaged."""
    if (size := durable.size(path)) < length:
        raise RunError(f"{path} is cut short: {size:,} of {length:,} bytes")
    digest = ""
    for part, payload in _parts(path, length, dtype, n_arrays):
        if zlib.crc32(payload.data) != part.crc:
            raise RunError(f"{path} is damaged: wrong checksum at byte {part.at}")
        digest = chained(digest, part.header)
    return digest


def _parts(path: Path, length: int, dtype: np.dtype, n_arrays: int) -> Iterator[tuple[_Part, np.ndarray]]:
    """The parts in the first `length` bytes of a log, with their payloads as bytes."""
    at = 0
    with durable.named(path), durable.open_file(path) as file:
        while at < length:
            header = file.read(_HEADER.size)
            damaged = len(header) < _HEADER.size
            if not damaged:
                magic, n_features, n_values, crc, header_crc = _HEADER.unpack(header)
                damaged = magic not in (_MAGIC, _RARE_MAGIC) or header_crc != zlib.crc32(
                    header[: -_HEADER_CRC.size]
                )
            if not damaged:
                part = _Part(at + _HEADER.size, magic == _RARE_MAGIC, n_features, n_values, crc, header)
                size = 16 * n_features + n_values * (part.is_rare + n_arrays) * dtype.itemsize
                damaged = n_features < 0 or n_values < 0 or part.at + size > length
            if damaged:
                raise RunError(f"{path} is damaged: no whole part at byte {at}")
            payload = np.frombuffer(file.read(size), np.uint8)
            if len(payload) != size:
                raise RunError(f"{path} is cut short in the part at byte {at}")
            yield part, payload
            at = part.at + size


@kernel
def take_marks(marks, feature, columns, shift, capacity, features, groups):
    """Take the marks from `feature` on, for as many values as there is room for.

    Moves them from the first column of `marks` to the second. Returns the next feature, the number of
    features taken, and of their values.
    """
    n, size = 0, 0
    while feature < len(marks) and size + columns <= capacity:
        word = marks[feature, 0]
        if word != 0:
            features[n], groups[n] = feature, word
            n += 1
            size += values_in(word, columns, shift)
            marks[feature, 1] |= word
            marks[feature, 0] = 0
        feature += 1
    return feature, n, size


@kernel
def mark_known(marks):
    """Mark what ever changed as changed now; the rest is not written, for it may be holes of a file."""
    for f in range(len(marks)):
        if marks[f, 1] != 0:
            marks[f, 0] |= marks[f, 1]


@kernel
def mark_nonzero(array, shift, marks):
    """Mark the groups of columns in which `array` is not zero."""
    for f in range(len(array)):
        for c in range(array.shape[1]):
            if array[f, c] != 0:
                marks[f, 0] |= np.uint64(1) << np.uint64(c >> shift)


@kernel
def values_in(word, columns, shift):
    """Columns in the groups whose bits are set; the last group may be shorter than the others."""
    size, begin = 0, 0
    while begin < columns:
        if word & np.uint64(1):
            size += min(columns - begin, 1 << shift)
        word >>= np.uint64(1)
        begin += 1 << shift
    return size


@kernel
def count_values(groups, columns, shift):
    """Values in the groups of all features, of one array."""
    total = 0
    for word in groups:
        total += values_in(word, columns, shift)
    return total


@kernel
def pack(array, features, groups, n, shift, packed):
    """Copy the marked groups of the first `n` of `features` from `array` to `packed`, closed up."""
    at, columns = 0, array.shape[1]
    for k in range(n):
        f, word, begin = features[k], groups[k], 0
        while begin < columns:
            end = min(columns, begin + (1 << shift))
            if word & np.uint64(1):
                for c in range(begin, end):
                    packed[at + c - begin] = array[f, c]
                at += end - begin
            word >>= np.uint64(1)
            begin = end


@kernel
def unpack(array, features, groups, n, shift, packed):
    """The inverse of `pack`."""
    at, columns = 0, array.shape[1]
    for k in range(n):
        f, word, begin = features[k], groups[k], 0
        while begin < columns:
            end = min(columns, begin + (1 << shift))
            if word & np.uint64(1):
                for c in range(begin, end):
                    array[f, c] = packed[at + c - begin]
                at += end - begin
            word >>= np.uint64(1)
            begin = end


@kernel
def gather_into(sparse_rows, lists, entries):
    """Copy the entries of `lists` to `entries`, one list after another."""
    at = 0
    for f in lists:
        for e in range(sparse_rows.extents[f, 0], sparse_rows.extents[f, 0] + sparse_rows.extents[f, 1]):
            for column in range(entries.shape[1]):
                entries[at, column] = sparse_rows.entries[e, column]
            at += 1


def gather_lists(sparse_rows: SparseRows, lists: np.ndarray) -> np.ndarray:
    entries = np.empty(
        (int(sparse_rows.extents[lists, 1].sum()), sparse_rows.entries.shape[1]), sparse_rows.entries.dtype
    )
    gather_into(sparse_rows, lists, entries)
    return entries


@kernel
def scatter_lists(sparse_rows, lists, sizes, entries):
    """Replace `lists` by new ones with the given entries."""
    at = 0
    for k in range(len(lists)):
        f, size = lists[k], sizes[k]
        if size > sparse_rows.extents[f, 2]:
            sparse_rows.extents[f, 0], sparse_rows.extents[f, 2] = sparse_rows.used[0], size
            sparse_rows.used[0] += size
        sparse_rows.extents[f, 1] = size
        for e in range(size):
            for column in range(entries.shape[1]):
                sparse_rows.entries[sparse_rows.extents[f, 0] + e, column] = entries[at + e, column]
        at += size
