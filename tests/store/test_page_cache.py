"""The page cache: which files are dropped from it, and how large it can be."""

from __future__ import annotations

import os

import pytest
from store_problems import assert_rows_equal, make_problem

from streamsvm.base import page_cache
from streamsvm.store import container, open_store


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system has no posix_fadvise")
@pytest.mark.parametrize("suffix", ["zarr", "h5"])
@pytest.mark.parametrize("exceeds", [True, False])
def test_arrays_that_exceed_the_page_cache_are_dropped_from_it_once_read(
    suffix, exceeds, tmp_path, monkeypatch
) -> None:
    problem = make_problem(n=1500, d=100, density=0.1)
    path = tmp_path / f"a.{suffix}"
    problem.write(path, chunk_nnz=500, codec="none")
    files = [*path.rglob("X/data/c/*"), *path.rglob("X/indices/c/*")] if suffix == "zarr" else [path]
    size = 4 * problem.matrix.nnz  # of values, and of indices
    monkeypatch.setattr(container, "memory_limit", lambda: 8 * size - 1 if exceeds else 9 * size)
    dropped: list[int] = []

    def counting(descriptor, offset, size, advice):
        if advice == os.POSIX_FADV_DONTNEED:
            assert (offset, size) == (0, 0)
            dropped.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "posix_fadvise", counting)
    with open_store(path) as store:
        assert_rows_equal(store.rows(0, 1500), problem.matrix, problem.labels)
    expected = [file.stat().st_ino for file in files] if exceeds else []
    assert sorted(set(dropped)) == sorted(expected)


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": "4096"}, 4096),
        ("0::/a/b\n", {"a/b/memory.max": "max", "memory.max": "max"}, None),
        ("0::/\n", {"memory.max": "8192"}, 8192),
        ("5:cpu,cpuacct:/c\n4:memory:/a/b\n0::/\n",
         {"memory/memory.limit_in_bytes": "9223372036854771712", "memory/a/memory.limit_in_bytes": "4096",
          "cpu/c/memory.limit_in_bytes": "1"}, 4096),
        # Inside a container the path may be that of the host, which is not visible.
        ("4:memory:/docker/x\n", {"memory/memory.limit_in_bytes": "4096"}, 4096),
        (None, {}, None),
    ],
)  # fmt: skip
def test_the_memory_limit_is_the_tightest_of_all_control_groups(
    membership, limits, expected, tmp_path, monkeypatch
) -> None:
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    if membership is not None:
        (tmp_path / "self").write_text(membership)
    monkeypatch.setattr(page_cache, "CGROUPS", tmp_path)
    monkeypatch.setattr(page_cache, "MEMBERSHIP", tmp_path / "self")
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert page_cache.memory_limit.__wrapped__() == (expected or physical)
