"""Rows that several trainings read together: who reads, who waits, and that nobody waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem, make_store

from streamsvm.errors import StoreError
from streamsvm.store import open_store
from streamsvm.store.shared import SharedReads

N = 60
LIMIT = 60  # seconds, after which a test that waits for ever fails


class CountingStore:
    """Counts what is read of a store that is wrapped; opened once for each reader."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.read: list[tuple[int, int]] = []
        store = open_store(path)
        original = type(store).rows_of
        store.close()

        def rows_of(each, ranges):
            self.read.extend(ranges)
            return original(each, ranges)

        monkeypatch.setattr(type(store), "rows_of", rows_of)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CountingStore:
    X, labels = make_problem(N, 8, 3)
    return CountingStore(make_store(tmp_path / "s.h5", X, labels), monkeypatch)


Step = tuple[int, int, Sequence[int]]  # a pass, where it begins, and the first rows of what is read


def go(store: CountingStore, plans: Sequence[Sequence[Step]], size: int = 10) -> list[list[np.ndarray]]:
    """The values that readers with these plans get, in threads."""
    shared = SharedReads(len(plans))

    def read(number: int) -> list[np.ndarray]:
        reader = shared.readers[number]
        try:
            with reader.of(open_store(store.path)) as opened:
                found = []
                for pass_number, begin, firsts in plans[number]:
                    reader.begin_pass(pass_number, begin)
                    found += [opened.rows(first, first + size).data for first in firsts]
                return found
        finally:
            reader.end()

    with ThreadPoolExecutor(len(plans)) as pool:
        return [future.result(LIMIT) for future in [pool.submit(read, at) for at in range(len(plans))]]


def alone(store: CountingStore, plan: Sequence[Step], size: int = 10) -> list[np.ndarray]:
    with open_store(store.path) as opened:
        return [opened.rows(first, first + size).data for _, _, firsts in plan for first in firsts]


def test_the_same_blocks_are_read_once(store: CountingStore) -> None:
    plan: list[Step] = [(1, 0, [0, 20, 40, 10]), (2, 0, [40, 0, 10, 20])]
    found = go(store, [plan] * 4)
    assert store.read == [(first, first + 10) for _, _, firsts in plan for first in firsts]
    for each in found:
        for rows, expected in zip(each, alone(store, plan), strict=True):
            np.testing.assert_array_equal(rows, expected)


def test_the_ones_behind_are_waited_for(store: CountingStore) -> None:
    """One begins in the second pass, one within the first: all share what they still have in common."""
    rest: list[Step] = [(2, 0, [40, 0, 10, 20])]
    go(store, [[(1, 0, [0, 20, 40, 10]), *rest], [(1, 2, [40, 10]), *rest], rest])
    assert [first for first, _ in store.read] == [0, 20, 40, 10, 40, 0, 10, 20]


def test_other_blocks_are_read_by_each(store: CountingStore) -> None:
    found = go(store, [[(1, 0, [0, 20])], [(1, 0, [0, 30])], [(1, 0, [0])]])
    assert sorted(first for first, _ in store.read) == [0, 20, 30]
    assert [len(each) for each in found] == [2, 2, 1]


def test_one_that_fails_leaves_the_others_their_rows(store: CountingStore) -> None:
    plan: list[Step] = [(1, 0, [0, 10, 20])]
    with pytest.raises(IndexError):
        go(store, [plan, [(1, 0, [0, N])], plan])
    assert [first for first, _ in store.read if first < N] == [0, 10, 20]


def test_an_error_in_reading_is_that_of_all(store: CountingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(store.path) as opened:
        kind = type(opened)
    calls = []

    def fails(each, ranges):
        calls.append(ranges)
        raise StoreError("a damaged chunk")

    monkeypatch.setattr(kind, "rows_of", fails)
    shared, errors = SharedReads(3), []

    def read(number: int) -> None:
        reader = shared.readers[number]
        try:
            with reader.of(open_store(store.path)) as opened:
                opened.rows(0, 10)
        except StoreError as error:
            errors.append(str(error))
        finally:
            reader.end()

    run_all([lambda at=at: read(at) for at in range(3)])
    assert errors == ["a damaged chunk"] * 3
    assert calls == [[(0, 10)]]


def run_all(functions: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
