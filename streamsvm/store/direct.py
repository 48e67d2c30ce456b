"""Chunks of our own stores, from their files straight into a block's arrays, by a few threads.

Zarr and HDF5 read any store; what they cost beside reading is more than a kernel for few classes takes.
A chunk that we wrote needs three steps, all of them outside Python's lock: read its bytes, compare the
checksum, undo the codec. Bytes are read and not memory-mapped: what was checked must be what is used,
and a mapped file may change, or shrink, after the check.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

import numpy as np

# One waits for the disk while another decodes; more gain little, and take the kernels' cores.
THREADS = min(4, os.cpu_count() or 1)
AHEAD = 8  # chunks announced to the system before they are read, so that the disk is never idle

Decode = Callable[[np.ndarray, np.ndarray], None]  # bytes of a chunk as stored, elements to fill


class Place(NamedTuple):
    """Where the bytes of a chunk are; `size` None is the rest of the file."""

    path: Path
    offset: int = 0
    size: int | None = None


class Readers:
    """The threads that read a container's chunks, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._own = threading.local()

    def fill(
        self,
        out: np.ndarray,
        start: int,
        chunk: int,
        place: Callable[[int], Place],
        decode: Decode,
        most: int,
    ) -> None:
        """Fill `out` with the elements of an array from `start` on.

        Parameters
        ----------
        out : ndarray, contiguous
        start : int
        chunk : int
            Elements a chunk; the last one is stored whole, too.
        place : callable
            Where a chunk is, by its number.
        decode : callable
            Checks and decodes; raises `ValueError` for bytes that are damaged.
        most : int
            Bytes that a chunk can take at most.

        Raises
        ------
        OSError, ValueError
            If a chunk is missing, cut off, too long, or damaged.
        """
        stop = start + len(out)
        first, end = start // chunk, -(-stop // chunk)
        places = [place(number) for number in range(first, end)]

        def read(number: int) -> None:
            if number + AHEAD < end:
                announce(places[number + AHEAD - first])
            payload = self._payload(places[number - first], most)
            low, high = number * chunk, (number + 1) * chunk
            if start <= low and high <= stop:
                decode(payload, out[low - start : high - start])
            else:
                whole = np.empty(chunk, out.dtype)
                decode(payload, whole)
                begin, finish = max(low, start), min(high, stop)
                out[begin - start : finish - start] = whole[begin - low : finish - low]

        for each in places[:AHEAD]:
            announce(each)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="streamsvm-chunk")
        jobs = [self._pool.submit(read, number) for number in range(first, end)]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            for job in jobs:
                job.cancel()
            wait(jobs)
            raise

    def _payload(self, place: Place, most: int) -> np.ndarray:
        """The bytes of a chunk, valid until this thread reads the next one."""
        try:
            descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ValueError("the chunk is missing") from None
        try:
            size = os.fstat(descriptor).st_size - place.offset if place.size is None else place.size
            if not 0 <= size <= most:
                raise ValueError(f"the chunk takes {size} bytes, and {most} at most were written")
            buffer = getattr(self._own, "buffer", None)
            if buffer is None or len(buffer) < size:
                buffer = self._own.buffer = np.empty(size, np.uint8)
            payload, done = buffer[:size], 0
            while done < size:
                got = os.preadv(descriptor, [payload.data[done:]], place.offset + done)
                if not got:
                    raise ValueError("the chunk is cut off")
                done += got
            return payload
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def announce(place: Place) -> None:
    """Let the system begin to read a chunk; that it is missing is for the reader to say."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    try:
        descriptor = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.posix_fadvise(descriptor, place.offset, place.size or 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)
