"""Working memory of a thread."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.kernels.memory import own_lines


@pytest.mark.parametrize("length", [0, 1, 8, 9, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_begins_a_cache_line_and_shares_none(length: int, dtype: type) -> None:
    arrays = [own_lines(length, dtype) for _ in range(50)]
    lines = [
        set(range(array.ctypes.data // 64, (array.ctypes.data + array.nbytes + 63) // 64)) for array in arrays
    ]
    assert all(array.ctypes.data % 64 == 0 and array.dtype == dtype for array in arrays if length)
    assert all(len(array) == length and not array.any() for array in arrays)
    assert len(set().union(*lines)) == sum(map(len, lines))
    assert all(array.flags.c_contiguous and array.flags.aligned for array in arrays)
