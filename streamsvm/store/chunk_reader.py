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
from typing import Any, Protocol

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.store.ranges import Ranges, copy_ranges, lengths, split_ranges

# One thread waits for the disk while another decodes; more gain little, and take cores from training.
THREADS = min(4, os.cpu_count() or 1)
READ_AHEAD = 8  # chunks that the system is asked to load before they are read, so that the disk is never idle

_JOB_ELEMENTS = 2**15  # elements that are worth handing to a thread


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
        out = np.empty(int(lengths(ranges).sum()), chunks.dtype)
        size = chunks.chunk
        chunk_of, parts = split_ranges(ranges, size)
        ends = np.cumsum(lengths(parts))
        order = np.argsort(chunk_of, kind="stable")  # as they lie on the disk
        numbers, bounds = np.unique(chunk_of[order], return_index=True)
        bounds = np.append(bounds, len(order))

        def read_chunk(at: int) -> None:
            number = int(numbers[at])
            if at + READ_AHEAD < len(numbers):
                chunks.expect(int(numbers[at + READ_AHEAD]))
            payload = chunks.fetch(number, self._local)
            mine = order[bounds[at] : bounds[at + 1]]
            wanted, stops = parts[mine] - number * size, ends[mine]
            if payload is not None and len(mine) == 1 and int(lengths(wanted)[0]) == size:
                chunks.decode(payload, out[stops[0] - size : stops[0]])
                return
            whole = (
                np.full(size, chunks.fill, chunks.dtype) if payload is None else np.empty(size, chunks.dtype)
            )
            if payload is not None:
                chunks.decode(payload, whole)
            places = np.column_stack([stops - lengths(wanted), stops])
            copy_ranges(out, places, whole, wanted)

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
