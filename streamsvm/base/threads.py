"""Threads: a pool that lasts as long as its work, and results in order of which some are begun ahead.

`streamsvm.base.prefetch` has the third mechanism, an iterator that runs ahead of its use.
"""

from __future__ import annotations

import contextlib
import numbers
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

from streamsvm.errors import ClusterError, wrong_setting

Item = TypeVar("Item")
Result = TypeVar("Result")


def count_workers(wanted: int | None) -> int:
    """Return `wanted` or, if that is None, the number of processors that this process may use.

    Raises `SettingsError` unless it is a whole number, 1 or more.
    """
    if wanted is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(wanted, bool) or not isinstance(wanted, numbers.Integral) or wanted < 1:
        raise wrong_setting("workers", f"must be 1 or more, and a whole number, not {wanted!r}")
    return int(wanted)


class _OneThreadEach:
    """Limit of the threads of matrix products to one, in the whole process, while anybody wants it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users, self._limits = 0, contextlib.ExitStack()

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limits.enter_context(threadpool_limits(1, "blas"))

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limits.close()


one_thread_each = _OneThreadEach()


class WorkersLost(ClusterError):
    """Error for results that were lost with the workers of a cluster; a run resumes from its last commit."""


class Threads:
    """Pool of up to `number` threads; kernels release the global interpreter lock, so they run in parallel.

    Threads start when they are needed, and end with the pool. An error of the work, or an interruption of the
    caller that waits for it, ends what has begun and drops the rest.

    Parameters
    ----------
    number : int
        With one, the caller's thread does the work, unless `background`.
    name : str
        Of the threads.
    background : bool
        True if a single thread does the work while the caller goes on.
    """

    def __init__(self, number: int = 1, name: str = "streamsvm", *, background: bool = False) -> None:
        self.number = number
        self._pool = ThreadPoolExecutor(number, name) if number > 1 or background else None
        self._is_closed = False

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """Begin ``work(*args)`` in a thread, or do it now if the caller does the work.

        Raises `CancelledError` after `close`, and `RuntimeError` if no thread can be started.
        """
        if self._pool is not None:
            try:
                return self._pool.submit(work, *args)
            except RuntimeError:
                if self._is_closed:
                    raise CancelledError("another thread has closed the pool") from None
                raise
        done: Future[Result] = Future()
        try:
            done.set_result(work(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Return the results in the order of the items; raise the first error after all threads are idle."""
        if self._pool is None:
            return [work(item) for item in items]
        futures: list[Future[Result]] = []
        try:
            for item in items:
                futures.append(self.submit(work, item))
            return [future.result() for future in futures]
        except BaseException:
            _end(futures)
            raise

    def each(self, work: Callable[[Item], Any], items: Iterable[Item]) -> None:
        """Do the work for each item, in the caller's thread too: for work that takes well under 1 ms.

        Raises the first error after all threads are idle.
        """
        listed = list(items)
        left = iter(listed)  # each thread takes the next one

        def share() -> None:
            try:
                for item in left:
                    work(item)
            except BaseException:
                list(left)  # which nobody takes then
                raise

        others: list[Future[None]] = []
        try:
            for _ in range(min(self.number, len(listed)) - 1):
                others.append(self.submit(share))
            share()
        finally:
            begun = _end(others)
        for other in begun:
            other.result()

    def map_ahead(
        self, work: Callable[[Item], Result], items: Iterable[Item], ahead: int | None = None
    ) -> Generator[Result, None, None]:
        """Yield the results in the order of the items, which the caller takes in its thread.

        `ahead` of them, by default as many as threads, have begun before the first is awaited; if the caller
        does the work, nothing runs ahead. The caller of the generator may still hold one result more. An
        error of taking an item is raised in the place of its result.
        """
        ahead = 1 if self._pool is None else ahead or self.number
        begun, source = deque[Future[Result]](), iter(items)
        failed: Exception | None = None
        more = True
        while begun or more:
            while more and len(begun) < ahead:
                try:
                    begun.append(self.submit(work, next(source)))
                except StopIteration:  # not kept: it refers to this frame, and its arrays
                    more = False
                except Exception as error:
                    failed, more = error, False
            if begun:
                yield begun.popleft().result()
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Wait for what threads are doing, and drop what they have not begun."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _end(futures: Iterable[Future[Any]]) -> list[Future[Any]]:
    """Wait for the work that has begun, and return its futures; drop the rest.

    `wait` would never return for what another thread's `Threads.close` has dropped.
    """
    begun = [future for future in futures if not future.cancel()]
    wait(begun)
    return begun
