"""Arrays over files."""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from streamsvm.base import durable
from streamsvm.data.rows import Rows
from streamsvm.errors import RunError
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.weights import sum_of_squares
from streamsvm.run.weights import DenseWeights, check_mapped, map_array

PAGE = mmap.PAGESIZE


def test_new_arrays_are_zero_and_take_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"left over")
    fresh = map_array(path, (2**33, 16), np.dtype(np.float32))  # half a terabyte
    assert type(fresh) is np.ndarray
    assert fresh[0, 0] == fresh[2**32, 3] == 0
    assert path.stat().st_blocks * 512 < 2**20
    fresh[2**32, 3] = 1.5
    assert np.memmap(path, np.float32, "r")[2**36 + 3] == 1.5


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="needs a tmpfs")
def test_where_reading_takes_space_all_of_it_is_reserved() -> None:
    """On tmpfs a page that is only read takes space, and without any left the process dies by SIGBUS."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder) / "weights.bin"
        for rows, fresh in ((100, True), (300, False)):
            array = map_array(path, (rows, PAGE), np.dtype(np.uint8), fresh=fresh)
            assert path.stat().st_blocks * 512 == array.nbytes
        with pytest.raises(OSError, match="No space left") as error:
            map_array(path, (2**30, PAGE), np.dtype(np.uint8))  # 4 TiB
        assert error.value.filename == str(path)


def test_the_file_of_the_weights_must_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w"
    storage = DenseWeights((4, PAGE // 4), np.dtype(np.float32), 1.0, [path])
    none = np.zeros(0)
    rows = Rows(np.zeros(4), np.arange(4), np.zeros(1, np.int64), np.zeros(0, np.int32), none, none)
    used = path.stat().st_blocks * 512
    monkeypatch.setattr(durable, "free_bytes", lambda path: 4 * PAGE - used)
    storage.check_room(rows)
    monkeypatch.setattr(durable, "free_bytes", lambda path: 4 * PAGE - used - 1)
    with pytest.raises(RunError, match="the disk has"):
        storage.check_room(rows)


def test_an_extended_file_keeps_what_it_holds(tmp_path: Path) -> None:
    map_array(tmp_path / "a", (2, 4), np.dtype(float))[:] = 3
    longer = map_array(tmp_path / "a", (5, 4), np.dtype(float), fresh=False)
    np.testing.assert_array_equal(longer, [[3.0] * 4] * 2 + [[0.0] * 4] * 3)


def test_weights_in_files_are_visited_where_they_changed_and_take_no_more_disk(tmp_path: Path) -> None:
    path = tmp_path / "w"
    storage = DenseWeights((50, 2**16), np.dtype(np.float32), 1.0, [path], average=False)
    weights, expected = storage.weights, np.zeros((50, 2**16), np.float32)
    for f, c in ((0, 3), (7, 2**15), (49, 2**16 - 1)):
        weights.current[f, c] = expected[f, c] = f + 1.5
    before = path.stat().st_blocks
    storage.scale(1.5)
    np.testing.assert_array_equal(weights.current, expected * np.float32(1.5))
    assert path.stat().st_blocks == before
    problem = Problem(2**16, 1.0)
    assert storage.squares(sum_of_squares, problem, 0.0) == [((expected * 1.5) ** 2).sum()]
    found = storage.coefficients(None, np.arange(2**16))
    assert found.used is not None
    assert [each for each in found.used.tolist() if each[1]] == [[0, 1], [7, 8], [49, 50]]
    np.testing.assert_array_equal(found.stored().weights, weights.current)
    assert path.stat().st_blocks == before


def test_rows_need_space_where_they_were_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of four pages can be on six at most, whatever its offset."""
    path = tmp_path / "weights.bin"
    weights = map_array(path, (1000, PAGE), np.dtype(np.float32))
    weights[:10] = 1
    assert path.stat().st_blocks * 512 <= 41 * PAGE
    for free, n_rows, most, enough in (
        (59, 10, 2**63, False), (60, 10, 2**63, True), (0, 0, 2**63, True), (59, 10, 59 * PAGE, True),
    ):  # fmt: skip
        monkeypatch.setattr(durable, "free_bytes", lambda path, free=free: free * PAGE)
        refused = r"weights\.bin: the disk has .* left, but .* free some space, then"
        with contextlib.nullcontext() if enough else pytest.raises(RunError, match=refused):
            check_mapped([(path, weights)], n_rows, most)
    weights[:] = 1
    monkeypatch.setattr(durable, "free_bytes", lambda path: 0)
    check_mapped([(path, weights)], 10**9)  # written whole
    path.unlink()
    check_mapped([(path, weights)], 1)  # its map lives on
