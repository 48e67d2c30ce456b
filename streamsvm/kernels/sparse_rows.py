"""Rows of the weights that are stored sparsely: those of rare features, if there are very many classes.

A sparse row of the weights is a growing array of entries, each a class, its weight and, if iterates are
averaged, its average_delta. Kernels take a `SparseRows`, or None if all rows of the weights are dense: Numba
removes what depends on an argument that is None before it compiles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import log2_lanes, lowest_bit

WEIGHT, AVERAGE_DELTA = 1, 2  # columns of the entries; column 0 is the class


class SparseRows(NamedTuple):
    """The sparse rows of the weights, and the part of a block's rows that is multiplied by them.

    Sparse row f is ``entries[begin:begin + size]`` with ``begin, size, capacity = extents[f]``.
    """

    indptr: np.ndarray  # (n_rows + 1,) int64: CSR, beside the rows that are multiplied by dense weights
    indices: np.ndarray  # (any,) int64: sparse rows of the weights
    data: np.ndarray  # (any,) dtype of the weights
    entries: np.ndarray  # (capacity, 2 or 3) dtype of the weights
    extents: np.ndarray  # (n_sparse, 3) int64
    dirty: np.ndarray  # (n_sparse,) uint8: whether a sparse row changed since the last commit
    used: np.ndarray  # (1,) int64: entries allocated
    missing: np.ndarray  # (K / lanes,) int64: scratch


@inlined
def has_sparse_room(sparse_rows, i, n_classes):
    """Whether the sparse rows have room for whatever a visit of row `i` may add.

    A sparse row moves at most once in a visit, to a place for twice as many entries as it can have.
    """
    n_features = sparse_rows.indptr[i + 1] - sparse_rows.indptr[i]
    return sparse_rows.used[0] + 2 * n_classes * n_features <= len(sparse_rows.entries)


@inlined
def add_sparse_scores(scores, sparse_rows, i, column):
    """Add to `scores` the contribution of row `i`'s sparse features, by `column` of the entries."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    for p in range(sparse_rows.indptr[i], sparse_rows.indptr[i + 1]):
        f, x = sparse_rows.indices[p], sparse_rows.data[p]
        begin = extents[f, 0]
        for e in range(begin, begin + extents[f, 1]):
            scores[np.int64(entries[e, 0])] += x * entries[e, column]


@inlined
def _reserve(sparse_rows, f, n):
    """Let sparse row `f` hold `n` more entries: if it is full, it moves."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    begin, size = extents[f, 0], extents[f, 1]
    if size + n > extents[f, 2]:
        moved = sparse_rows.used[0]
        for e in range(size):
            for column in range(entries.shape[1]):
                entries[moved + e, column] = entries[begin + e, column]
        extents[f, 0], extents[f, 2] = moved, max(size + n, 2 * size)
        sparse_rows.used[0] += extents[f, 2]


@inlined
def update_sparse_rows(sparse_rows, i, scratch, n_vectors, rate):
    """Add row `i`'s sparse features times ``delta`` to their weights, and `rate` times that to the average.

    Only the classes with a bit in ``scratch.candidates`` change.
    """
    entries, extents, missing = sparse_rows.entries, sparse_rows.extents, sparse_rows.missing
    delta, candidates, vectors = scratch.delta, scratch.candidates, scratch.vectors
    log_lanes = log2_lanes(delta)
    mask = (1 << log_lanes) - 1
    zero = delta.dtype.type(0)
    for p in range(sparse_rows.indptr[i], sparse_rows.indptr[i + 1]):
        f, x = sparse_rows.indices[p], sparse_rows.data[p]
        sparse_rows.dirty[f] = 1
        for q in range(n_vectors):
            missing[vectors[q] >> log_lanes] = candidates[vectors[q] >> log_lanes]
        for e in range(extents[f, 0], extents[f, 0] + extents[f, 1]):
            c = np.int64(entries[e, 0])
            if (candidates[c >> log_lanes] >> (c & mask)) & 1:
                step = x * delta[c]
                entries[e, 1] += step
                if entries.shape[1] > 2:
                    entries[e, 2] += rate * step
                missing[c >> log_lanes] &= ~(1 << (c & mask))
        # None in an inner pass, which does not check for room: a class with a dual has an entry.
        n_new = 0
        for q in range(n_vectors):
            first = vectors[q]
            bits = missing[first >> log_lanes]
            while bits != 0:
                c = first + lowest_bit(bits)
                bits &= bits - 1
                n_new += delta[c] != zero
        if n_new == 0:
            continue
        _reserve(sparse_rows, f, n_new)
        for q in range(n_vectors):
            first = vectors[q]
            bits = missing[first >> log_lanes]
            while bits != 0:
                c = first + lowest_bit(bits)
                bits &= bits - 1
                if delta[c] != zero:
                    step = x * delta[c]
                    e = extents[f, 0] + extents[f, 1]
                    entries[e, 0], entries[e, 1] = c, step
                    if entries.shape[1] > 2:
                        entries[e, 2] = rate * step
                    extents[f, 1] += 1


@kernel
def scale_sparse_rows(sparse_rows, factor):
    """Multiply the weights of the sparse rows by `factor`; all that have entries become dirty."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    for f in range(len(extents)):
        for e in range(extents[f, 0], extents[f, 0] + extents[f, 1]):
            entries[e, 1] *= entries.dtype.type(factor)
        if extents[f, 1] > 0:
            sparse_rows.dirty[f] = 1


@kernel
def restart_sparse_average(sparse_rows):
    """Let the average of the sparse rows begin anew; all that have entries become dirty."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    for f in range(len(extents)):
        for e in range(extents[f, 0], extents[f, 0] + extents[f, 1]):
            entries[e, 2] = 0
        sparse_rows.dirty[f] = extents[f, 1] > 0


@inlined
def sparse_sum_of_squares(sparse_rows, average_scale):
    """The sparse rows' part of `streamsvm.kernels.weights.sum_of_squares`."""
    entries, extents = sparse_rows.entries, sparse_rows.extents
    total = 0.0
    for f in range(len(extents)):
        part = 0.0
        for e in range(extents[f, 0], extents[f, 0] + extents[f, 1]):
            w = np.float64(entries[e, 1])
            if average_scale != 0:
                w -= average_scale * np.float64(entries[e, 2])
            part += w * w
        total += part
    return total
