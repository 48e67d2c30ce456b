"""Write one array of a store in chunks."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.store.layout import ArraySpec


class ArrayWriter:
    """Writer of one array, which hashes the values and splits them into chunks that threads write."""

    def __init__(
        self, write: Callable[[int, np.ndarray], None], spec: ArraySpec, chunk: int, threads: Threads
    ) -> None:
        assert spec.dtype is not None
        self._write_chunk = write
        self._threads = threads
        self._dtype = spec.dtype.newbyteorder("<")
        self._buffer = np.empty(chunk, self._dtype)
        self._buffered = 0
        self._writing: deque[Future[np.ndarray]] = deque()  # buffers being written
        self._written = 0
        self._sha = hashlib.sha256()

    def append(self, values: np.ndarray) -> None:
        """Append a copy of `values`."""
        values = np.ascontiguousarray(values, self._dtype)
        self._sha.update(values.data)
        while len(values):
            part = values[: len(self._buffer) - self._buffered]
            self._buffer[self._buffered : self._buffered + len(part)] = part
            self._buffered += len(part)
            values = values[len(part) :]
            if self._buffered == len(self._buffer):
                self._flush()

    def _flush(self) -> None:
        """Submit the buffer for writing; if possible, reuse a written one, because fresh memory is slow."""
        self._writing.append(self._threads.submit(self._write, self._written, self._buffer, self._buffered))
        self._written += self._buffered
        self._buffered = 0
        if self._writing[0].done() or len(self._writing) > self._threads.number:
            self._buffer = self._writing.popleft().result()
        else:
            self._buffer = np.empty_like(self._buffer)

    def _write(self, start: int, buffer: np.ndarray, size: int) -> np.ndarray:
        self._write_chunk(start, buffer[:size])
        return buffer

    def finish(self) -> str:
        """Write the remaining values, wait for the threads, and return the SHA-256 of all values."""
        if self._buffered:
            self._flush()
        while self._writing:
            self._writing.popleft().result()
        return self._sha.hexdigest()
