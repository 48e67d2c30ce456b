"""Parts of a Zarr store, written by several processes: whole chunks here, and what is between them elsewhere.

The rows of a part, and so the elements of each array, are known in advance. A chunk that the part shares with
its neighbours is not written: its elements go back to the one that made the store, with the checksums of the
chunks that were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import SpanStatistics, Statistics
from streamsvm.store import layout
from streamsvm.store.open import open_container
from streamsvm.store.rows_writer import RowsWriter, Sizes, Totals

if TYPE_CHECKING:
    from streamsvm.store.zarr_chunks import ChunkWriter

_READ = 2**22  # elements that are read at a time


class PartSettings(NamedTuple):
    """What a process needs to know of a store to write a part of it.

    Attributes
    ----------
    path : Path
    n_features, n_classes : int
    dtype : dtype
        Of the values.
    columns : tuple of str
        Which of `layout.COLUMNS` the store has.
    arrays : mapping of str to tuple
        What each array of rows is, and the elements of its chunks.
    codec : str
    """

    path: Path
    n_features: int
    n_classes: int
    dtype: np.dtype
    columns: tuple[str, ...]
    arrays: Mapping[str, tuple[layout.ArraySpec, int]]
    codec: str


class ArrayPart(NamedTuple):
    """Consecutive elements of an array: those of whole chunks are written, `head` and `tail` are not.

    Attributes
    ----------
    head, tail : ndarray
        The elements before the first and after the last whole chunk.
    checksums : ndarray of uint32
        Of the whole chunks, in their order.
    """

    head: np.ndarray
    checksums: np.ndarray
    tail: np.ndarray


class WrittenPart(NamedTuple):
    """Consecutive rows of a store, and what of their arrays is left to write.

    Attributes
    ----------
    before, after : Sizes
        Of the rows of the store before the part, and up to its end.
    totals : Totals
    arrays : mapping of str to ArrayPart
    """

    before: Sizes
    after: Sizes
    totals: Totals
    arrays: Mapping[str, ArrayPart]


class _PartArray:
    """Writes the whole chunks of consecutive elements from `start` on."""

    def __init__(self, writer: ChunkWriter, start: int, chunk: int, dtype: np.dtype) -> None:
        self._writer, self._chunk = writer, chunk
        self._left = -start % chunk  # elements that the head has room for
        self._head = np.empty(0, dtype)
        self._first = self._at = start + self._left  # of the chunk that is being filled
        self._buffer = np.empty(chunk, dtype)
        self._buffered = 0

    def append(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._buffer.dtype)
        if self._left:
            self._head = np.concatenate([self._head, values[: self._left]])
            taken = min(self._left, len(values))
            self._left -= taken
            values = values[taken:]
        while len(values):
            part = values[: self._chunk - self._buffered]
            self._buffer[self._buffered : self._buffered + len(part)] = part
            self._buffered += len(part)
            values = values[len(part) :]
            if self._buffered == self._chunk:
                self._writer.write(self._at, self._buffer)
                self._at += self._chunk
                self._buffered = 0

    def result(self) -> ArrayPart:
        first, end = self._first // self._chunk, self._at // self._chunk
        return ArrayPart(
            self._head, self._writer.checksums[first:end].copy(), self._buffer[: self._buffered].copy()
        )


def write_part(
    settings: PartSettings, before: Sizes, batches: Iterable[tuple[Rows, np.ndarray]], aside: Path
) -> WrittenPart:
    """Write the rows of batches, with their names, after `before` others; whole chunks are durable then.

    They are made in the folder `aside`, of the same file system. So a part may be written twice at a time.

    Raises
    ------
    StoreError
        If a row is not what the format allows.
    OSError
        If a chunk cannot be written.
    """
    from streamsvm.store.zarr_backend import chunk_writer

    first_of = {layout.DATA: before.nnz, layout.INDICES: before.nnz}
    first_of |= {layout.LABELS_CODES: before.n_labels, layout.LABELS_ONES: before.n_labels}
    first_of |= dict.fromkeys((layout.INDPTR, layout.LABELS_INDPTR), before.n_rows + 1)
    arrays = {}
    for name, (spec, chunk) in settings.arrays.items():
        assert spec.dtype is not None
        writer = chunk_writer(settings.path, name, spec, chunk, settings.codec, aside=aside)
        first = first_of.get(name, before.n_rows)
        arrays[name] = _PartArray(writer, first, chunk, spec.dtype.newbyteorder("<"))
    rows_writer = RowsWriter(
        settings.path, settings.n_features, settings.n_classes, settings.dtype, settings.columns, arrays,
        before,
    )  # fmt: skip
    for rows, names in batches:
        rows_writer.append(rows, names)
    parts = {name: array.result() for name, array in arrays.items()}
    return WrittenPart(before, rows_writer.sizes, rows_writer.totals, parts)


def array_digest(path: Path, name: str) -> str:
    """The SHA-256 of all values of an array of a store that is not complete."""
    sha = hashlib.sha256()
    container = open_container(path, "zarr")
    try:
        array = container.array(name)
        step = max(array.chunk, _READ // array.chunk * array.chunk)
        for start in range(0, array.length, step):
            sha.update(array.read(start, min(start + step, array.length)).data)
    finally:
        container.close()
    return sha.hexdigest()


def span_statistics(path: Path, n_features: int, start: int, stop: int) -> Statistics:
    """The statistics of the rows ``start:stop`` of a store that is not complete."""
    found = SpanStatistics(n_features)
    container = open_container(path, "zarr")
    try:
        indptr = container.array(layout.INDPTR)
        at, end = (int(indptr.read(row, row + 1)[0]) for row in (start, stop))
        data, indices = container.array(layout.DATA), container.array(layout.INDICES)
        for first in range(at, end, _READ):
            values = first, min(first + _READ, end)
            found.add(0, data.read(*values), indices.read(*values))
        found.add(stop - start, np.empty(0, data.dtype), np.empty(0, indices.dtype))
    finally:
        container.close()
    return found.result()
