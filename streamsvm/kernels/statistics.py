"""Add values to the statistics of their features."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def add_counts(data, indices, count):
    """Add to `count`."""
    for p in range(len(data)):
        if data[p] != 0:
            count[indices[p]] += 1.0


@kernel
def add_moments(data, indices, count, moments):
    """Add to `count` and `moments`."""
    for p in range(len(data)):
        f, x = indices[p], np.float64(data[p])
        if x != 0:
            count[f] += 1.0
            change = x - moments[f, 0]
            moments[f, 0] += change / count[f]
            moments[f, 1] += change * (x - moments[f, 0])
            moments[f, 2] = max(moments[f, 2], abs(x))
