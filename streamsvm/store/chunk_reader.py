"""Reading and decoding of chunks by several threads, without the container's library.

Zarr and HDF5 decode one chunk at a time under a lock of their own. Here each takes three steps, which mostly
run without Python's lock: fetch its bytes, undo the codecs, copy what is wanted of it.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import numpy as np

# One thread waits for the disk while another decodes; more gain little, and take cores from training.
THREADS = min(4, os.cpu_count() or 1)
READ_AHEAD = 8  # chunks that the system is asked to load before they are read, so that the disk is never idle

_JOB_ELEMENTS = 2**15  # elements that are worth handing to a thread
_MOST_KEPT = 2**22  # bytes of a chunk that is kept, since the next read may begin in it
_NOTHING = np.empty(0)
_MIN_REUSED = 2**20  # bytes of an array whose memory is used again

Ranges = Sequence[tuple[int, int]]


class Chunks(Protocol):
    """Interface of the chunks of one array of numbers.

    Attributes
    ----------
    dtype : dtype
    chunk : int
        Elements per chunk; the last chunk is stored in full length, too.
    """

    dtype: np.dtype
    chunk: int

    def fetch(self, number: int, local: threading.local) -> Any:
        """Return the bytes of a chunk as stored; None if it was never written, and its elements are `fill`.

        They need to stay valid only until the same thread fetches again; `local` may hold its buffer. Raises
        `OSError` or `ValueError`.
        """

    def decode(self, payload: Any, out: np.ndarray) -> None:
        """Decode a chunk into `out`; raises an error if it is damaged, or has another length."""

    def expect(self, number: int) -> None:
        """Let the system load a chunk that will be fetched soon."""

    @property
    def fill(self) -> Any:
        """Value of the elements of chunks that were never written."""


class ChunkReader:
    """Pool of threads that read chunks; they start when they are first needed.

    Parameters
    ----------
    threads : int
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._arrays = UsedArrays()
        # Where the last read of an array ended, and the chunk that it ended in, decoded.
        self._ends: dict[Chunks, tuple[int, np.ndarray]] = {}

    def read(self, chunks: Chunks, ranges: Ranges) -> np.ndarray:
        """Return the elements of some ranges, one after the other, in an array that nobody else has.

        Each chunk is decoded once, in the order of the chunks, whatever the order of the ranges; and not
        again if the last read ended in it, and this one goes on there.

        Raises
        ------
        OSError, ValueError
            If a chunk is missing, truncated, too long or damaged.
        """
        out = self._arrays.empty(sum(stop - start for start, stop in ranges), chunks.dtype)
        size = chunks.chunk
        wanted: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # begin, end; place in `out`
        place = 0
        for start, stop in ranges:
            for number in range(start // size, -(-stop // size)):
                begin, end = max(start - number * size, 0), min(stop - number * size, size)
                wanted[number].append((begin, end, place))
                place += end - begin
        numbers = sorted(wanted)
        end, last = self._ends.pop(chunks, (-1, _NOTHING))
        goes_on = len(ranges) == 1 and ranges[0][0] in (end - 1, end)  # where rows end, the next ones begin
        kept = (end - 1) // size if goes_on else -1

        def read_chunk(at: int) -> None:
            number = numbers[at]
            if at + READ_AHEAD < len(numbers):
                chunks.expect(numbers[at + READ_AHEAD])
            parts = wanted[number]
            whole = last
            if number != kept:
                payload = chunks.fetch(number, self._local)
                if payload is None:
                    for begin, end, place in parts:
                        out[place : place + end - begin] = chunks.fill
                    return
                if len(parts) == 1 and parts[0][:2] == (0, size):
                    chunks.decode(payload, out[parts[0][2] : parts[0][2] + size])
                    return
                whole = np.empty(size, chunks.dtype)
                chunks.decode(payload, whole)
            for begin, end, place in parts:
                out[place : place + end - begin] = whole[begin:end]
            if len(ranges) == 1 and number == numbers[-1] and whole.nbytes <= _MOST_KEPT:
                self._ends[chunks] = ranges[0][1], whole

        for number in numbers[:READ_AHEAD]:
            chunks.expect(number)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="streamsvm-chunk")

        def read_chunks(first: int) -> None:
            for at in range(first, min(first + step, len(numbers))):
                read_chunk(at)

        step = max(1, _JOB_ELEMENTS // size)
        jobs = [self._pool.submit(read_chunks, first) for first in range(0, len(numbers), step)]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            for job in jobs:
                job.cancel()
            wait(jobs)
            raise
        return out

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._arrays = UsedArrays()
        self._ends.clear()


class UsedArrays:
    """Memory of arrays, which serves others when nobody has them: fresh pages take as long as decoding."""

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._lock = threading.Lock()

    def empty(self, n: int, dtype: np.dtype) -> np.ndarray:
        """Return an array of `n` elements, whose values are arbitrary."""
        size = n * dtype.itemsize
        if size < _MIN_REUSED:
            return np.empty(n, dtype)
        with self._lock:
            used = _count_references(self._held) > _count_references([np.empty(0)])  # by others, or views
            found = next(
                (held for held, is_used in zip(self._held, used, strict=True)
                 if not is_used and size <= len(held) <= 2 * size), None
            )  # fmt: skip
            if found is None:
                found = np.empty(size + size // 8, np.uint8)  # the next piece may be a little larger
                kept = [held for held, is_used in zip(self._held, used, strict=True) if is_used]
                self._held = [*kept, found]
            return found[:size].view(dtype)


def _count_references(arrays: list[np.ndarray]) -> np.ndarray:
    return np.array([sys.getrefcount(array) for array in arrays], np.int64)


@functools.cache
def _zlib() -> Any:
    """Return ISA-L's zlib if it is installed, which takes half the time; else Python's."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


def inflate(payload: Any, out: np.ndarray, wbits: int = 15) -> None:
    """Decompress a zlib (`wbits` 15) or gzip (31) stream into `out`; ValueError if its length is another."""
    stream = _zlib().decompressobj(wbits=wbits)
    try:
        content = stream.decompress(payload, out.nbytes + 1)
    except zlib.error as error:
        raise ValueError(f"decompression failure: {error}") from None
    if len(content) != out.nbytes or not stream.eof:
        raise ValueError(f"the chunk does not decompress to {out.nbytes} bytes")
    out.view(np.uint8)[:] = np.frombuffer(content, np.uint8)
