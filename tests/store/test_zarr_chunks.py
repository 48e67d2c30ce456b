"""Chunk files are read ahead by threads that outlive an error but not the store, and memory is reused."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest
from store_problems import Problem, assert_rows_equal, make_problem

from streamsvm.errors import StoreError
from streamsvm.store import chunk_reader, open_store
from streamsvm.store.chunk_reader import UsedArrays


@pytest.fixture
def written(tmp_path: Path) -> tuple[Problem, Path]:
    """A store of some thirty chunks."""
    problem = make_problem(n=1500, d=100, density=0.1)
    path = tmp_path / "a.zarr"
    problem.write(path, chunk_nnz=500)
    return problem, path


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no posix_fadvise")
def test_the_system_is_told_of_every_chunk_once_before_it_is_read(written, monkeypatch) -> None:
    _, path = written
    names = {file.stat().st_ino: file for file in path.rglob("c/*")}
    told: list[Path] = []

    def counting(descriptor, offset, size, advice):
        assert (offset, size, advice) == (0, 0, os.POSIX_FADV_WILLNEED)
        told.append(names[os.fstat(descriptor).st_ino])

    with open_store(path) as store:
        monkeypatch.setattr(os, "posix_fadvise", counting)
        store.rows(0, 1500)
    for name in ("X/data", "X/indices"):
        there = sorted(path.joinpath(name, "c").iterdir())
        assert len(there) > 2 * chunk_reader.READ_AHEAD
        assert sorted(file for file in told if file in there) == there


def test_chunks_are_read_on_systems_without_fadvise(written, monkeypatch) -> None:
    problem, path = written
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with open_store(path) as store:
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)


def chunk_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("streamsvm-chunk")]


def test_reading_works_after_an_error_and_closing_ends_the_threads(written) -> None:
    problem, path = written
    before = len(chunk_threads())
    with open_store(path) as store:
        chunk = path / "X/indices/c/7"
        content = chunk.read_bytes()
        chunk.write_bytes(content[:-9])
        with pytest.raises(StoreError, match="array X/indices, chunk 7: "):
            store.rows(0, 1500)
        chunk.write_bytes(content)
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
        assert before < len(chunk_threads()) <= before + chunk_reader.THREADS
    assert len(chunk_threads()) == before


def test_a_short_read_is_completed_and_a_truncated_file_is_an_error(written, monkeypatch) -> None:
    problem, path = written
    read = os.preadv

    def reading(most: int):
        return lambda descriptor, buffers, offset: read(descriptor, [buffers[0][:most]], offset)

    with open_store(path) as store:
        monkeypatch.setattr(os, "preadv", reading(100))
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
        monkeypatch.setattr(os, "preadv", reading(0))
        with pytest.raises(StoreError, match="chunk 0: the file is truncated"):
            store.rows(0, 1500)


FLOATS = np.dtype("f4")
N = 2**20


def place(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_used_again_only_when_nobody_has_a_part_of_it() -> None:
    arrays = UsedArrays()
    first = arrays.empty(N, FLOATS)
    where = place(first)
    second = arrays.empty(N, FLOATS)
    assert place(second) != where
    part = first[100:].view(np.int32)[::2]
    del first
    assert place(arrays.empty(N, FLOATS)) != where
    part[:] = 7
    second[:] = 1
    assert (part == 7).all()
    del part
    assert place(arrays.empty(N + N // 16, np.dtype("i4"))) == where
