"""Writers of the arrays of a store: whole chunks, in background threads, with their hashes."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from streamsvm.errors import StoreError
from streamsvm.store.container import Container
from streamsvm.store.layout import ArraySpec


class WriteTasks:
    """Thread pool with a bounded number of pending tasks; without threads, tasks run at once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm-write") if threads else None
        self._limit = 2 * threads
        self._pending: deque[Future[None]] = deque()

    def submit(self, write: Callable[..., None], *args: Any) -> None:
        """Run ``write(*args)``, now or in a thread; raise the error of an earlier task."""
        if self._pool is None:
            write(*args)
            return
        self._pending.append(self._pool.submit(write, *args))
        while len(self._pending) > self._limit:
            self._pending.popleft().result()

    def finish(self) -> None:
        """Wait for all tasks."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Wait for the tasks that are running, and drop the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class ArrayWriter:
    """Writer of one array: cuts the values into whole chunks, and hashes them."""

    def __init__(
        self, container: Container, name: str, spec: ArraySpec, chunk: int, tasks: WriteTasks
    ) -> None:
        assert spec.dtype is not None
        self._container = container
        self._tasks = tasks
        self._name = name
        self._length = spec.length
        self._dtype = spec.dtype.newbyteorder("<")
        self._buffer = np.empty(chunk, self._dtype)
        self._buffered = 0
        self._spare: list[np.ndarray] = []  # written, to be filled again: fresh memory costs page faults
        self._written = 0
        self._sha = hashlib.sha256()

    def append(self, values: np.ndarray) -> None:
        """Add values, which are copied."""
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
        buffer = self._buffer
        self._tasks.submit(self._write, self._written, buffer, self._buffered)
        self._written += self._buffered
        self._buffer = self._spare.pop() if self._spare else np.empty_like(buffer)
        self._buffered = 0

    def _write(self, start: int, buffer: np.ndarray, size: int) -> None:
        self._container.write(self._name, start, buffer[:size])
        self._spare.append(buffer)

    def finish(self) -> str:
        """Write the rest; return the SHA-256 of all values."""
        if self._buffered:
            self._flush()
        if self._written != self._length:
            raise StoreError(f"{self._name}: {self._written} elements written, {self._length} announced")
        return self._sha.hexdigest()
