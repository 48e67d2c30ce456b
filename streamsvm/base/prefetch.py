"""Run an iterator in a thread of its own, one item ahead of its use."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.2  # between two questions whether to stop, while an item is awaited


class Stopped(Exception):
    """Signal that the `stop` of a `Prefetcher` returned True while it waited for an item."""


class Prefetcher(Generic[T]):
    """Iterator over `items` that are produced in a thread, one ahead of their use.

    A single item needs no thread: nothing happens while it is awaited, and nothing comes after it.

    Parameters
    ----------
    items : iterable
        Its iterator runs in the thread; an exception there is raised where the item was expected.
    stop : callable, optional
        Asked while an item is awaited: a pipe may stay silent for ever. If it answers true, `Stopped` is
        raised.
    join : bool
        True if `close` waits for the thread. If False, a thread that waits for a silent pipe is left behind
        until the process ends.
    is_single : bool
        True if there is at most one item: then no thread is started, and `stop` is not asked.

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
        self._wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if not is_single:
            self._thread = threading.Thread(target=self._produce, name="streamsvm-prefetch", daemon=True)
            self._thread.start()
            self._wanted.put(True)

    def _produce(self) -> None:
        while self._wanted.get():
            try:
                self._ready.put(("item", next(self._items)))
            except StopIteration:
                self._ready.put(("end", None))
            except BaseException as error:
                self._ready.put(("error", error))
        self._close_items()  # in the thread that ran them

    def _close_items(self) -> None:
        close = getattr(self._items, "close", None)
        if close is not None:  # of a generator
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
            self._wanted.put(True)
            return value
        self._ready.put(("end", None))  # after an error, too, the next call finds the end
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
        """End the thread after the item that it is producing."""
        if self._thread is None:
            self._close_items()
            return
        self._wanted.put(False)
        if self._join:
            self._thread.join()

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
