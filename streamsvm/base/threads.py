"""Pool of threads that returns results in order and can compute them before they are requested."""

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


def count_workers(workers: int | None) -> int:
    """Return `workers` or, if it is None, the number of processors available to this process.

    Raises `SettingsError` unless `workers` is a positive integer or None.
    """
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(workers, bool) or not isinstance(workers, numbers.Integral) or workers < 1:
        raise wrong_setting("workers", f"must be a whole number of at least 1, not {workers!r}")
    return int(workers)


class _OneThreadEach:
    """Context manager that limits BLAS to one thread, process-wide, while at least one context is active."""

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
    """Raised if cluster workers are lost with their results; the run resumes from its last commit."""


class Threads:
    """Pool of up to `number` threads, which run in parallel because kernels release the GIL.

    If `number` is 1, work runs in the caller's thread, unless `background` is True. Threads start
    on demand and end with the pool. After an error or an interrupt, calls in progress are completed and
    pending calls are cancelled. `name` is the prefix of the thread names.
    """

    def __init__(self, number: int = 1, name: str = "streamsvm", *, background: bool = False) -> None:
        self.number = number
        self._pool = ThreadPoolExecutor(number, name) if number > 1 or background else None
        self._is_closed = False

    def submit(self, work: Callable[..., Result], *args: Any) -> Future[Result]:
        """Run ``work(*args)`` in a thread, or immediately if the pool has no threads.

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
        """Return ``work(item)`` for each item, in order; raise the first error once all threads are idle."""
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
        """Call `work` for each item, in the threads of the pool and in the caller's thread.

        Use this instead of `map` if a call takes well under 1 ms. Raises errors once all threads are idle.
        """
        listed = list(items)
        remaining = iter(listed)  # shared by all threads

        def work_on_items() -> None:
            try:
                for item in remaining:
                    work(item)
            except BaseException:
                list(remaining)  # cancels the remaining items
                raise

        helpers: list[Future[None]] = []
        try:
            for _ in range(min(self.number, len(listed)) - 1):
                helpers.append(self.submit(work_on_items))
            work_on_items()
        finally:
            started = _end(helpers)
        for helper in started:
            helper.result()

    def map_ahead(
        self, work: Callable[[Item], Result], items: Iterable[Item], ahead: int | None = None
    ) -> Generator[Result, None, None]:
        """Yield the results in the order of the items, which are drawn in the caller's thread.

        Up to `ahead` calls (by default, one per thread) are submitted before the first result is awaited. If
        the pool has no threads, each call runs when its result is requested. A consumer that keeps one result
        while it requests the next needs memory for ``ahead + 1`` results. An error in the item iterator is
        raised in place of the item's result.
        """
        ahead = 1 if self._pool is None else ahead or self.number
        pending, source = deque[Future[Result]](), iter(items)
        item_error: Exception | None = None
        more = True
        while pending or more:
            while more and len(pending) < ahead:
                try:
                    pending.append(self.submit(work, next(source)))
                except StopIteration:  # not stored: its traceback would keep arrays alive
                    more = False
                except Exception as error:
                    item_error, more = error, False
            if pending:
                yield pending.popleft().result()
        if item_error is not None:
            raise item_error

    def close(self) -> None:
        """Wait for calls in progress, and cancel pending calls."""
        self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _end(futures: Iterable[Future[Any]]) -> list[Future[Any]]:
    """Cancel calls that have not started, wait for the calls that have, and return their futures.

    Cancelled futures are not awaited, because `wait` hangs on futures that `Threads.close` cancelled.
    """
    started = [future for future in futures if not future.cancel()]
    wait(started)
    return started
