"""Working memory of a thread."""

from __future__ import annotations

import itertools

import numpy as np

from streamsvm.kernels.scratch import own_lines


def test_begins_a_cache_line_and_shares_none() -> None:
    sizes = list(itertools.product((0, 1, 8, 9, 1000), (np.float32, np.float64, np.int64)))
    arrays = [own_lines(length, dtype) for length, dtype in 10 * sizes]
    lines = [range(each.ctypes.data // 64, (each.ctypes.data + each.nbytes + 63) // 64) for each in arrays]
    assert len(set().union(*lines)) == sum(map(len, lines))
    for array, (length, dtype) in zip(arrays, 10 * sizes, strict=True):
        assert (len(array), array.dtype) == (length, dtype)
        assert not array.any()
        assert array.ctypes.data % 64 == 0 or length == 0
