"""External shuffle: write rows to disk, and read them back in random or original order.

Rows are distributed over buckets by the leading bits of their sort keys. Each bucket is then loaded, sorted
and yielded. A bucket that exceeds the memory limit is first split by the next bits of the keys. If there
is only one bucket, its rows stay in memory until they exceed the limit.
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

_MAX_LEVEL_BITS = 6  # at most 64 buckets per level, so that each write stays large


class ExternalShuffle:
    """Sort rows on disk by the keys that `waiting_rows` defines.

    Call `append` inside the context manager, and `drain` after it. All rows must be CSR, or all must be
    dense. There are at most 64 buckets, and fewer if `expected`, the total size of the rows in bytes, is
    known and small. The keys of all rows must have the same first `used_bits` bits.
    """

    def __init__(
        self, waiting: WaitingRows, *, expected: int | None = None, name: str = "rows", used_bits: int = 0
    ) -> None:
        self._waiting, self._used_bits = waiting, used_bits
        needed_bits = _MAX_LEVEL_BITS if expected is None else (expected // waiting.limit).bit_length()
        self._bits = 0 if waiting.seed is None else min(_MAX_LEVEL_BITS, needed_bits)
        self._files: list[BinaryIO | None] = [None] * (1 << self._bits)
        self._buffers = ValueBuffers()
        self._in_memory: list[Rows] | None = [] if self._bits == 0 else None
        self._buckets = [Bucket(waiting.folder / f"{name}-{n:02x}") for n in range(1 << self._bits)]

    def append(self, rows: Rows, numbers: np.ndarray) -> None:
        """Add rows. Their row `numbers` must be distinct across all calls."""
        rows = rows._replace(norm2=NO_NORMS, numbers=numbers)
        if self._bits == 0:
            self._buckets[0].count(rows)
            if self._in_memory is None:
                self._write(0, rows)
                return
            self._in_memory.append(rows)
            if self._waiting.bytes_of(self._buckets[0]) > self._waiting.limit:
                for batch in self._in_memory:
                    self._write(0, batch)
                self._in_memory = None
            return
        shift = np.uint64(64 - self._used_bits - self._bits)
        buckets = (self._waiting.keys(rows) >> shift) & np.uint64((1 << self._bits) - 1)
        order = np.argsort(buckets, kind="stable")
        index_dtype = np.dtype(np.int32) if rows.indices is None else rows.indices.dtype
        rows = take(rows, order, 0, index_dtype, self._buffers)
        used_buckets, starts = np.unique(buckets[order], return_index=True)
        for bucket, start, stop in zip(used_buckets.tolist(), starts, [*starts[1:], len(order)], strict=True):
            part = row_span(rows, int(start), int(stop))
            self._buckets[bucket].count(part)
            self._write(bucket, part)

    @property
    def n_labels(self) -> int:
        """Total number of labels in the label lists of all rows."""
        return sum(bucket.n_labels for bucket in self._buckets)

    def drain(self, base: int, index_dtype: np.dtype) -> Iterator[Rows]:
        """Yield all rows in order, without norms, and delete their files.

        `base` is subtracted from all indices, which get the dtype `index_dtype`. The arrays of a batch are
        overwritten two batches later.
        """
        waiting, buffers = self._waiting, itertools.cycle([ValueBuffers(), ValueBuffers()])
        if self._in_memory is not None:
            if self._in_memory:
                yield from waiting.sorted([joined(self._in_memory)], base, index_dtype, buffers)
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
