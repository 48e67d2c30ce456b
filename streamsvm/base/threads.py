"""Thread pools: map in order, map ahead of use, and buffers that threads borrow."""

from __future__ import annotations

import contextlib
import numbers
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

from streamsvm.errors import ClusterError, SettingsError

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_workers(wanted: int | None) -> int:
    """Return `wanted` or, if that is None, the number of processors that this process may use.

    Raises `SettingsError` unless it is a whole number, 1 or more.
    """
    if wanted is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(wanted, bool) or not isinstance(wanted, numbers.Integral) or wanted < 1:
        raise SettingsError(
            f"workers must be 1 or more, and a whole number, not {wanted!r}", setting="workers"
        )
    return int(wanted)


class WorkersLost(ClusterError):
    """Error for results that were lost with the workers of a cluster; a run resumes from its last commit."""


class Threads:
    """Pool of up to `number` threads; kernels release the global interpreter lock, so they run in parallel.

    Parameters
    ----------
    number : int
        With one, the caller's thread does the work.
    """

    def __init__(self, number: int = 1) -> None:
        self.number = number
        self._pool = ThreadPoolExecutor(number, "streamsvm") if number > 1 else None

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results in the order of the items; raise the first error after all threads are idle."""
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


def map_ahead(
    work: Callable[[Item], Result], items: Iterable[Item], number: int
) -> Generator[Result, None, None]:
    """Yield the results of `work` in the order of the items; `number` threads compute them ahead of use.

    One thread at a time takes an item, so that their iterator may read a store. An item or its result has a
    place until the caller asks for the next one, and there are `number` places; the caller may still hold one
    result more. With one thread the caller does all, and nothing runs ahead.

    An error of the iterator or of `work` is raised in place of its item. The threads end with the generator,
    after the item that they have: close it.
    """
    if number == 1:
        yield from map(work, items)
        return
    source = iter(items)
    taking, ended = threading.Lock(), threading.Event()
    room = threading.Semaphore(number)
    results: queue.SimpleQueue[Future[Result] | None] = queue.SimpleQueue()  # in the order of the items

    def work_on_next() -> None:
        with taking:
            if ended.is_set():
                return
            result: Future[Result] = Future()
            try:
                item = next(source)
            except BaseException as error:
                ended.set()
                if isinstance(error, StopIteration):
                    results.put(None)
                else:
                    result.set_exception(error)
                    results.put(result)
                return
            results.put(result)
        try:
            result.set_result(work(item))
        except BaseException as error:
            result.set_exception(error)

    def run() -> None:
        while not ended.is_set():
            room.acquire()
            work_on_next()

    with ThreadPoolExecutor(number, "streamsvm-ahead") as pool:
        try:
            for _ in range(number):
                pool.submit(run)
            while (result := results.get()) is not None:
                yield result.result()
                room.release()
        finally:
            ended.set()
            room.release(number)  # for those that wait


class Spares(Generic[Item]):
    """Pool of buffers, each used by one thread at a time; one is created whenever none is free."""

    def __init__(self, create: Callable[[], Item]) -> None:
        self._create = create
        self._free: queue.SimpleQueue[Item] = queue.SimpleQueue()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Item]:
        """Yield a free buffer."""
        try:
            item = self._free.get_nowait()
        except queue.Empty:
            item = self._create()
        try:
            yield item
        finally:
            self._free.put(item)
