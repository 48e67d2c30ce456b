"""External shuffle: rows are stored on disk until all are read, and come back in random or original order.

Rows go to buckets by the top bits of their key; a bucket small enough is loaded, sorted and yielded, a larger
one is first split by its next bits. The order is therefore that of the keys alone, whatever the memory. Rows
that all fit into one bucket stay in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from streamsvm_converters.kinds.reader import NO_NORMS
from streamsvm_converters.libsvm.groups import joined
from streamsvm_converters.waiting_rows import Bucket, ValueBuffers, WaitingRows, take

from streamsvm.data.rows import Rows, row_span

# Bits of the key that one level sorts by at most: 64 buckets, so that the pieces written stay large.
_MAX_LEVEL_BITS = 6


class ExternalShuffle:
    """Sorter of rows by their keys, which stores them on disk.

    A context manager around the calls of `append`; `drain` follows. Rows are all CSR or all dense. The files
    take 8 bytes per value (12 in float64; 4 more where indices need int64, and 4 less in dense rows) and 20
    per row, and 8 more for each of weight, group and list of labels, and 4 for each label of a list; each is
    deleted once it is drained.

    Parameters
    ----------
    waiting : WaitingRows
    expected : int, optional
        Bytes of memory that all rows would take, which determines the number of buckets. By default there
        are as many as possible.
    name : str
        Prefix of the file names.
    used_bits : int
        Bits of the keys by which the rows have been split already.
    """

    def __init__(
        self, waiting: WaitingRows, *, expected: int | None = None, name: str = "rows", used_bits: int = 0
    ) -> None:
        self._waiting, self._used_bits = waiting, used_bits
        wanted = _MAX_LEVEL_BITS if expected is None else (expected // waiting.limit).bit_length()
        self._bits = 0 if waiting.seed is None else min(_MAX_LEVEL_BITS, wanted)
        self._files: list[BinaryIO | None] = [None] * (1 << self._bits)
        self._buffers = ValueBuffers()
        self._held: list[Rows] | None = [] if self._bits == 0 else None  # while memory allows
        self._buckets = [Bucket(waiting.folder / f"{name}-{n:02x}") for n in range(1 << self._bits)]

    def append(self, rows: Rows, numbers: np.ndarray) -> None:
        """Add rows with their distinct numbers; those of one bucket become one segment of its file."""
        rows = rows._replace(norm2=NO_NORMS, numbers=numbers)
        if self._bits == 0:
            self._buckets[0].count(rows)
            if self._held is None:
                self._write(0, rows)
                return
            self._held.append(rows)
            if self._waiting.bytes_of(self._buckets[0]) > self._waiting.limit:
                for each in self._held:
                    self._write(0, each)
                self._held = None
            return
        shift = np.uint64(64 - self._used_bits - self._bits)
        buckets = (self._waiting.keys(rows) >> shift) & np.uint64((1 << self._bits) - 1)
        order = np.argsort(buckets, kind="stable")
        index_dtype = np.dtype(np.int32) if rows.indices is None else rows.indices.dtype
        rows = take(rows, order, 0, index_dtype, self._buffers)
        found, starts = np.unique(buckets[order], return_index=True)
        for bucket, start, stop in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
            part = row_span(rows, int(start), int(stop))
            self._buckets[bucket].count(part)
            self._write(bucket, part)

    @property
    def n_labels(self) -> int:
        """Number of labels in all lists of labels together."""
        return sum(bucket.n_labels for bucket in self._buckets)

    def drain(self, base: int, index_dtype: np.dtype) -> Iterator[Rows]:
        """Yield all rows in order, without norms, and delete their files.

        The arrays of a batch are used again for the one after the next.

        Parameters
        ----------
        base : int
            Number to subtract from all indices.
        index_dtype : dtype
            Type of the indices afterwards.
        """
        waiting, buffers = self._waiting, itertools.cycle([ValueBuffers(), ValueBuffers()])
        if self._held is not None:
            if self._held:
                yield from waiting.sorted([joined(self._held)], base, index_dtype, buffers)
            return
        for bucket in self._buckets:
            if bucket.n_rows == 0:
                continue
            if waiting.must_split(bucket):
                finer = self._split(bucket)
                bucket.path.unlink()
                yield from finer.drain(base, index_dtype)
            else:
                yield from waiting.sorted(waiting.read(bucket), base, index_dtype, buffers)
                bucket.path.unlink()

    def _split(self, bucket: Bucket) -> ExternalShuffle:
        """Distribute the rows of a bucket over smaller ones, by further bits of their keys."""
        finer = ExternalShuffle(
            self._waiting, expected=2 * self._waiting.bytes_of(bucket), name=bucket.path.name,
            used_bits=self._used_bits + self._bits,
        )  # fmt: skip
        with finer:
            for rows in self._waiting.read(bucket):
                finer.append(rows, rows.numbers)
        return finer

    def __enter__(self) -> ExternalShuffle:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file is not None:
                file.close()

    def _write(self, number: int, rows: Rows) -> None:
        file = self._files[number]
        if file is None:
            file = self._files[number] = self._buckets[number].path.open("wb", buffering=2**16)
        self._waiting.write(file, rows)
