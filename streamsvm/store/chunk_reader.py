"""Read and decode chunks with several threads, without the container's library.

A chunk is a range of successive array elements that are compressed as a unit. Zarr and HDF5 decode one chunk
at a time under a lock. Here, a chunk is read in three steps, which mostly run without the GIL: fetch the
bytes, undo the codecs, and copy the requested elements.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import zlib
from typing import Any, Protocol

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.store.ranges import Ranges, copy_ranges, lengths, split_ranges

# One thread waits for the disk while another decodes. More threads gain little and take cores from training.
THREADS = min(4, os.cpu_count() or 1)
READ_AHEAD = 8  # chunks that the operating system preloads, so that the disk is never idle

_JOB_ELEMENTS = 2**15  # minimum elements per job, because each job has overhead
_MAX_KEPT_BYTES = 2**22  # maximum size of a decoded chunk that is kept for the next read
_NOTHING = np.empty(0)
_MIN_REUSED = 2**20  # minimum size of a reused buffer, in bytes


class Chunks(Protocol):
    """Interface for reading the chunks of one numeric array."""

    dtype: np.dtype
    chunk: int  # elements per chunk; the last chunk is padded to this length

    def fetch(self, number: int, local: threading.local) -> Any:
        """Return the stored bytes of a chunk, or None if it is missing and its elements are therefore `fill`.

        The bytes are valid until the same thread fetches another chunk, because `local` may hold their
        buffer. Raises `OSError` or `ValueError` if the chunk cannot be read.
        """

    def decode(self, payload: Any, out: np.ndarray) -> None:
        """Decode a chunk into `out`; raise an error if the chunk is damaged or has a different length."""

    def expect(self, number: int) -> None:
        """Ask the operating system to load a chunk that will be fetched soon."""

    @property
    def fill(self) -> Any:
        """Value of the elements of missing chunks."""


class ChunkReader:
    def __init__(self) -> None:
        self._threads = Threads(THREADS, "streamsvm-chunk")
        self._local = threading.local()
        self._arrays = UsedArrays()
        # End of the last read of each array, and the decoded chunk in which the read ended.
        self._ends: dict[Chunks, tuple[int, np.ndarray]] = {}

    def read(self, chunks: Chunks, ranges: Ranges) -> np.ndarray:
        """Return the elements in ranges, concatenated in an array that nothing else uses.

        Each chunk is decoded once, in chunk order. If there is only one range and it continues the last
        read, the chunk in which that read ended is not decoded again. Raises `OSError` or `ValueError` if a
        chunk cannot be read.
        """
        out = self._arrays.empty(int(lengths(ranges).sum()), chunks.dtype)
        size = chunks.chunk
        chunk_of, parts = split_ranges(ranges, size)
        ends = np.cumsum(lengths(parts))
        order = np.argsort(chunk_of, kind="stable")  # order on disk
        numbers, bounds = np.unique(chunk_of[order], return_index=True)
        bounds = np.append(bounds, len(order))
        end, last = self._ends.pop(chunks, (-1, _NOTHING))
        continues = len(ranges) == 1 and ranges[0, 0] in (end - 1, end)  # row pointers overlap by one
        kept = (end - 1) // size if continues else -1

        def read_chunk(at: int) -> None:
            number = int(numbers[at])
            if at + READ_AHEAD < len(numbers):
                chunks.expect(int(numbers[at + READ_AHEAD]))
            in_chunk = order[bounds[at] : bounds[at + 1]]
            local, stops = parts[in_chunk] - number * size, ends[in_chunk]
            whole = last
            if number != kept:
                payload = chunks.fetch(number, self._local)
                if payload is not None and len(in_chunk) == 1 and int(lengths(local)[0]) == size:
                    chunks.decode(payload, out[stops[0] - size : stops[0]])
                    return
                whole = np.empty(size, chunks.dtype)
                if payload is None:
                    whole[:] = chunks.fill
                else:
                    chunks.decode(payload, whole)
            places = np.column_stack([stops - lengths(local), stops])
            copy_ranges(out, places, whole, local)
            if len(ranges) == 1 and number == numbers[-1] and whole.nbytes <= _MAX_KEPT_BYTES:
                self._ends[chunks] = int(ranges[0, 1]), whole

        for number in numbers[:READ_AHEAD]:
            chunks.expect(int(number))

        def read_chunks(first: int) -> None:
            for at in range(first, min(first + step, len(numbers))):
                read_chunk(at)

        step = max(1, _JOB_ELEMENTS // size)
        self._threads.map(read_chunks, range(0, len(numbers), step))
        return out

    def close(self) -> None:
        self._threads.close()
        self._arrays = UsedArrays()
        self._ends.clear()


class UsedArrays:
    """Pool that reuses unreferenced buffers, because faulting in fresh pages costs as much as decoding."""

    def __init__(self) -> None:
        self._buffers: list[np.ndarray] = []
        self._lock = threading.Lock()

    def empty(self, n: int, dtype: np.dtype) -> np.ndarray:
        """Return an uninitialised array of `n` elements."""
        size = n * dtype.itemsize
        if size < _MIN_REUSED:
            return np.empty(n, dtype)
        with self._lock:
            in_use = _count_references(self._buffers) > _count_references([np.empty(0)])  # by a view
            buffer = next(
                (each for each, is_used in zip(self._buffers, in_use, strict=True)
                 if not is_used and size <= len(each) <= 2 * size), None
            )  # fmt: skip
            if buffer is None:
                buffer = np.empty(size + size // 8, np.uint8)  # the next read may be a little larger
                kept = [each for each, is_used in zip(self._buffers, in_use, strict=True) if is_used]
                self._buffers = [*kept, buffer]
            return buffer[:size].view(dtype)


def _count_references(arrays: list[np.ndarray]) -> np.ndarray:
    return np.array([sys.getrefcount(array) for array in arrays], np.int64)


@functools.cache
def _zlib() -> Any:
    """Return ISA-L's zlib, which is twice as fast as Python's, or Python's if ISA-L is not installed."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def inflate(payload: Any, out: np.ndarray) -> None:
    """Decompress a zlib stream into `out`; raise ValueError unless the result has the length of `out`."""
    stream = _zlib().decompressobj()
    try:
        content = stream.decompress(payload, out.nbytes + 1)
    except zlib.error as error:
        raise ValueError(f"decompression failure: {error}") from None
    if not stream.eof:
        raise ValueError(f"the chunk does not decompress to {out.nbytes} bytes")
    copy_bytes(content, out)


def copy_bytes(content: Any, out: np.ndarray) -> None:
    """Copy bytes into `out`; raise ValueError unless they have the length of `out`."""
    if len(content) != out.nbytes:
        raise ValueError(f"the chunk has {len(content)} bytes instead of {out.nbytes}")
    out.view(np.uint8)[:] = np.frombuffer(content, np.uint8)


def read_bytes(descriptor: int, out: np.ndarray, offset: int = 0) -> None:
    """Fill a contiguous array from a file, starting at byte `offset`; raise ValueError if it is too short."""
    rest = out.view(np.uint8).reshape(-1).data
    while len(rest):
        n = os.preadv(descriptor, [rest], offset)
        if not n:
            raise ValueError("the file is truncated")
        rest, offset = rest[n:], offset + n
