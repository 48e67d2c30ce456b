"""Copy and add weight rows, to combine the changes of several workers."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def mark(features, seen):
    for p in range(len(features)):
        seen[features[p]] = True


def unite(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the union of two ascending arrays of unique features, and the features only in the second."""
    at = np.searchsorted(first, second)
    is_fresh = np.append(first, -1)[at] != second
    return np.insert(first, at[is_fresh], second[is_fresh]), second[is_fresh]


@kernel
def copy_rows(features, source, target):
    """Copy the rows `features` of `source` to `target`; both have the shape (n_features, K)."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] = source[f, c]


@kernel
def add_rows(features, source, factor, target):
    """Add `factor` times the rows `features` of `source` to the same rows of `target`."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] += target.dtype.type(factor) * source[f, c]
