"""Scores wᵀx of rows: all classes of a row, or only some vectors of them."""

from __future__ import annotations

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import (
    item,
    lanes,
    load,
    load2,
    load2_first,
    load2_like,
    multiply_add,
    narrow,
    splat,
    store,
    store_first,
    zeros,
)


@inlined
def score_row(scores, rows, i, weights, first, K):
    """Write the scores wᵀx of row `i` into ``scores[first:K]``, in the weights' dtype.

    Four sums at a time stay in registers while the row's non-zeros go by; four hide the latency of
    an addition. A partial last vector occurs only in saved models, which are not padded.
    """
    indices, data = rows.indices, rows.data
    begin, end = rows.indptr[i], rows.indptr[i + 1]
    L = lanes(weights)
    zero = splat(weights.dtype.type(0))
    c = first
    while c + 4 * L <= K:
        s0 = s1 = s2 = s3 = zero
        for p in range(begin, end):
            f, x = item(indices, p), splat(item(data, p))
            s0 = multiply_add(x, load2(weights, f, c), s0)
            s1 = multiply_add(x, load2(weights, f, c + L), s1)
            s2 = multiply_add(x, load2(weights, f, c + 2 * L), s2)
            s3 = multiply_add(x, load2(weights, f, c + 3 * L), s3)
        store(scores, c, s0)
        store(scores, c + L, s1)
        store(scores, c + 2 * L, s2)
        store(scores, c + 3 * L, s3)
        c += 4 * L
    if c + 2 * L <= K:
        s0 = s1 = s2 = s3 = zero
        p = begin
        while p + 2 <= end:
            f, x = item(indices, p), splat(item(data, p))
            s0 = multiply_add(x, load2(weights, f, c), s0)
            s1 = multiply_add(x, load2(weights, f, c + L), s1)
            f, x = item(indices, p + 1), splat(item(data, p + 1))
            s2 = multiply_add(x, load2(weights, f, c), s2)
            s3 = multiply_add(x, load2(weights, f, c + L), s3)
            p += 2
        if p < end:
            f, x = item(indices, p), splat(item(data, p))
            s0 = multiply_add(x, load2(weights, f, c), s0)
            s1 = multiply_add(x, load2(weights, f, c + L), s1)
        store(scores, c, s0 + s2)
        store(scores, c + L, s1 + s3)
        c += 2 * L
    if c + L <= K:
        store(scores, c, _score_vector(rows, i, weights, c))
        c += L
    if c < K:
        s0 = s1 = s2 = s3 = zero
        p = begin
        while p + 4 <= end:
            s0 = multiply_add(splat(item(data, p)), load2_first(weights, item(indices, p), c, K - c), s0)
            s1 = multiply_add(
                splat(item(data, p + 1)), load2_first(weights, item(indices, p + 1), c, K - c), s1
            )
            s2 = multiply_add(
                splat(item(data, p + 2)), load2_first(weights, item(indices, p + 2), c, K - c), s2
            )
            s3 = multiply_add(
                splat(item(data, p + 3)), load2_first(weights, item(indices, p + 3), c, K - c), s3
            )
            p += 4
        while p < end:
            s0 = multiply_add(splat(item(data, p)), load2_first(weights, item(indices, p), c, K - c), s0)
            p += 1
        store_first(scores, c, (s0 + s1) + (s2 + s3), K - c)


@inlined
def _score_vector(rows, i, weights, c):
    """Return the scores of row `i` for the vector of classes that begins at `c`."""
    indices, data = rows.indices, rows.data
    p, end = rows.indptr[i], rows.indptr[i + 1]
    s0 = s1 = s2 = s3 = splat(weights.dtype.type(0))
    while p + 4 <= end:
        s0 = multiply_add(splat(item(data, p)), load2(weights, item(indices, p), c), s0)
        s1 = multiply_add(splat(item(data, p + 1)), load2(weights, item(indices, p + 1), c), s1)
        s2 = multiply_add(splat(item(data, p + 2)), load2(weights, item(indices, p + 2), c), s2)
        s3 = multiply_add(splat(item(data, p + 3)), load2(weights, item(indices, p + 3), c), s3)
        p += 4
    while p < end:
        s0 = multiply_add(splat(item(data, p)), load2(weights, item(indices, p), c), s0)
        p += 1
    return (s0 + s1) + (s2 + s3)


@inlined
def score_ranges(scores, rows, i, weights, problem):
    """Write the scores of row `i` for the classes of `problem`, and for their padding."""
    for r in range(len(problem.ranges)):
        score_row(scores, rows, i, weights, problem.ranges[r, 0], min(problem.ranges[r, 2], len(scores)))


@inlined
def score_vectors(scores, rows, i, weights, vectors, n_vectors):
    """As `score_row`, but only for the `LANES` classes from each of ``vectors[:n_vectors]`` on."""
    indices, data, zero = rows.indices, rows.data, narrow(zeros(), weights)
    end = rows.indptr[i + 1]
    for q in range(0, n_vectors, 2):
        c0, c1 = vectors[q], vectors[min(q + 1, n_vectors - 1)]
        s0 = s1 = s2 = s3 = zero
        p = rows.indptr[i]
        while p + 2 <= end:
            f, x = item(indices, p), item(data, p)
            s0 = multiply_add(x, load2_like(weights, f, c0, zero), s0)
            s1 = multiply_add(x, load2_like(weights, f, c1, zero), s1)
            f, x = item(indices, p + 1), item(data, p + 1)
            s2 = multiply_add(x, load2_like(weights, f, c0, zero), s2)
            s3 = multiply_add(x, load2_like(weights, f, c1, zero), s3)
            p += 2
        if p < end:
            f, x = item(indices, p), item(data, p)
            s0 = multiply_add(x, load2_like(weights, f, c0, zero), s0)
            s1 = multiply_add(x, load2_like(weights, f, c1, zero), s1)
        store(scores, c0, s0 + s2)
        store(scores, c1, s1 + s3)


@inlined
def subtract_scores(scores, other, factor):
    """Subtract `factor` times `other` from `scores`, both of shape (K,), and set `other` to zero."""
    minus, zero = splat(other.dtype.type(-factor)), splat(other.dtype.type(0))
    c = 0
    while c < len(scores):
        store(scores, c, multiply_add(minus, load(other, c), load(scores, c)))
        store(other, c, zero)
        c += lanes(scores)


@kernel
def score_rows(rows, begin, end, weights, scores):
    """Write the scores of the rows `begin` to `end` into the first rows of `scores`, shape (any, K)."""
    for i in range(begin, end):
        score_row(scores[i - begin], rows, i, weights, 0, scores.shape[1])
