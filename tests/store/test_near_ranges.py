"""Ranges of an array that lie near each other are read as one, and what lies between others is not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from streamsvm.store.hdf5_backend import Hdf5Array, Hdf5Container
from streamsvm.store.ranges import Ranges, numbers_in

N = 400_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many elements each call of h5py has read."""
    found: list[int] = []
    read = Hdf5Array._read
    monkeypatch.setattr(
        Hdf5Array, "_read", lambda self, start, stop: found.append(stop - start) or read(self, start, stop)
    )
    return found


def check(path: Path, values: np.ndarray, ranges: Ranges, **options: Any) -> None:
    """Compare ranges of an array in a file with those of `values`, in this order and another."""
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=values, **options)
    container = Hdf5Container(path)
    array = container.array("a", values.ndim)
    for order in ranges, ranges[::-1]:
        np.testing.assert_array_equal(array.read_ranges(order), values[numbers_in(order)])
    container.close()


def every(step: int, size: int, n: int) -> Ranges:
    return np.arange(0, n - size, step)[:, np.newaxis] + np.array([0, size])


@pytest.mark.parametrize("chunks", [None, (2**14,)])
def test_short_gaps_are_read_over_and_long_ones_are_not(
    tmp_path: Path, reads: list[int], chunks: tuple[int, ...] | None
) -> None:
    values = np.arange(N, dtype=np.float32)
    check(tmp_path / "a.h5", values, every(4000, 100, N), chunks=chunks)  # 16 KB
    assert len(reads) <= 2 * 4
    reads.clear()
    ranges = every(40_000, 100, N)
    check(tmp_path / "a.h5", values, ranges, chunks=chunks)
    assert reads == [100] * 2 * len(ranges)


def test_a_gap_of_wide_rows_is_read_over_within_a_chunk_alone(tmp_path: Path, reads: list[int]) -> None:
    values = np.arange(300 * 5000, dtype=np.float64).reshape(300, 5000)  # rows of 40 KB
    check(tmp_path / "a.h5", values, every(10, 2, 300), chunks=(50, 1000), compression="gzip")
    assert reads == [42] * 12
