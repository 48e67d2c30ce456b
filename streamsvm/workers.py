"""Who does the work of a run that is split: threads of this process, or workers that may be lost."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Self, TypeVar

from streamsvm.errors import ClusterError

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkersLost(ClusterError):
    """Work that was lost with the workers of a cluster: a run goes on from its last commit."""


class Threads:
    """Up to `number` threads. Kernels release the global lock of the interpreter, so they do run together.

    Parameters
    ----------
    number : int
        With one, the caller's thread does the work.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self._pool = ThreadPoolExecutor(number, "streamsvm") if number > 1 else None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results, in the order of the items; the first error is raised when all work has ended."""
        if self._pool is None:
            return [work(item) for item in items]
        futures = [self._pool.submit(work, item) for item in items]
        errors = [future.exception() for future in futures]
        for error in errors:
            if error is not None:
                raise error
        return [future.result() for future in futures]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Spares(Generic[Item]):
    """Working memory that only one thread at a time may use: as much of it as there are threads."""

    def __init__(self, create: Callable[[], Item]) -> None:
        self._create = create
        self._free: queue.SimpleQueue[Item] = queue.SimpleQueue()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Item]:
        """One that is free."""
        try:
            item = self._free.get_nowait()
        except queue.Empty:
            item = self._create()
        try:
            yield item
        finally:
            self._free.put(item)
