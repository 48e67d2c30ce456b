"""The classes that a block step works on, and the vectors of the scores that they are in.

The *candidates* of a row are the classes that may have a dual after the visit. Scoring and updating go by
vectors of classes (see `streamsvm.kernels.simd`), so beside the candidates themselves the first classes of
their vectors are kept, each once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.memory import own_lines
from streamsvm.kernels.simd import (
    VECTOR_BYTES,
    lanes,
    load,
    log2_lanes,
    lowest_bit,
    max_lanes,
    maximum,
    not_below,
    splat,
)


class Scratch(NamedTuple):
    """The working space of a block step. ``delta`` and ``candidates`` are zero between visits.

    The `m` candidates are the first entries of ``ids``, ``before`` and ``v``.
    """

    scores: np.ndarray  # (K,) dtype of the weights
    delta: np.ndarray  # (K,) the same: by class, what the row is multiplied by to update the weights
    ids: np.ndarray  # (K,) int64: the candidates' classes
    before: np.ndarray  # (K,) float64: their old duals
    # (K + 8,) float64: their linear term in the block problem, then their new duals; room for a last vector
    v: np.ndarray
    candidates: np.ndarray  # (K / lanes,) int64: by vector, bits of the candidates and of the row's own class
    vectors: np.ndarray  # (K / lanes + 1,) int64: first classes of the vectors in which bits are set

    @classmethod
    def create(cls, K: int, dtype: np.dtype) -> Scratch:
        n_vectors = K * dtype.itemsize // VECTOR_BYTES
        return cls(
            own_lines(K, dtype), own_lines(K, dtype), own_lines(K, np.int64), own_lines(K), own_lines(K + 8),
            own_lines(n_vectors, np.int64), own_lines(n_vectors + 1, np.int64),
        )  # fmt: skip


@inlined
def mark_class(c, scratch, n_vectors):
    """Set the bit of class `c`, and append its vector if that is new; return the number of vectors."""
    log_lanes = log2_lanes(scratch.scores)
    q = c >> log_lanes
    scratch.vectors[n_vectors] = q << log_lanes
    n_vectors += scratch.candidates[q] == 0
    scratch.candidates[q] |= 1 << (c - (q << log_lanes))
    return n_vectors


@inlined
def add_candidate(c, dual, scratch, m, n_vectors):
    """Append class `c`, whose old dual is `dual`, to the `m` candidates; return the number of vectors."""
    scratch.ids[m] = c
    scratch.before[m] = dual
    return mark_class(c, scratch, n_vectors)


@inlined
def add_candidates_above(threshold, problem, scratch, m, n_vectors):
    """Append the problem's classes without a bit, and a score of at least `threshold`, to the `m` candidates.

    A score that is NaN counts as above, so that damaged numbers are not overlooked. Returns the number of
    candidates and the number of vectors.
    """
    scores, candidates = scratch.scores, scratch.candidates
    L, log_lanes = lanes(scores), log2_lanes(scores)
    limit = splat(scores.dtype.type(threshold))
    for r in range(len(problem.ranges)):
        first, end = problem.ranges[r, 0], min(problem.ranges[r, 1], problem.n_classes)
        while first < end:
            hits = not_below(load(scores, first), limit) & ~candidates[first >> log_lanes]
            if first + L > end:
                hits &= (1 << (end - first)) - 1  # not the padding
            while hits != 0:
                c = first + lowest_bit(hits)
                hits &= hits - 1
                n_vectors = add_candidate(c, 0.0, scratch, m, n_vectors)
                m += 1
            first += L
    return m, n_vectors


@inlined
def is_candidate(c, scratch):
    """Whether the bit of class `c` is set."""
    log_lanes = log2_lanes(scratch.scores)
    return (scratch.candidates[c >> log_lanes] >> (c & ((1 << log_lanes) - 1))) & 1 != 0


@inlined
def best_wrong_class(y, n_classes, scores):
    """The class other than `y` with the largest score, the first of equals; `y` if there is no other.

    A class whose score is NaN may be returned instead, so that damage stays visible.
    """
    L = lanes(scores)
    own, lowest = scores[y], scores.dtype.type(-np.inf)
    scores[y] = lowest
    n_whole = (n_classes >> log2_lanes(scores)) << log2_lanes(scores)
    best = splat(lowest)
    first = 0
    while first < n_whole:
        best = maximum(load(scores, first), best)
        first += L
    top = max_lanes(best)
    for c in range(n_whole, n_classes):  # without the padding
        top = max(top, scores[c])
    limit, found, first = splat(top), np.int64(y == 0), 0
    while first < n_classes:
        hits = not_below(load(scores, first), limit)
        if hits != 0:
            found = min(first + lowest_bit(hits), n_classes - 1)
            break
        first += L
    scores[y] = own
    return found


@inlined
def clear_candidates(scratch, n_vectors):
    """Clear the bits that `mark_class` set."""
    log_lanes = log2_lanes(scratch.scores)
    for q in range(n_vectors):
        scratch.candidates[scratch.vectors[q] >> log_lanes] = 0


@inlined
def beats(c, y, scores):
    """Whether class `c` is predicted rather than class `y`: of equal scores, the first class wins."""
    return (scores[c] > scores[y]) | ((scores[c] == scores[y]) & (c < y))
