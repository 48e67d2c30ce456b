"""Memory that one thread writes to."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from streamsvm.kernels.simd import VECTOR_BYTES


def own_lines(length: int, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return zeros from the beginning of a cache line on, on lines without anything else.

    Vectors then lie in one line each, and no thread waits for what another one writes beside them.
    """
    n_bytes = length * np.dtype(dtype).itemsize
    memory = np.zeros(n_bytes + 2 * VECTOR_BYTES, np.uint8)
    begin = -memory.ctypes.data % VECTOR_BYTES
    return memory[begin : begin + n_bytes].view(dtype)
