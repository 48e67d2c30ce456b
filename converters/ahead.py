"""Draw from an iterator in another thread, one item ahead of their use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def run_ahead(items: Iterator[T], threads: int) -> Iterator[T]:
    """The same items, the next one made while the last is in use; with one thread, as they are."""
    if threads == 1:
        yield from items
        return
    with ThreadPoolExecutor(1, thread_name_prefix="streamsvm-ahead") as pool:
        coming = pool.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, items, _END)
            yield item
