"""Compiled code that every loss shares: score a row, move its duals, update the weights.

Weights are stored feature by feature, shape (n_features, K): K is the number of classes padded to
whole vectors, so that scoring a row is one contiguous axpy for each of its non-zeros.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

OPTIONS: dict[str, Any] = {
    "cache": True,  # compiled once a machine, then loaded from disk
    "nogil": True,  # the reading thread runs beside the kernel
    "error_model": "numpy",  # a division needs no branch for zero
    # Sums may be reordered and fused into vectors. Not nnan, ninf or arcp: damaged numbers must
    # stay visible, and a quotient must stay the correctly rounded one.
    "fastmath": {"reassoc", "contract", "nsz"},
}


@functools.cache
def _source_digest() -> str:
    """Hash of every file that holds kernels."""
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for path in [here / "kernels.py", here / "rows.py", *sorted((here / "losses").glob("*.py"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def kernel(function: Callable) -> Any:
    """Compile `function` with the project's options, and cache it until any kernel file changes.

    Numba alone compares only the file that the function stands in, and would go on loading a
    stale callee that was inlined from another one.
    """
    dispatcher = numba.njit(**OPTIONS)(function)
    files: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(files, "_source_stamp"):
        files._source_stamp = (files._source_stamp, _source_digest())
    return dispatcher


def is_compiled(dispatcher: Any) -> bool:
    """Whether a kernel is compiled already, in memory or on disk, for any types."""
    if dispatcher.signatures:
        return True
    files: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    return bool(files._load_index()) if hasattr(files, "_load_index") else True


# -- order -----------------------------------------------------------------------------------------

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64 (Steele, Lea & Flood 2014)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@kernel
def mix(state):
    """The SplitMix64 finaliser: a bijection of 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))


