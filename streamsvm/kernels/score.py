"""Compute the scores wᵀx of rows, for all classes or for some vectors of classes."""

from __future__ import annotations

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import (
    cast,
    item,
    lanes,
    load,
    load_first,
    load_like,
    multiply_add,
    store,
    store_first,
    zeros,
    zeros_like,
)
from streamsvm.kernels.sparse_rows import AVERAGE_DELTA, score_by_sparse_rows
from streamsvm.kernels.tile import begin_tile_row, load_tile_scores


@inlined
def feature(indices, p, begin):
    """Return the feature of entry `p` in a row that starts at `begin`; `indices` is None for dense rows."""
    if indices is None:
        return p - begin
    return item(indices, p)


@inlined
def score_row(scores, rows, i, weights, first, K):
    """Write the scores wᵀx of row `i` to ``scores[first:K]``, in the dtype of the weights."""
    L, zero, c = lanes(weights), zeros_like(weights), first
    indices, data, begin, end = rows.indices, rows.data, rows.indptr[i], rows.indptr[i + 1]
    while c + 4 * L <= K:  # four sums in registers hide the latency of an addition
        s0 = s1 = s2 = s3 = zero
        for p in range(begin, end):
            f, x = feature(indices, p, begin), item(data, p)
            s0 = multiply_add(x, load(weights, (f, c)), s0)
            s1 = multiply_add(x, load(weights, (f, c + L)), s1)
            s2 = multiply_add(x, load(weights, (f, c + 2 * L)), s2)
            s3 = multiply_add(x, load(weights, (f, c + 3 * L)), s3)
        store(scores, c, s0)
        store(scores, c + L, s1)
        store(scores, c + 2 * L, s2)
        store(scores, c + 3 * L, s3)
        c += 4 * L
    if c + 2 * L <= K:
        _score_two(scores, rows, i, weights, c, c + L, zero)
        c += 2 * L
    if c + L <= K:
        store(scores, c, _score_one(rows, i, weights, c, None))
        c += L
    if c < K:  # a partial vector, because saved models are not padded
        store_first(scores, c, K - c, _score_one(rows, i, weights, c, K - c))


@inlined
def _score_two(scores, rows, i, weights, c0, c1, zero):
    indices, data, begin, end = rows.indices, rows.data, rows.indptr[i], rows.indptr[i + 1]
    p = begin
    s0 = s1 = s2 = s3 = zero
    while p + 2 <= end:
        f, x = feature(indices, p, begin), item(data, p)
        s0 = multiply_add(x, load_like(weights, (f, c0), zero), s0)
        s1 = multiply_add(x, load_like(weights, (f, c1), zero), s1)
        f, x = feature(indices, p + 1, begin), item(data, p + 1)
        s2 = multiply_add(x, load_like(weights, (f, c0), zero), s2)
        s3 = multiply_add(x, load_like(weights, (f, c1), zero), s3)
        p += 2
    if p < end:
        f, x = feature(indices, p, begin), item(data, p)
        s0 = multiply_add(x, load_like(weights, (f, c0), zero), s0)
        s1 = multiply_add(x, load_like(weights, (f, c1), zero), s1)
    store(scores, c0, s0 + s2)
    store(scores, c1, s1 + s3)


@inlined
def _score_one(rows, i, weights, c, count):
    data, begin, end = rows.data, rows.indptr[i], rows.indptr[i + 1]
    p = begin
    s0 = s1 = s2 = s3 = zeros_like(weights)
    while p + 4 <= end:
        s0 = multiply_add(item(data, p), _weights_of(rows.indices, p, begin, weights, c, count), s0)
        s1 = multiply_add(item(data, p + 1), _weights_of(rows.indices, p + 1, begin, weights, c, count), s1)
        s2 = multiply_add(item(data, p + 2), _weights_of(rows.indices, p + 2, begin, weights, c, count), s2)
        s3 = multiply_add(item(data, p + 3), _weights_of(rows.indices, p + 3, begin, weights, c, count), s3)
        p += 4
    while p < end:
        s0 = multiply_add(item(data, p), _weights_of(rows.indices, p, begin, weights, c, count), s0)
        p += 1
    return (s0 + s1) + (s2 + s3)


@inlined
def _weights_of(indices, p, begin, weights, c, count):
    if count is None:
        return load(weights, (feature(indices, p, begin), c))
    return load_first(weights, (feature(indices, p, begin), c), count)


@inlined
def score_ranges(scores, rows, i, weights, problem):
    for r in range(len(problem.ranges)):
        score_row(scores, rows, i, weights, problem.ranges[r, 0], min(problem.ranges[r, 2], len(scores)))


@inlined
def score_visit(scores, rows, i, weights, tile, t, problem):
    """Write the scores of row `i` for a visit, taken from row `t` of the tile if there is one."""
    if tile is None:
        score_ranges(scores, rows, i, weights.current, problem)
    else:
        begin_tile_row(scores, tile, t)


@inlined
def score_fixed(scores, rows, i, matrix, tile, sparse_rows, array, problem):
    """Write scores of row `i` outside a visit, from `array` of the sparse rows, `matrix`, or the tile."""
    if sparse_rows is not None:
        score_by_sparse_rows(scores, sparse_rows, rows, i, array)
    elif tile is None:
        score_ranges(scores, rows, i, matrix, problem)
    else:
        load_tile_scores(scores, tile.average_scores if array == AVERAGE_DELTA else tile.scores, i)


@inlined
def score_vectors(scores, rows, i, weights, vectors, n_vectors):
    """Like `score_row`, but only for the vectors of `LANES` classes that start at ``vectors[:n_vectors]``."""
    for q in range(0, n_vectors, 2):
        c0, c1 = vectors[q], vectors[min(q + 1, n_vectors - 1)]
        _score_two(scores, rows, i, weights, c0, c1, cast(zeros(), weights))


@inlined
def subtract_scores(scores, other, factor):
    """Subtract `factor` times `other` from `scores`, and set `other` to zero."""
    minus = other.dtype.type(-factor)
    for c in range(0, len(scores), lanes(scores)):
        store(scores, c, multiply_add(minus, load(other, c), load(scores, c)))
        store(other, c, zeros_like(other))


@kernel
def score_rows(rows, begin, end, weights, scores):
    """Write the scores of ``rows[begin:end]`` to the first rows of `scores`, with one column per class."""
    for i in range(begin, end):
        score_row(scores[i - begin], rows, i, weights, 0, scores.shape[1])
