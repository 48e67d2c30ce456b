"""Iterator that runs in a background thread, one item ahead of its consumer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.2  # interval between calls of `stop`


class Stopped(Exception):
    """Raised if the `stop` callback of a `Prefetcher` returns True while an item is awaited."""


class Prefetcher(Generic[T]):
    """Iterator over `items` that computes the next item in a background thread.

    An exception in the thread is raised in place of the next item. While an item is awaited, `stop` is
    polled, because a pipe may stay silent forever; if `stop` returns True, `Stopped` is raised. If `join` is
    False, `close` does not wait for the thread, which may be blocked on a silent pipe until the process ends.
    If `is_single` is True, there must be at most one item; no thread is started, and `stop` is not called.

    Attributes
    ----------
    waited : float
        Seconds spent waiting for items.
    """

    def __init__(
        self,
        items: Iterable[T],
        stop: Callable[[], bool] | None = None,
        *,
        join: bool = True,
        is_single: bool = False,
    ) -> None:
        self.waited = 0.0
        self._items = iter(items)
        self._stop = stop
        self._join = join
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not is_single:
            self._thread = threading.Thread(target=self._produce, name="streamsvm-prefetch", daemon=True)
            self._thread.start()
            self._requests.put(True)

    def _produce(self) -> None:
        while self._requests.get():
            try:
                self._ready.put(("item", next(self._items)))
            except StopIteration:
                self._ready.put(("end", None))
            except BaseException as error:
                self._ready.put(("error", error))
        self._close_items()  # a generator is closed in the thread that ran it

    def _close_items(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        begin = time.perf_counter()
        try:
            if self._thread is None:
                return next(self._items)
            kind, value = self._receive()
        finally:
            self.waited += max(time.perf_counter() - begin, 0.0)
        if kind == "item":
            self._requests.put(True)
            return value
        self._ready.put(("end", None))  # further calls raise StopIteration, also after an error
        if kind == "error":
            raise value
        raise StopIteration

    def _receive(self) -> tuple[str, Any]:
        while True:
            try:
                return self._ready.get(timeout=None if self._stop is None else _POLL_SECONDS)
            except queue.Empty:
                if self._stop is not None and self._stop():
                    raise Stopped from None

    def close(self) -> None:
        """Stop the thread after its current item and, if `join` is True, wait for it."""
        if self._thread is None:
            self._close_items()
            return
        self._requests.put(False)
        if self._join:
            self._thread.join()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
