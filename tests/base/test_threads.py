"""Threads that share work."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import CancelledError

import pytest

from streamsvm.base.threads import Threads
from streamsvm.errors import InputError


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(number: int) -> None:
    with Threads(number) as threads:
        assert threads.map(lambda item: item**2, range(20)) == [item**2 for item in range(20)]


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_error_is_raised_when_nobody_works_any_more(number: int) -> None:
    done = []

    def work(item: int) -> None:
        if item in (1, 3):
            raise ValueError(item)
        done.append(item)

    with Threads(number) as threads, pytest.raises(ValueError, match="1"):
        threads.map(work, range(5))
    found = list(done)
    assert 0 in found
    assert done == found


def test_work_that_has_not_begun_is_dropped_when_the_pool_closes() -> None:
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        assert may_end.wait(timeout=60)

    with Threads(1, background=True) as threads:
        first, second = threads.submit(work), threads.submit(work)
        assert began.wait(timeout=60)
        closing = threading.Thread(target=threads.close)
        closing.start()
        while not second.cancelled():
            assert not first.done()
        may_end.set()
        closing.join()
    assert first.done()


@pytest.mark.parametrize("call", [Threads.map, Threads.each])
def test_who_waits_for_work_that_another_thread_drops_goes_on(call: Callable[..., object]) -> None:
    submitted, dropped, may_end = threading.Event(), threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield from range(9)
        if call is Threads.map:
            submitted.set()

    def wait_for_results() -> None:
        with contextlib.suppress(CancelledError):
            call(threads, lambda item: submitted.set(), items())

    threads = Threads(2)
    for _ in range(2):
        threads.submit(may_end.wait, 60)
    waiting = threading.Thread(target=wait_for_results, daemon=True)
    waiting.start()
    assert submitted.wait(timeout=60)
    last = threads.submit(int)
    last.add_done_callback(lambda future: dropped.set())
    closing = threading.Thread(target=threads.close, daemon=True)
    closing.start()
    assert dropped.wait(timeout=60)
    may_end.set()
    for thread in (waiting, closing):
        thread.join(timeout=60)
        assert not thread.is_alive()


def test_what_has_begun_ends_before_an_error_of_the_items_is_raised() -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work(item: int) -> None:
        begun.set()
        assert may_end.wait(timeout=60)
        ended.set()

    def items() -> Iterator[int]:
        yield 1
        assert begun.wait(timeout=60)
        threading.Timer(0.05, may_end.set).start()
        raise InputError("no more")

    with Threads(2) as threads:
        with pytest.raises(InputError):
            threads.map(work, items())
        assert ended.is_set()


def map_ahead(work, items, number: int) -> Generator:
    with Threads(number) as threads:
        yield from threads.map_ahead(work, items)


@pytest.mark.parametrize("number", [1, 2, 3, 7])
def test_what_is_made_ahead_is_in_the_order_of_the_items_and_the_caller_takes_them(number: int) -> None:
    def items() -> Iterator[int]:
        for item in range(200):
            assert threading.current_thread() is threading.main_thread()
            yield item

    before = set(threading.enumerate())
    assert list(map_ahead(lambda item: item**2, items(), number)) == [item**2 for item in range(200)]
    assert list(map_ahead(lambda item: item**2, [], number)) == []
    assert set(threading.enumerate()) <= before


class Item:
    pass


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_items_are_held_at_a_time(number: int) -> None:
    alive: weakref.WeakSet[Item] = weakref.WeakSet()
    most = 0

    def new() -> Item:
        nonlocal most
        item = Item()
        alive.add(item)
        most = max(most, len(alive))
        return item

    for _ in map_ahead(lambda item: item, (new() for _ in range(200)), number):
        pass
    assert 2 <= most <= number + 1


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("where", ["work", "items"])
def test_an_error_comes_in_the_place_of_its_item(number: int, where: str) -> None:
    failed = threading.Event()

    def items() -> Iterator[int]:
        yield from range(5)
        if where == "items":
            failed.set()
            raise ValueError("item 5")
        yield from range(5, 50)

    def work(item: int) -> int:
        if item == 6:
            failed.set()
            raise ValueError("item 6")
        if where == "work" and item == 5:  # the later error comes first, and the earlier one is raised
            assert number == 1 or failed.wait(timeout=60)
            raise ValueError("item 5")
        return item

    before = set(threading.enumerate())
    results = map_ahead(work, items(), number)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="item 5"):
        next(results)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("number", [1, 2, 3])
def test_threads_end_when_the_caller_stops_early(number: int) -> None:
    before, taken = set(threading.enumerate()), []

    def items() -> Iterator[int]:
        for item in range(10**6):
            taken.append(item)
            yield item

    with contextlib.closing(map_ahead(str, items(), number)) as results:
        assert [next(results) for _ in range(11)] == [str(item) for item in range(11)]
    assert set(threading.enumerate()) <= before
    assert len(taken) <= 10 + number


@pytest.mark.parametrize("number", [1, 2])
def test_an_interruption_while_the_caller_waits_ends_the_threads(number: int) -> None:
    before = set(threading.enumerate())

    def items() -> Iterator[int]:
        for item in range(10**7):
            if item == 100:
                os.kill(os.getpid(), signal.SIGINT)
            yield item

    results = map_ahead(str, items(), number)
    with pytest.raises(KeyboardInterrupt):
        list(results)
    results.close()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("number", [1, 2, 5])
def test_threads_and_the_caller_do_each_item_once(number: int) -> None:
    done: list[int] = []
    with Threads(number) as threads:
        threads.each(done.append, range(50))
        assert sorted(done) == list(range(50))
        with pytest.raises(ZeroDivisionError):
            threads.each(lambda item: 1 // (item - 7), range(20))
        threads.each(done.append, [50])  # the threads go on
    assert done[-1] == 50
