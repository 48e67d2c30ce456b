"""The prefetcher: order, how far it runs ahead, errors, waiting and stopping."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streamsvm.base.prefetch import Prefetcher, Stopped


def test_all_items_come_in_order_from_another_thread_one_ahead() -> None:
    taken, threads = [], set()
    ready = threading.Semaphore(0)

    def items() -> Iterator[int]:
        for item in range(5):
            threads.add(threading.get_ident())
            taken.append(item)
            ready.release()
            yield item

    with Prefetcher(items()) as prefetched:
        for item in prefetched:
            for _ in range(1 if item else 2):  # the item in use and the one after it
                if len(taken) < 5:
                    ready.acquire(timeout=60)
            assert taken[: item + 1] == list(range(item + 1))
            assert len(taken) <= item + 2
    assert taken == list(range(5))
    assert threading.get_ident() not in threads


def test_an_error_of_the_items_arrives_where_the_item_was_expected_and_then_they_end() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("bad item")

    with Prefetcher(items()) as prefetched:
        assert next(prefetched) == 1
        with pytest.raises(ValueError, match="bad item"):
            next(prefetched)
        assert list(prefetched) == []


def test_a_silent_source_can_be_stopped() -> None:
    silent = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        silent.wait()

    prefetched = Prefetcher(items(), lambda: True, join=False)
    assert next(prefetched) == 1
    with pytest.raises(Stopped):
        next(prefetched)
    prefetched.close()
    silent.set()


def test_closing_ends_the_thread_and_closes_a_generator_in_it() -> None:
    closed_in = []
    before = set(threading.enumerate())

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed_in.append(threading.get_ident())

    with Prefetcher(items()) as prefetched:
        next(prefetched)
    assert len(closed_in) == 1
    assert closed_in[0] != threading.get_ident()
    assert not set(threading.enumerate()) - before


def test_a_single_item_comes_from_the_thread_that_asks_for_it() -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield threading.get_ident()
        finally:
            closed.append(True)

    before = set(threading.enumerate())
    with Prefetcher(items(), is_single=True) as prefetched:
        assert set(threading.enumerate()) == before
        assert next(prefetched) == threading.get_ident()
        assert not closed
    assert closed
