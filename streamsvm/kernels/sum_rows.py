"""Rows of the weights that workers copy, change, and add up again."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def mark(features, seen):
    """Set ``seen[f]`` for all ``features``, which may repeat."""
    for p in range(len(features)):
        seen[features[p]] = True


def unite(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of two ascending arrays of distinct features, and those of the second alone."""
    at = np.searchsorted(first, second)
    is_fresh = np.append(first, -1)[at] != second
    return np.insert(first, at[is_fresh], second[is_fresh]), second[is_fresh]


@kernel
def copy_rows(features, source, target):
    """Copy the rows ``features`` of `source` to `target`, both of shape (n_features, K)."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] = source[f, c]


@kernel
def add_rows(features, source, factor, target):
    """Add `factor` times the rows ``features`` of `source` to those of `target`."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] += target.dtype.type(factor) * source[f, c]
