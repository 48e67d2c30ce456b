"""Sorting in compiled code: NumPy's own takes a second to compile, as long as the visit of a row."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating


@allocating
def sorted_falling(values, n):
    """Sort the first `n` of `values` in falling order into a new array of float64 (bottom-up merge sort)."""
    runs, merged = np.empty(n), np.empty(n)
    for r in range(n):
        runs[r] = values[r]
    length = 1  # of the sorted runs
    while length < n:
        for begin in range(0, n, 2 * length):
            middle, end = min(begin + length, n), min(begin + 2 * length, n)
            left, right = begin, middle
            for r in range(begin, end):
                if right == end or (left < middle and runs[left] >= runs[right]):
                    merged[r] = runs[left]
                    left += 1
                else:
                    merged[r] = runs[right]
                    right += 1
        runs, merged = merged, runs
        length *= 2
    return runs
