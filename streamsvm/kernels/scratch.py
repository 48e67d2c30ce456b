"""Scratch arrays of a block step, and the lists and masks of the classes that it considers.

A block step handles `LANES` weight columns at a time, as the lanes of a vector. ``vectors`` lists the first
columns of all vectors, or only of the vectors in which a dual may be non-zero. Lanes without a dual are
*hidden*, which means that -infinity is added to their scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import LANES, LOG_LANES, VECTOR_BYTES, cast, load_like, not_below, store, zeros


def own_lines(length: int, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return an array of zeros that shares no cache line with other data, to avoid false sharing."""
    n_bytes = length * np.dtype(dtype).itemsize
    memory = np.zeros(n_bytes + 2 * VECTOR_BYTES, np.uint8)
    begin = -memory.ctypes.data % VECTOR_BYTES
    return memory[begin : begin + n_bytes].view(dtype)


class Scratch(NamedTuple):
    """Scratch arrays of one thread. ``delta``, ``old``, ``lanes`` and ``own`` are zero between visits.

    K is the number of weight columns, and L = `LANES`. An array "by position" stores the lanes of
    ``vectors[r]`` from position r L on. The other arrays of length K are indexed by column.
    """

    scores: np.ndarray  # (K,) dtype of the weights
    delta: np.ndarray  # (K,) the same: multiples of the row to add to the weights
    hidden: np.ndarray  # (K,) the same: 0 in lanes with a dual, else -infinity
    old: np.ndarray  # (K,) float64: old duals
    v: np.ndarray  # (K + 8,) float64, by position: linear term of the block problem, then new duals
    lanes: np.ndarray  # (K / L + 1,) int64: mask of the listed lanes of each vector; 0 if not listed
    own: np.ndarray  # (K / L + 1,) int64: mask of the row's true classes in each vector
    all_vectors: np.ndarray  # (K / L + 1,) int64: first columns of the vectors of all classes
    vectors: np.ndarray  # (K / L + 1,) int64: first columns of the listed vectors
    moved: np.ndarray  # (K / L + 1,) int64: first columns of the vectors in which the weights change
    ids: np.ndarray  # (K,) int64: candidates of `common_dual`, the classes that may get a listed dual
    before: np.ndarray  # (K,) float64: old duals of the candidates

    @classmethod
    def create(cls, K: int, dtype: np.dtype) -> Scratch:
        n_vectors = K // LANES
        arrays = [own_lines(K, dtype) for _ in range(3)]
        arrays += [own_lines(K), own_lines(K + LANES)]
        arrays += [own_lines(n_vectors + 1, np.int64) for _ in range(5)]
        return cls._make([*arrays, own_lines(K, np.int64), own_lines(K)])


@inlined
def mark_class(c, scratch, n_vectors):
    """Set the bit of class `c`, list its vector unless it is listed already; return the number of vectors."""
    q = c >> LOG_LANES
    scratch.vectors[n_vectors] = q << LOG_LANES
    n_vectors += scratch.lanes[q] == 0
    scratch.lanes[q] |= 1 << (c & (LANES - 1))
    return n_vectors


@inlined
def mark_classes(old, i, scratch):
    """List the vectors of the classes for which row `i` has an old dual; return the number of vectors."""
    n_vectors = 0
    for r in range(old.counts[i]):
        n_vectors = mark_class(np.int64(old.ids[old.at[i] + r]), scratch, n_vectors)
    return n_vectors


@inlined
def mark_vectors_above(limit, n_all, scratch, n_vectors):
    """List the vectors with a score that is at least `limit` or NaN; return the number of vectors."""
    scores, like = scratch.scores, cast(zeros(), scratch.scores)
    for r in range(n_all):
        c = scratch.all_vectors[r]
        hits = not_below(load_like(scores, c, like), limit)
        if hits != 0:
            q = c >> LOG_LANES
            scratch.vectors[n_vectors] = c
            n_vectors += scratch.lanes[q] == 0
            scratch.lanes[q] |= hits
    return n_vectors


@inlined
def clear_lanes(scratch, n_vectors):
    for r in range(n_vectors):
        scratch.lanes[scratch.vectors[r] >> LOG_LANES] = 0


@inlined
def show_all_classes(problem, n_shared, scratch):
    """Fill ``all_vectors``, hide the padding and the shared column, and return the number of vectors."""
    n_vectors = 0
    for r in range(len(problem.ranges)):
        first, end = problem.ranges[r, 0], min(problem.ranges[r, 2], len(scratch.scores))
        n_classes = min(problem.ranges[r, 1], problem.n_classes)
        for c in range(first, end):
            scratch.hidden[c] = 0.0 if c < n_classes else -np.inf
        for c in range(first, min(end, n_classes + n_shared), LANES):
            scratch.all_vectors[n_vectors] = c
            n_vectors += 1
    return n_vectors


@inlined
def list_all(n_all, scratch):
    for r in range(n_all):
        scratch.vectors[r] = scratch.all_vectors[r]
        scratch.lanes[scratch.vectors[r] >> LOG_LANES] = -1


@inlined
def show_classes(old, i, scratch, n_vectors):
    """In the listed vectors, hide all classes for which row `i` has no old dual."""
    for r in range(n_vectors):
        store(scratch.hidden, scratch.vectors[r], zeros() - np.inf)
    for r in range(old.counts[i]):
        scratch.hidden[old.ids[old.at[i] + r]] = 0.0


@inlined
def own_bits(y, c, own):
    """Return the mask of the true classes in the vector at `c`; `own` is None if `y` is the only one."""
    if own is None:
        return 1 << (y - c) if 0 <= y - c < LANES else 0
    return own[c >> LOG_LANES]
