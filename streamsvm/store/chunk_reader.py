"""Reading and decoding of chunks by several threads, without the container's library.

Zarr and HDF5 decode one chunk at a time under a lock of their own. Here each takes three steps, which mostly
run without Python's lock: fetch its bytes, undo the codecs, copy what is wanted of it.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from streamsvm.base.threads import Threads

# One thread waits for the disk while another decodes; more gain little, and take cores from training.
THREADS = min(4, os.cpu_count() or 1)
READ_AHEAD = 8  # chunks that the system is asked to load before they are read, so that the disk is never idle

_JOB_ELEMENTS = 2**15  # elements that are worth handing to a thread

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
    """Reader of chunks by `threads` threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = Threads(threads, "streamsvm-chunk")
        self._local = threading.local()

    def read(self, chunks: Chunks, ranges: Ranges) -> np.ndarray:
        """Return the elements of some ranges, one after the other, in a new array.

        Each chunk is decoded once, in the order of the chunks, whatever the order of the ranges.

        Raises
        ------
        OSError, ValueError
            If a chunk is missing, truncated, too long or damaged.
        """
        out = np.empty(sum(stop - start for start, stop in ranges), chunks.dtype)
        size = chunks.chunk
        wanted: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)  # begin, end; place in `out`
        place = 0
        for start, stop in ranges:
            for number in range(start // size, -(-stop // size)):
                begin, end = max(start - number * size, 0), min(stop - number * size, size)
                wanted[number].append((begin, end, place))
                place += end - begin
        numbers = sorted(wanted)

        def read_chunk(at: int) -> None:
            number = numbers[at]
            if at + READ_AHEAD < len(numbers):
                chunks.expect(numbers[at + READ_AHEAD])
            payload = chunks.fetch(number, self._local)
            parts = wanted[number]
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

        for number in numbers[:READ_AHEAD]:
            chunks.expect(number)

        def read_chunks(first: int) -> None:
            for at in range(first, min(first + step, len(numbers))):
                read_chunk(at)

        step = max(1, _JOB_ELEMENTS // size)
        self._threads.map(read_chunks, range(0, len(numbers), step))
        return out

    def close(self) -> None:
        self._threads.close()


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
