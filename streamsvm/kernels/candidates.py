"""Lists of classes that a block step works on, where there are so many classes that vectors of all are slow.

The *candidates* of a row are the classes that may have a dual of their own after the visit: the first `m`
entries of ``scratch.ids``, ``scratch.before`` and ``scratch.v``.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import mark_class
from streamsvm.kernels.simd import (
    LANES,
    LOG_LANES,
    cast,
    lanes,
    load,
    load_like,
    lowest_bit,
    max_lanes,
    maximum,
    not_below,
    zeros,
    zeros_like,
)


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
    scores, marks = scratch.scores, scratch.lanes
    thin, limit = cast(zeros(), scores), scores.dtype.type(threshold)
    for r in range(len(problem.ranges)):
        first, end = problem.ranges[r, 0], min(problem.ranges[r, 1], problem.n_classes)
        while first < end:
            hits = not_below(load_like(scores, first, thin), limit) & ~marks[first >> LOG_LANES]
            if first + LANES > end:
                hits &= (1 << (end - first)) - 1  # not the padding
            while hits != 0:
                c = first + lowest_bit(hits)
                hits &= hits - 1
                n_vectors = add_candidate(c, 0.0, scratch, m, n_vectors)
                m += 1
            first += LANES
    return m, n_vectors


@inlined
def is_candidate(c, scratch):
    """Return True if the bit of class `c` is set."""
    return (scratch.lanes[c >> LOG_LANES] >> (c & (LANES - 1))) & 1 != 0


@inlined
def best_wrong_class(y, n_classes, scores):
    """Return the class other than `y` with the largest score, the first of equals; `y` if there is no other.

    A class whose score is NaN may be returned instead, so that damage stays visible.
    """
    L = lanes(scores)
    own, lowest = scores[y], scores.dtype.type(-np.inf)
    scores[y] = lowest
    n_whole = n_classes // L * L
    best = zeros_like(scores) - np.inf
    first = 0
    while first < n_whole:
        best = maximum(load(scores, first), best)
        first += L
    top = max_lanes(best)
    for c in range(n_whole, n_classes):  # without the padding
        top = max(top, scores[c])
    found, first = np.int64(y == 0), 0
    while first < n_classes:
        hits = not_below(load(scores, first), top)
        if hits != 0:
            found = min(first + lowest_bit(hits), n_classes - 1)
            break
        first += L
    scores[y] = own
    return found


@inlined
def beats(c, y, scores):
    """Return True if class `c` is predicted rather than `y`: of equal scores, the first class wins."""
    return (scores[c] > scores[y]) | ((scores[c] == scores[y]) & (c < y))
