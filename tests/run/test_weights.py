"""Arrays over files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.run.weights import map_array


def test_new_arrays_are_zero_and_take_no_disk(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"left over")
    fresh = map_array(path, (2**33, 16), np.dtype(np.float32))  # half a terabyte
    assert type(fresh) is np.ndarray
    assert fresh[0, 0] == fresh[2**32, 3] == 0
    assert path.stat().st_blocks * 512 < 2**20
    fresh[2**32, 3] = 1.5
    assert np.memmap(path, np.float32, "r")[2**36 + 3] == 1.5


def test_an_extended_file_keeps_what_it_holds(tmp_path: Path) -> None:
    map_array(tmp_path / "a", (2, 4), np.dtype(float))[:] = 3
    longer = map_array(tmp_path / "a", (5, 4), np.dtype(float), fresh=False)
    np.testing.assert_array_equal(longer, [[3.0] * 4] * 2 + [[0.0] * 4] * 3)
