"""External sort: rows wait on disk until all are read, and come back shuffled (or as they came).

A row's place is its key, a hash of (seed, row number). Rows are spooled to buckets by the top
bits of their key; a bucket small enough is loaded, sorted and handed on, a larger one is first
split by its next bits. The order is therefore that of the keys alone, whatever the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

import numpy as np
from streamsvm_converters import kernels
from streamsvm_converters.libsvm import Batch

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

    A context manager around `append`; `drain` comes after. Takes 12 bytes of disk a value at most
    (16 in float64) and 20 a row, and gives them back bucket by bucket as they are drained.

    Parameters
    ----------
    folder : Path
        Existing; the files in it are the spool's.
    dtype : dtype
        Of the values.
    seed : int or None
        None keeps the order.
    limit : int
        Bytes of a bucket in memory; `drain` takes about three times as much: loaded, joined, sorted.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype,
        seed: int | None,
        limit: int,
        *,
        name: str = "rows",
        used: int = 0,
        bits: int = _BITS,
    ) -> None:
        self._folder, self._name = folder, name
        self._dtype, self._seed, self._limit = dtype, seed, limit
        self._used, self._bits = used, bits  # of the keys: by the levels above, and here
        n_buckets = 1 if seed is None else 1 << bits
        self._files: list[BinaryIO | None] = [None] * n_buckets
        self._rows = np.zeros(n_buckets, dtype=np.int64)
        self._nnz = np.zeros(n_buckets, dtype=np.int64)

    def append(self, batch: Batch) -> None:
        """Add rows; those of one bucket become one segment of its file."""
        if self._seed is None:
            self._write(0, batch)
            return
        shift = np.uint64(64 - self._used - self._bits)
        keys = row_keys(self._seed, batch.numbers)
        buckets = ((keys >> shift) & np.uint64((1 << self._bits) - 1)).astype(np.int64)
        order = np.argsort(buckets, kind="stable")
        sorted_rows = _take(batch, order, 0, np.dtype(np.int64))
        bounds = np.searchsorted(buckets[order], np.arange(len(self._files) + 1))
        for bucket in np.unique(buckets).tolist():
            self._write(bucket, _slice(sorted_rows, int(bounds[bucket]), int(bounds[bucket + 1])))

    def drain(self, shift: int, index_dtype: np.dtype) -> Iterator[Batch]:
        """Hand on all rows in order, indices less `shift`, and delete them here."""
        for bucket in np.flatnonzero(self._rows).tolist():
            path, size = self._path(bucket), self._bytes(int(self._rows[bucket]), int(self._nnz[bucket]))
            if self._seed is not None and size > self._limit and self._rows[bucket] > 1:
                # Parts of about half the limit: few exceed it and are split once more.
                bits = min(_BITS, (2 * size // self._limit).bit_length())
                used = self._used + self._bits
                with Spool(
                    self._folder, self._dtype, self._seed, self._limit, name=path.name, used=used, bits=bits
                ) as finer:
                    for piece in self._pieces(bucket):
                        finer.append(piece)
                path.unlink()
                yield from finer.drain(shift, index_dtype)
                continue
            for piece in self._pieces(bucket):  # just one if they are to be sorted
                numbers = piece.numbers
                order = np.argsort(numbers if self._seed is None else row_keys(self._seed, numbers))
                yield _take(piece, order, shift, index_dtype)
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
        return nnz * (8 + self._dtype.itemsize) + n_rows * 28

    def _write(self, bucket: int, batch: Batch) -> None:
        file = self._files[bucket]
        if file is None:
            file = self._files[bucket] = self._path(bucket).open("wb")
        # The largest index decides: wide ones are rare, and half the bytes are worth the look.
        widest = batch.indices.max(initial=0)
        index_dtype = np.dtype(np.int32 if widest <= np.iinfo(np.int32).max else np.int64)
        n_rows, nnz = len(batch.labels), len(batch.data)
        parts = (
            np.array([n_rows, nnz, index_dtype.itemsize], dtype=np.int64),
            batch.numbers,
            batch.labels,
            np.diff(batch.indptr),
            batch.indices.astype(index_dtype),
            batch.data,
        )
        file.write(b"".join(part.tobytes() for part in parts))
        self._rows[bucket] += n_rows
        self._nnz[bucket] += nnz

    def _segments(self, bucket: int) -> Iterator[Batch]:
        with self._path(bucket).open("rb") as file:
            while header := file.read(24):
                n_rows, nnz, index_size = np.frombuffer(header, dtype=np.int64).tolist()
                numbers = _read(file, np.dtype(np.int64), n_rows)
                labels = _read(file, np.dtype(np.int32), n_rows)
                indptr = np.zeros(n_rows + 1, dtype=np.int64)
                np.cumsum(_read(file, np.dtype(np.int64), n_rows), out=indptr[1:])
                indices = _read(file, np.dtype(f"i{index_size}"), nnz)
                data = _read(file, self._dtype, nnz)
                yield Batch(data, indices, indptr, labels, _NO_NORMS, numbers)

    def _pieces(self, bucket: int) -> Iterator[Batch]:
        """The rows of a bucket as they came, as many at a time as stay within the limit."""
        held: list[Batch] = []
        size = 0
        for segment in self._segments(bucket):
            more = self._bytes(len(segment.labels), len(segment.data))
            if held and size + more > self._limit:
                yield _join(held)
                held, size = [], 0
            held.append(segment)
            size += more
        yield _join(held)


_NO_NORMS = np.empty(0, dtype=np.float64)  # the store computes its own from what it stores


def _read(file: BufferedReader, dtype: np.dtype, count: int) -> np.ndarray:
    array = np.empty(count, dtype)
    if count and file.readinto(array.data.cast("B")) != array.nbytes:
        raise OSError(f"{file.name} has been cut short")
    return array


def _join(batches: list[Batch]) -> Batch:
    lengths = np.concatenate([np.diff(batch.indptr) for batch in batches])
    return Batch(
        np.concatenate([batch.data for batch in batches]),
        np.concatenate([batch.indices for batch in batches], dtype=np.int64),
        np.concatenate(([0], np.cumsum(lengths))),
        np.concatenate([batch.labels for batch in batches]),
        _NO_NORMS,
        np.concatenate([batch.numbers for batch in batches]),
    )


def _take(batch: Batch, order: np.ndarray, shift: int, index_dtype: np.dtype) -> Batch:
    """Rows `order` of a batch, as new arrays."""
    nnz = len(batch.data)
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