@kernel
def permutation(n, seed, stage, block, inner):
    """A shuffle of 0..n-1 (int64) that depends on nothing but its arguments."""
    key = mix(np.uint64(seed) + _GAMMA)
    key = mix(key ^ mix(np.uint64(stage) + _GAMMA))
    key = mix(key ^ mix(np.uint64(block) + _GAMMA))
    key = mix(key ^ mix(np.uint64(inner) + _GAMMA))
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        draw = mix(key + np.uint64(i) * _GAMMA)
        j = np.int64(draw % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return order


# -- rows and weights ------------------------------------------------------------------------------


def padded_classes(n_classes: int, dtype: np.dtype) -> int:
    """Columns of the weights: whole 64-byte lines, or a power of two of columns below half a line."""
    if n_classes * dtype.itemsize <= 32:
        return 1 << max(n_classes - 1, 1).bit_length()
    line = 64 // dtype.itemsize
    return -(-n_classes // line) * line


@kernel
def score_row(scores, rows, i, weights):
    """Write the scores wᵀx of row `i` into `scores`, shape (K,), in the weights' dtype."""
    indices, data = rows.indices, rows.data
    K = len(scores)
    begin, end = rows.indptr[i], rows.indptr[i + 1]
    scores[:] = 0
    p = begin
    while p + 4 <= end:  # four non-zeros at a time: a quarter of the traffic to `scores`
        w0, w1 = weights[indices[p]], weights[indices[p + 1]]
        w2, w3 = weights[indices[p + 2]], weights[indices[p + 3]]
        x0, x1, x2, x3 = data[p], data[p + 1], data[p + 2], data[p + 3]
        for c in range(K):
            scores[c] += (x0 * w0[c] + x1 * w1[c]) + (x2 * w2[c] + x3 * w3[c])
        p += 4
    while p < end:
        w0, x0 = weights[indices[p]], data[p]
        for c in range(K):
            scores[c] += x0 * w0[c]
        p += 1


@kernel
def update_weights(weights, rows, i, delta, changed, n_changed):
    """Add x_i deltaᵀ to the weights, in place.

    `delta`, shape (K,), is zero but in the columns ``changed[:n_changed]``.
    """
    indices, data = rows.indices, rows.data
    K = len(delta)
    if 4 * n_changed > K:  # a contiguous sweep beats scattered columns
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            w, x = weights[indices[p]], data[p]
            for c in range(K):
                w[c] += x * delta[c]
    else:
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            w, x = weights[indices[p]], data[p]
            for t in range(n_changed):
                w[changed[t]] += x * delta[changed[t]]


@kernel
def first_argmax(scores, n_classes):
    """The class of the highest score, the first of equal ones; what `predict` answers."""
    best = 0
    for c in range(1, n_classes):
        if scores[c] > scores[best]:
            best = c
    return best


# What a kernel adds up, by position in a float64 array of shape (N_TALLIES,).
DUAL_SUM, LOSS_SUM, CORRECT, VISITED, EMPTY = range(5)
N_TALLIES = 5


@kernel
def meet_row(scores, rows, i, weights, n_classes, tally):
    """Score row `i`, and count it and whether its class wins.

    Returns whether it has a part in the objective: not without a known label, and not with norm 0,
    where all scores are equal and the first class wins whatever the weights.
    """
    y = rows.labels[i]
    tally[VISITED] += 1
    if rows.norm2[i] == 0 or y < 0:
        tally[EMPTY] += 1
        tally[CORRECT] += y == 0
        return False
    score_row(scores, rows, i, weights)
    tally[CORRECT] += first_argmax(scores, n_classes) == y
    return True


@kernel
def score_rows(rows, begin, end, weights, scores):
    """Write the scores of the rows `begin` to `end` into the first rows of `scores`, shape (any, K)."""
    for i in range(begin, end):
        score_row(scores[i - begin], rows, i, weights)


@kernel
def sum_of_squares(weights):
    """‖w‖² in float64, row after row."""
    total = 0.0
    for f in range(weights.shape[0]):
        w = weights[f]
        part = 0.0
        for c in range(len(w)):
            part += np.float64(w[c]) * np.float64(w[c])
        total += part
    return total


# -- duals -----------------------------------------------------------------------------------------


class OldDuals(NamedTuple):
    """A block's duals as the last pass left them: row i has ``counts[i]`` non-zeros.

    Class ids are ``ids[ids_at[i]:]``, values ``values[values_at[i]:]``; the two arrays usually are
    views of one memory-mapped log, hence an offset each.
    """

    ids: np.ndarray  # (any,) uint8, uint16 or uint32
    values: np.ndarray  # (any,) dtype of the weights
    ids_at: np.ndarray  # (n_rows,) int64
    values_at: np.ndarray  # (n_rows,) int64
    counts: np.ndarray  # (n_rows,) int32


class Pool(NamedTuple):
    """Where a kernel appends the new duals, in the order in which it visits the rows."""

    ids: np.ndarray  # (capacity,) uint8, uint16 or uint32
    values: np.ndarray  # (capacity,) dtype of the weights
    rows: np.ndarray  # (n_rows,) int32: the rows visited so far
    counts: np.ndarray  # (n_rows,) int32: non-zeros of each of them
    used: np.ndarray  # (2,) int64: entries and rows filled


class Scratch(NamedTuple):
    """One row's working space, shape (K,) each; `beta` and `delta` are zero between visits."""

    scores: np.ndarray
    v: np.ndarray
    beta: np.ndarray
    delta: np.ndarray
    changed: np.ndarray  # int64

    @classmethod
    def create(cls, K: int, dtype: np.dtype) -> Scratch:
        scores, v, beta, delta = np.zeros((4, K), dtype)
        return cls(scores, v, beta, delta, np.zeros(K, np.int64))


@kernel
def load_duals(old, i, beta):
    """Scatter row `i`'s old duals into `beta`, all zero before; return their float64 sum."""
    total = 0.0
    for t in range(old.counts[i]):
        value = old.values[old.values_at[i] + t]
        beta[old.ids[old.ids_at[i] + t]] = value
        total += value
    return total


@kernel
def has_room(pool, entries):
    return pool.used[0] + entries <= len(pool.ids)


@kernel
def settle_row(rows, i, y, weights, scale, scratch, pool, keep):
    """Replace row `i`'s duals by ``scratch.v``, and move the weights along.

    On entry ``scratch.beta`` holds the old duals and ``scratch.v`` the new ones, both zero for
    class `y` and for the padding. Weights change by ``scale * x_i * (old - new)`` in a class, and by
    the opposite of the sum of these in class `y`. New duals go to the pool if `keep`. On return
    ``scratch.beta`` is zero. Returns the float64 sum of the new duals.
    """
    new, old, delta, changed = scratch.v, scratch.beta, scratch.delta, scratch.changed
    n_changed = 0
    n_kept = 0
    shift = 0.0
    total = 0.0
    at = pool.used[0]
    for c in range(len(new)):
        value, before = new[c], old[c]
        if value != before:
            step = value - before
            delta[c] = -scale * step
            shift += step
            changed[n_changed] = c
            n_changed += 1
            old[c] = 0
        elif before != 0:
            old[c] = 0
        if value != 0:
            total += value
            if keep:
                pool.ids[at + n_kept] = c
                pool.values[at + n_kept] = value
            n_kept += 1
    if n_changed > 0:
        delta[y] = scale * shift
        changed[n_changed] = y
        n_changed += 1
        update_weights(weights, rows, i, delta, changed, n_changed)
        for t in range(n_changed):
            delta[changed[t]] = 0
    if keep:
        r = pool.used[1]
        pool.rows[r] = i
        pool.counts[r] = n_kept
        pool.used[0] = at + n_kept
        pool.used[1] = r + 1
    return total
