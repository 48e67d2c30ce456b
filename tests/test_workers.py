"""Threads that share work."""

from __future__ import annotations

import threading

import pytest

from streamsvm.workers import Spares, Threads


@pytest.mark.parametrize("number", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(number: int) -> None:
    with Threads(number) as threads:
        assert threads.map(lambda item: item**2, range(20)) == [item**2 for item in range(20)]


def test_several_threads_do_work_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=60)
    with Threads(2) as threads:
        assert sorted(threads.map(lambda item: both.wait(), range(2))) == [0, 1]


@pytest.mark.parametrize("number", [1, 2])
def test_the_first_error_is_raised_when_nobody_works_any_more(number: int) -> None:
    done = []

    def work(item: int) -> None:
        if item in (1, 3):
            raise ValueError(item)
        done.append(item)

    with Threads(number) as threads, pytest.raises(ValueError, match="1"):
        threads.map(work, range(5))
    assert set(done) >= {0}
    if number > 1:
        assert sorted(done) == [0, 2, 4]


def test_what_is_lent_is_used_by_one_at_a_time() -> None:
    made = []
    spares = Spares(lambda: made.append(None) or len(made))
    with spares.lent() as first, spares.lent() as second:
        assert first != second
    with spares.lent() as third:
        assert third in (first, second)
    assert len(made) == 2
