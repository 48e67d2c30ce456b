"""Rows of the weights that workers copy, change, and add up again."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating, kernel


@kernel
def mark(features, seen):
    """Set ``seen[f]`` for all ``features``, which may repeat."""
    for p in range(len(features)):
        seen[features[p]] = True


@allocating
def unite(first, second):
    """Return the union of two ascending arrays of distinct features, and those of the second alone."""
    both, fresh = np.empty(len(first) + len(second), np.int64), np.empty(len(second), np.int64)
    i, n, n_fresh = 0, 0, 0
    for f in second:
        while i < len(first) and first[i] < f:
            both[n] = first[i]
            i, n = i + 1, n + 1
        if i == len(first) or first[i] != f:
            both[n], fresh[n_fresh] = f, f
            n, n_fresh = n + 1, n_fresh + 1
    for t in range(i, len(first)):
        both[n] = first[t]
        n += 1
    return both[:n], fresh[:n_fresh]


@kernel
def copy_rows(features, source, target):
    """Copy the rows ``features`` of `source` to `target`, both of shape (n_features, K)."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] = source[f, c]


@kernel
def zero_rows(features, target):
    """Set the rows ``features`` to zero."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] = 0


@kernel
def add_rows(features, source, factor, target):
    """Add `factor` times the rows ``features`` of `source` to those of `target`."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] += target.dtype.type(factor) * source[f, c]
