"""Rows of the weights that workers copy, change, and add up again."""

from __future__ import annotations

from streamsvm.kernels.jit import kernel


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
def subtract_rows(features, source, target):
    """Subtract the rows ``features`` of `source` from those of `target`."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] -= source[f, c]


@kernel
def add_rows(features, source, factor, target):
    """Add `factor` times the rows ``features`` of `source` to those of `target`."""
    for f in features:
        for c in range(target.shape[1]):
            target[f, c] += target.dtype.type(factor) * source[f, c]
