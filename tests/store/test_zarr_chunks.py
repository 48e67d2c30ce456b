"""Our own reading of chunks: what is announced, who reads, and what remains after an error."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import zarr
from store_problems import Problem, assert_rows_equal, make_problem

from streamsvm.errors import StoreError
from streamsvm.store import container, open_store, page_cache, zarr_chunks


@pytest.fixture
def written(tmp_path: Path) -> tuple[Problem, Path]:
    """A store of some thirty chunks."""
    problem = make_problem(n=1500, d=100, density=0.1)
    path = tmp_path / "a.zarr"
    problem.write(path, chunk_nnz=500)
    return problem, path


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice")
def test_every_chunk_is_announced_once(written, monkeypatch) -> None:
    _, path = written
    names = {file.stat().st_ino: file for file in path.rglob("c/*")}
    announced: list[Path] = []

    def counting(descriptor, offset, size, advice):
        assert (offset, size, advice) == (0, 0, os.POSIX_FADV_WILLNEED)
        announced.append(names[os.fstat(descriptor).st_ino])

    with open_store(path) as store:
        monkeypatch.setattr(os, "posix_fadvise", counting)
        store.rows(0, 1500)
    for name in ("X/data", "X/indices"):
        there = sorted(path.joinpath(name, "c").iterdir())
        assert len(there) > 2 * zarr_chunks.READ_AHEAD
        assert sorted(file for file in announced if file in there) == there


def test_reading_needs_no_advice(written, monkeypatch) -> None:
    problem, path = written
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with open_store(path) as store:
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)


def test_no_chunk_of_ours_goes_through_zarr(written, monkeypatch) -> None:
    """It would be read all the same, at half the speed, and nobody would notice."""
    problem, path = written
    with open_store(path) as store:
        monkeypatch.setattr(zarr.Array, "__getitem__", lambda array, key: pytest.fail("read by zarr"))
        assert_rows_equal(store.rows(3, 1400), problem.matrix[3:1400], problem.labels[3:1400])


def chunk_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("streamsvm-chunk")]


def test_after_an_error_reading_goes_on_and_closing_ends_the_threads(written) -> None:
    problem, path = written
    before = len(chunk_threads())
    with open_store(path) as store:
        chunk = path / "X/indices/c/7"
        chunk.rename(chunk.with_name("away"))
        with pytest.raises(StoreError, match="array X/indices, chunk 7: the chunk is missing"):
            store.rows(0, 1500)
        chunk.with_name("away").rename(chunk)
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
        assert before < len(chunk_threads()) <= before + zarr_chunks.THREADS
    assert len(chunk_threads()) == before


def test_a_short_read_is_completed_and_a_shrunken_file_is_an_error(written, monkeypatch) -> None:
    problem, path = written
    read = os.preadv

    def reading(most: int):
        return lambda descriptor, buffers, offset: read(descriptor, [buffers[0][:most]], offset)

    with open_store(path) as store:
        monkeypatch.setattr(os, "preadv", reading(100))
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
        monkeypatch.setattr(os, "preadv", reading(0))
        with pytest.raises(StoreError, match="chunk 0: the chunk is truncated"):
            store.rows(0, 1500)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice")
@pytest.mark.parametrize("suffix", ["zarr", "h5"])
@pytest.mark.parametrize("outgrows", [True, False])
def test_what_outgrows_memory_is_forgotten_once_read(suffix, outgrows, tmp_path, monkeypatch) -> None:
    problem = make_problem(n=1500, d=100, density=0.1)
    path = tmp_path / f"a.{suffix}"
    problem.write(path, chunk_nnz=500, codec="none")
    files = [*path.rglob("X/data/c/*"), *path.rglob("X/indices/c/*")] if suffix == "zarr" else [path]
    size = 4 * problem.matrix.nnz  # of values, and of indices
    monkeypatch.setattr(container, "memory_limit", lambda: 8 * size - 1 if outgrows else 9 * size)
    forgotten: list[int] = []

    def counting(descriptor, offset, size, advice):
        if advice == os.POSIX_FADV_DONTNEED:
            assert (offset, size) == (0, 0)
            forgotten.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "posix_fadvise", counting)
    with open_store(path) as store:
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
    expected = [file.stat().st_ino for file in files] if outgrows else []
    assert sorted(set(forgotten)) == sorted(expected)


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "4096"}, 4096),
        ("0::/a/b\n", {"a/b/memory.max": "max", "memory.max": "max"}, None),
        ("0::/\n", {"memory.max": "8192"}, 8192),
        (
            "5:cpu,cpuacct:/c\n4:memory:/a/b\n0::/\n",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/a/memory.limit_in_bytes": "4096",
                "cpu/c/memory.limit_in_bytes": "1",
            },
            4096,
        ),
        # Inside a container the path may be that of the host, which is not to be seen.
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": "4096"}, 4096),
        (None, {}, None),
    ],
)
def test_the_room_is_the_tightest_limit(membership, limits, expected, tmp_path, monkeypatch) -> None:
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    if membership is not None:
        (tmp_path / "self").write_text(membership)
    monkeypatch.setattr(page_cache, "CGROUPS", tmp_path)
    monkeypatch.setattr(page_cache, "MEMBERSHIP", tmp_path / "self")
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert page_cache.memory_limit.__wrapped__() == (expected or physical)
