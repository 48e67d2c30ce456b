"""Chunks that others wrote are decoded as zarr and h5py decode them, each once; damage in them is noticed."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr

from streamsvm.errors import StoreError
from streamsvm.store.container import Container
from streamsvm.store.hdf5_backend import Hdf5Array, Hdf5Container
from streamsvm.store.open import open_existing
from streamsvm.store.ranges import Ranges, numbers_in

N, CHUNK = 1000, 64
FILTERS = {
    "gzip": {"compression": "gzip"},
    "gzip shuffled": {"compression": "gzip", "compression_opts": 9, "shuffle": True},
    "lzf": {"compression": "lzf"},
    "plain": {},
    "checked": {"compression": "gzip", "fletcher32": True},
}
DECODED_HERE = {"gzip", "gzip shuffled"}


def numbers(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 3, N) * rng.integers(0, 100, N)
    return values.astype(dtype)


def ranges() -> list[list[tuple[int, int]]]:
    cuts = [0, 1, 63, 64, 65, 200, 448, 999, 1000]
    return [[(0, N)], [(5, 6)], list(itertools.pairwise(cuts)), [(900, 1000), (10, 20), (15, 80), (64, 128)]]


def assert_reads(container: Container, name: str, values: np.ndarray) -> None:
    array = container.array(name)
    array.absent_chunks = "allow"
    for some in ranges():
        found = array.read_ranges(np.array(some))
        np.testing.assert_array_equal(found, np.concatenate([values[start:stop] for start, stop in some]))
        assert found.dtype == values.dtype


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "f4") for name in FILTERS), *(("gzip shuffled", dtype) for dtype in ("f8", "u2", "i1", ">i4"))],
)
def test_hdf5(tmp_path: Path, name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, path = numbers(dtype), tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=values, chunks=(CHUNK,), **FILTERS[name])
        holes = file.create_dataset("holes", (N,), dtype, chunks=(CHUNK,), fillvalue=7, **FILTERS[name])
        holes[100:110] = 1
        expected = holes[:]
    container = open_existing(path)
    if name in DECODED_HERE and dtype[0] != ">":
        monkeypatch.setattr(h5py.Dataset, "__getitem__", lambda array, key: pytest.fail("decoded by h5py"))
    assert_reads(container, "a", values)
    assert_reads(container, "holes", expected)
    container.close()


COMPRESSORS = {
    "blosc": (numcodecs.Blosc(), zarr.codecs.BloscCodec(typesize=4)),
    "zstd": (numcodecs.Zstd(), zarr.codecs.ZstdCodec()),
    "gzip": (numcodecs.GZip(), zarr.codecs.GzipCodec()),
    "none": (None, None),
}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", list(COMPRESSORS))
def test_zarr(tmp_path: Path, name: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    codec = COMPRESSORS[name][version - 2]
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    values = numbers("f4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group.create_array("a", data=values, chunks=(CHUNK,), compressors=codec)
        holes = group.create_array(
            "holes", shape=(N,), dtype="i4", chunks=(CHUNK,), fill_value=7, compressors=codec
        )
    holes[100:110] = 1
    expected = holes[:]
    container = open_existing(tmp_path / "a.zarr")
    if name != "gzip":
        monkeypatch.setattr(zarr.Array, "__getitem__", lambda array, key: pytest.fail("decoded by zarr"))
    assert_reads(container, "a", values)
    assert_reads(container, "holes", expected)
    container.close()


def test_zarr_decodes_a_chunk_once_for_all_ranges_that_touch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a chunk within a shard."""
    values = numbers("f4")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("a", data=values, chunks=(CHUNK,), shards=(4 * CHUNK,))
    container = open_existing(tmp_path / "a.zarr")
    read: list[tuple[int, int]] = []
    get = zarr.Array.__getitem__

    def counting(array: zarr.Array, key: tuple[slice]) -> object:
        read.append((key[0].start // CHUNK, -(-key[0].stop // CHUNK)))
        return get(array, key)

    monkeypatch.setattr("streamsvm.store.container._MAX_GAP", 0)
    monkeypatch.setattr(zarr.Array, "__getitem__", counting)
    assert_reads(container, "a", values)
    read.clear()
    wanted = [(130, 140), (0, 5), (150, 190), (20, 70), (900, 910)]
    found = container.array("a").read_ranges(np.array(wanted))
    np.testing.assert_array_equal(found, np.concatenate([values[start:stop] for start, stop in wanted]))
    assert sorted(read) == [(0, 2), (2, 3), (14, 15)]


@pytest.mark.parametrize("name", sorted(DECODED_HERE))
def test_each_flipped_byte_of_a_gzip_chunk_is_noticed_and_the_chunk_named(tmp_path: Path, name: str) -> None:
    values, path = numbers("f4"), tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("a", data=values, chunks=(CHUNK,), **FILTERS[name])
        info = made.id.get_chunk_info_by_coord((2 * CHUNK,))
    content = path.read_bytes()
    messages: list[str] = []
    places = range(info.byte_offset, info.byte_offset + info.size, 5)
    for at in places:
        path.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
        container = open_existing(path)
        try:
            container.array("a").read(0, N)
        except StoreError as error:
            messages.append(str(error))
        container.close()
    assert all("array a, chunk 2: " in message for message in messages)
    assert len(messages) == len(places)


LONG = 400_000


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
    values = np.arange(LONG, dtype=np.float32)
    check(tmp_path / "a.h5", values, every(4000, 100, LONG), chunks=chunks)  # 16 KB
    assert len(reads) <= 2 * 4
    reads.clear()
    ranges = every(40_000, 100, LONG)
    check(tmp_path / "a.h5", values, ranges, chunks=chunks)
    assert reads == [100] * 2 * len(ranges)


def test_a_gap_of_wide_rows_is_read_over_within_a_chunk_alone(tmp_path: Path, reads: list[int]) -> None:
    values = np.arange(300 * 5000, dtype=np.float64).reshape(300, 5000)  # rows of 40 KB
    check(tmp_path / "a.h5", values, every(10, 2, 300), chunks=(50, 1000), compression="gzip")
    assert reads == [42] * 12
