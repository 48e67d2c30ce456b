"""External sort: rows wait on disk until all are read, and come back shuffled (or as they came).

A row's place is its key, a hash of (seed, row number). Rows are spooled to buckets by the top
bits of their key; a bucket small enough is loaded, sorted and handed on, a larger one is first
split by its next bits. The order is therefore that of the keys alone, whatever the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from streamsvm_converters import kernels
from streamsvm_converters.libsvm import Batch

from streamsvm.store.csr_checks import row_pieces

_TAKEN = 2**19  # values taken from a sorted bucket at a time: what is done to them finds them in the cache
_BITS = 6  # of the key that one level sorts by at most: 64 buckets, so that pieces written stay large

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def row_keys(seed: int, numbers: np.ndarray) -> np.ndarray:
    """Their elements of splitmix64's stream for `seed` (Steele et al. 2014), distinct for distinct rows."""
    start = np.array([seed & _MASK], dtype=np.uint64)
    state = _mix(start) + (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
    return _mix(state)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Spool:
    """Rows on their way through the disk.

    A context manager around `append`; `drain` comes after. Takes 8 bytes of disk a value (12 in
    float64; 4 more where indices are beyond int32) and 20 a row, and gives them back bucket by
    bucket as they are drained.

    Parameters
    ----------
    folder : Path
        Existing; the files in it are the spool's.
    dtype : dtype
        Of the values.
    seed : int or None
        None keeps the order.
    limit : int
        Bytes of a bucket in memory.
    expected : int, optional
        Bytes that all rows may take in memory; decides the number of buckets. By default, as many
        as there can be.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype,
        seed: int | None,
        limit: int,
        *,
        expected: int | None = None,
        name: str = "rows",
        used: int = 0,
    ) -> None:
        self._folder, self._name = folder, name
        self._dtype, self._seed, self._limit = dtype, seed, limit
        self._used = used  # bits of the keys, by the levels above
        wanted = _BITS if expected is None else (expected // limit).bit_length()
        self._bits = 0 if seed is None else min(_BITS, wanted)
        self._files: list[BinaryIO | None] = [None] * (1 << self._bits)
        self._index_size = 4  # 8 once an index was met that needs it
        self._rows = np.zeros(1 << self._bits, dtype=np.int64)
        self._nnz = np.zeros(1 << self._bits, dtype=np.int64)

    def append(self, batch: Batch) -> None:
        """Add rows; those of one bucket become one segment of its file."""
        if self._seed is None or self._bits == 0:
            self._write(0, batch)
            return
        shift = np.uint64(64 - self._used - self._bits)
        keys = row_keys(self._seed, batch.numbers)
        buckets = ((keys >> shift) & np.uint64((1 << self._bits) - 1)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        sorted_rows = _take(batch, order, 0, batch.indices.dtype)
        bounds = np.searchsorted(buckets[order], np.arange(len(self._files) + 1))
        for bucket in np.unique(buckets).tolist():
            self._write(bucket, _slice(sorted_rows, int(bounds[bucket]), int(bounds[bucket + 1])))

    def drain(self, shift: int, index_dtype: np.dtype) -> Iterator[Batch]:
        """Hand on all rows in order, indices less `shift`, and delete them here."""
        for bucket in np.flatnonzero(self._rows).tolist():
            path, size = self._path(bucket), self._bytes(int(self._rows[bucket]), int(self._nnz[bucket]))
            if self._seed is not None and size > self._limit and self._rows[bucket] > 1:
                finer = Spool(
                    self._folder, self._dtype, self._seed, self._limit,
                    expected=2 * size, name=path.name, used=self._used + self._bits,
                )  # fmt: skip
                with finer:
                    for piece in self._pieces(bucket):
                        finer.append(piece)
                path.unlink()
                yield from finer.drain(shift, index_dtype)
                continue
            for piece in self._pieces(bucket):  # just one if they are to be sorted
                numbers = piece.numbers
                order = np.argsort(numbers if self._seed is None else row_keys(self._seed, numbers))
                sizes = np.diff(piece.indptr)[order]
                for start, stop in row_pieces(np.cumsum(sizes) - sizes, len(piece.data), _TAKEN):
                    yield _take(piece, order[start:stop], shift, index_dtype)
            path.unlink()

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file is not None:
                file.close()

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{self._name}-{bucket:02x}"

    def _bytes(self, n_rows: int, nnz: int) -> int:
        """Memory that rows take once loaded."""
        return nnz * (self._index_size + self._dtype.itemsize) + n_rows * 28

    def _write(self, bucket: int, batch: Batch) -> None:
        file = self._files[bucket]
        if file is None:
            file = self._files[bucket] = self._path(bucket).open("wb", buffering=2**16)
        n_rows, nnz = len(batch.labels), len(batch.data)
        head = np.array([n_rows, nnz, batch.indices.itemsize], dtype=np.int64)
        for part in (head, batch.numbers, batch.labels, np.diff(batch.indptr), batch.indices, batch.data):
            file.write(part.data)
        self._index_size = max(self._index_size, batch.indices.itemsize)
        self._rows[bucket] += n_rows
        self._nnz[bucket] += nnz

    def _pieces(self, bucket: int) -> Iterator[Batch]:
        """The rows of a bucket as they came, as many at a time as stay within the limit."""
        with self._path(bucket).open("rb") as file:
            held: list[_Segment] = []
            size = 0
            while head := file.read(24):
                n_rows, nnz, width = np.frombuffer(head, dtype=np.int64).tolist()
                segment = _Segment(file.tell(), n_rows, nnz, np.dtype(f"i{width}"))
                end = segment.at + n_rows * 20 + nnz * (width + self._dtype.itemsize)
                more = self._bytes(n_rows, nnz)
                if held and size + more > self._limit:
                    yield self._load(file, held)
                    held, size = [], 0
                held.append(segment)
                size += more
                file.seek(end)
            yield self._load(file, held)

    def _load(self, file: BinaryIO, segments: list[_Segment]) -> Batch:
        """The rows of some segments, one after another."""
        n_rows = sum(segment.n_rows for segment in segments)
        nnz = sum(segment.nnz for segment in segments)
        data = np.empty(nnz, self._dtype)
        indices = np.empty(nnz, max(segment.indices for segment in segments))
        numbers, labels = np.empty(n_rows, np.int64), np.empty(n_rows, np.int32)
        indptr = np.zeros(n_rows + 1, np.int64)
        row = at = 0
        for segment in segments:
            file.seek(segment.at)
            rows, values = slice(row, row + segment.n_rows), slice(at, at + segment.nnz)
            _fill(file, numbers[rows])
            _fill(file, labels[rows])
            _fill(file, indptr[1:][rows])
            if indices.dtype == segment.indices:
                _fill(file, indices[values])
            else:
                narrow = np.empty(segment.nnz, segment.indices)
                _fill(file, narrow)
                indices[values] = narrow
            _fill(file, data[values])
            row, at = rows.stop, values.stop
        np.cumsum(indptr, out=indptr)
        return Batch(data, indices, indptr, labels, _NO_NORMS, numbers)


class _Segment(NamedTuple):
    """The rows of one `append`, at an offset of a bucket's file."""

    at: int
    n_rows: int
    nnz: int
    indices: np.dtype


_NO_NORMS = np.empty(0, dtype=np.float64)  # the store computes its own from what it stores


def _fill(file: BinaryIO, array: np.ndarray) -> None:
    if len(array) and file.readinto(array.data.cast("B")) != array.nbytes:  # type: ignore[attr-defined]
        raise OSError(f"{file.name} has been cut short")


def _take(batch: Batch, order: np.ndarray, shift: int, index_dtype: np.dtype) -> Batch:
    """Rows `order` of a batch, as new arrays."""
    nnz = int(np.diff(batch.indptr)[order].sum())
    data, indices = np.empty(nnz, batch.data.dtype), np.empty(nnz, index_dtype)
    indptr = np.empty(len(order) + 1, np.int64)
    kernels.gather(batch.data, batch.indices, batch.indptr, order, shift, data, indices, indptr)
    return Batch(data, indices, indptr, batch.labels[order], _NO_NORMS, batch.numbers[order])


def _slice(batch: Batch, start: int, stop: int) -> Batch:
    low, high = int(batch.indptr[start]), int(batch.indptr[stop])
    return Batch(
        batch.data[low:high],
        batch.indices[low:high],
        batch.indptr[start : stop + 1] - low,
        batch.labels[start:stop],
        _NO_NORMS,
        batch.numbers[start:stop],
    )
