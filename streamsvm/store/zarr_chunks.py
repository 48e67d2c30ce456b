"""Chunks of our own Zarr stores, from their files straight into a block's arrays, by a few threads.

Zarr reads any store, and takes as much of the processor for its own work as for the chunks. One that we
wrote needs three steps, most of them outside Python's lock: read its file, compare the checksum, undo the
codec. (The same for HDF5 gained nothing: docs/store.md.) Bytes are read and not memory-mapped: what was
checked must be what is used, and a mapped file may change, or shrink, after the check.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np

from streamsvm.durable import open_descriptor
from streamsvm.store.page_cache import announce, forget

# One waits for the disk while another decodes; more gain little, and take the kernels' cores.
THREADS = min(4, os.cpu_count() or 1)
CHECKSUM = 4  # bytes of crc32c, at the end of a chunk
AHEAD = 8  # chunks announced to the system before they are read, so that the disk is never idle

Decode = Callable[[np.ndarray, np.ndarray], None]  # bytes of a chunk as stored, elements to fill


class Readers:
    """The threads that read a store's chunks, started when they are first needed."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._own = threading.local()

    def fill(
        self,
        out: np.ndarray,
        start: int,
        chunk: int,
        folder: Path,
        decode: Decode,
        most: int,
        once: bool,
        checksums: np.ndarray | None = None,
    ) -> None:
        """Fill `out` with the elements of an array from `start` on.

        Parameters
        ----------
        out : ndarray, contiguous
        start : int
        chunk : int
            Elements a chunk; the last one is stored whole, too.
        folder : Path
            Has a file for each chunk, named by its number.
        decode : callable
            Checks and decodes; raises `ValueError` for bytes that are damaged.
        most : int
            Bytes that a chunk can take at most.
        once : bool
            Whether the system shall not keep what was read.
        checksums : ndarray of uint32, optional
            What each chunk ends with: its crc32c, as it was written. A chunk with another one is whole, but
            of another place or store.

        Raises
        ------
        OSError, ValueError
            If a chunk is missing, cut off, too long, or damaged.
        """
        stop = start + len(out)
        first, end = start // chunk, -(-stop // chunk)

        def read(number: int) -> None:
            if number + AHEAD < end:
                announce(folder / str(number + AHEAD))
            payload = self._payload(folder / str(number), most, once)
            if checksums is not None and payload[-CHECKSUM:].tobytes() != checksums[number].tobytes():
                raise ValueError("the chunk is damaged, or not the one that was written here")
            low, high = number * chunk, (number + 1) * chunk
            if start <= low and high <= stop:
                decode(payload, out[low - start : high - start])
            else:
                whole = np.empty(chunk, out.dtype)
                decode(payload, whole)
                begin, finish = max(low, start), min(high, stop)
                out[begin - start : finish - start] = whole[begin - low : finish - low]

        for number in range(first, min(first + AHEAD, end)):
            announce(folder / str(number))
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

    def _payload(self, file: Path, most: int, once: bool) -> np.ndarray:
        """The bytes of a chunk, valid until this thread reads the next one."""
        try:
            descriptor = open_descriptor(file, os.O_RDONLY, follow=True)
        except FileNotFoundError:
            raise ValueError("the chunk is missing") from None
        try:
            size = os.fstat(descriptor).st_size
            if size > most:
                raise ValueError(f"the chunk takes {size} bytes, and {most} at most were written")
            buffer = getattr(self._own, "buffer", None)
            if buffer is None or len(buffer) < size:
                buffer = self._own.buffer = np.empty(size, np.uint8)
            payload, done = buffer[:size], 0
            while done < size:
                got = os.preadv(descriptor, [payload.data[done:]], done)
                if not got:
                    raise ValueError("the chunk is cut off")
                done += got
            if once:
                forget(descriptor)
            return payload
        finally:
            os.close(descriptor)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
