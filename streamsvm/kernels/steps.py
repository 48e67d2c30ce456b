"""Compiled code that every loss shares: score a row, move its duals, update the weights.

Weights are stored feature by feature, shape (n_features, K): K is the number of classes padded to
whole vectors, so that scoring a row is one contiguous axpy for each of its non-zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import allocating as allocating
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.jit import is_compiled as is_compiled
from streamsvm.kernels.simd import (
    LINE,
    add,
    lane_bits,
    lanes,
    load,
    load2,
    load2_first,
    lowest_bit,
    multiply,
    multiply_add,
    not_below,
    prefetch,
    splat,
    store,
    store2,
    store_first,
)

# -- rows and weights ------------------------------------------------------------------------------

_AHEAD = 2  # rows fetched ahead of their visit: one is too late, more crowd the cache


class Rare(NamedTuple):
    """The weights of features that have lists instead of rows, and the block in work as far as they go.

    List f is ``entries[begin:begin + size]`` with ``begin, size, capacity = lists[f]``. An entry is a
    class, its weight, and with an average its lag.
    """

    indptr: np.ndarray  # (n_rows + 1,) int64: CSR rows, beside those of the block
    indices: np.ndarray  # (any,) int64: lists
    data: np.ndarray  # (any,) dtype of the weights
    entries: np.ndarray  # (room, 2 or 3) dtype of the weights
    lists: np.ndarray  # (n_lists, 3) int64
    changed: np.ndarray  # (n_lists,) uint8: since the last commit
    used: np.ndarray  # (1,) int64: entries given away
    left: np.ndarray  # (K / lanes,) int64: scratch

    @classmethod
    def none(cls, dtype: np.dtype) -> Rare:
        wide = np.int64
        indptr, indices, lists = np.zeros(1, wide), np.zeros(0, wide), np.zeros((0, 3), wide)
        entries, data = np.zeros((0, 2), dtype), np.zeros(0, dtype)
        changed, used, left = np.zeros(0, np.uint8), np.zeros(1, wide), np.zeros(0, wide)
        return cls(indptr, indices, data, entries, lists, changed, used, left)


class Weights(NamedTuple):
    """The weights in use and, for their average, how far it lags behind.

    The average of the iterates w_0..w_{T-1}, of which w_s weighs (s + 1)^p - s^p, is
    w_T - Σ_t (t/T)^p Δw_t. With time counted in units of `horizon`, ``lag`` is that sum. Visits are
    counted from where the average begins.
    """

    now: np.ndarray  # (n_features, K)
    lag: np.ndarray  # the same shape, or (0, K) where nothing is averaged
    horizon: float  # visits; infinite where nothing is averaged
    # (n_features, 2) uint64: groups of columns that changed, a bit each: since the last commit, and
    # before it. Group c >> shift has column c. Or (0, 2), where nothing is marked.
    marks: np.ndarray
    shift: int
    rare: Rare

    @classmethod
    def create(
        cls, now: np.ndarray, lag: np.ndarray, horizon: float, marks: np.ndarray | None = None
    ) -> Weights:
        """With groups of whole vectors, no more than 64; `marks` by default in memory."""
        columns, shift = now.shape[1], (LINE // now.itemsize).bit_length() - 1
        while columns > 64 << shift:
            shift += 1
        if marks is None:
            marks = np.zeros((len(now), 2), np.uint64)
        return cls(now, lag, horizon, marks, shift, Rare.none(now.dtype))


AVERAGE_POWER = 2  # p: iterate t weighs 2t + 1, for rare features are learned late


def padded_classes(n_classes: int, dtype: np.dtype) -> int:
    """Columns of the weights: whole vectors, which are cache lines too."""
    columns = LINE // dtype.itemsize
    return -(-n_classes // columns) * columns


@inlined
def _fetch_row(rows, i):
    """Begin to load row `i`, whose offsets are loaded."""
    p = rows.indptr[i]
    while p < rows.indptr[i + 1]:
        prefetch(rows.indices, p)
        prefetch(rows.data, p)
        p += lanes(rows.data)


@inlined
def fetch_ahead(rows, old, order, t, end):
    """Begin to load the row that is visited soon after ``order[t]``, and its duals.

    Rows are visited in random order, which no hardware foresees: without this, reading the row costs
    more than scoring it where there are few classes.
    """
    if t + 2 * _AHEAD < end:
        i = order[t + 2 * _AHEAD]
        prefetch(rows.indptr, i)
        prefetch(rows.labels, i)
        prefetch(rows.norm2, i)
        prefetch(old.counts, i)
        prefetch(old.ids_at, i)
        prefetch(old.values_at, i)
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        _fetch_row(rows, i)
        prefetch(old.ids, old.ids_at[i])
        prefetch(old.values, old.values_at[i])


@inlined
def fetch_ahead_again(rows, pool, starts, order, t):
    """As `fetch_ahead`, for the pool's rows ``order``."""
    if t + 3 * _AHEAD < len(order):
        prefetch(pool.rows, order[t + 3 * _AHEAD])
        prefetch(pool.counts, order[t + 3 * _AHEAD])
        prefetch(starts, order[t + 3 * _AHEAD])
    if t + 2 * _AHEAD < len(order):
        i = pool.rows[order[t + 2 * _AHEAD]]
        prefetch(rows.indptr, i)
        prefetch(rows.labels, i)
        prefetch(rows.norm2, i)
        prefetch(pool.ids, starts[order[t + 2 * _AHEAD]])
        prefetch(pool.values, starts[order[t + 2 * _AHEAD]])
    if t + _AHEAD < len(order):
        _fetch_row(rows, pool.rows[order[t + _AHEAD]])


@inlined
def score_row(scores, rows, i, weights):
    """Write the scores wᵀx of row `i` into `scores`, shape (K,), in the weights' dtype.

    Four sums at a time stay in registers while the row's non-zeros go by; four hide the latency of
    an addition. The last columns, less than a vector of them, only occur in a saved model.
    """
    indices, data = rows.indices, rows.data
    begin, end = rows.indptr[i], rows.indptr[i + 1]
    K, L = len(scores), lanes(weights)
    zero = splat(weights.dtype.type(0))
    c = 0
    while c + 4 * L <= K:
        s0 = s1 = s2 = s3 = zero
        for p in range(begin, end):
            f, x = indices[p], splat(data[p])
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
            f, x = indices[p], splat(data[p])
            s0 = multiply_add(x, load2(weights, f, c), s0)
            s1 = multiply_add(x, load2(weights, f, c + L), s1)
            f, x = indices[p + 1], splat(data[p + 1])
            s2 = multiply_add(x, load2(weights, f, c), s2)
            s3 = multiply_add(x, load2(weights, f, c + L), s3)
            p += 2
        if p < end:
            f, x = indices[p], splat(data[p])
            s0 = multiply_add(x, load2(weights, f, c), s0)
            s1 = multiply_add(x, load2(weights, f, c + L), s1)
        store(scores, c, add(s0, s2))
        store(scores, c + L, add(s1, s3))
        c += 2 * L
    if c + L <= K:
        store(scores, c, _score_line(rows, i, weights, c))
        c += L
    if c < K:
        s0 = s1 = s2 = s3 = zero
        p = begin
        while p + 4 <= end:
            s0 = multiply_add(splat(data[p]), load2_first(weights, indices[p], c, K - c), s0)
            s1 = multiply_add(splat(data[p + 1]), load2_first(weights, indices[p + 1], c, K - c), s1)
            s2 = multiply_add(splat(data[p + 2]), load2_first(weights, indices[p + 2], c, K - c), s2)
            s3 = multiply_add(splat(data[p + 3]), load2_first(weights, indices[p + 3], c, K - c), s3)
            p += 4
        while p < end:
            s0 = multiply_add(splat(data[p]), load2_first(weights, indices[p], c, K - c), s0)
            p += 1
        store_first(scores, c, add(add(s0, s1), add(s2, s3)), K - c)


@inlined
def add_rare_scores(scores, i, rare, column):
    """Add to `scores` what row `i`'s rare features give: by their weights, 1, or lags, 2."""
    if len(rare.lists) > 0:
        for p in range(rare.indptr[i], rare.indptr[i + 1]):
            f, x = rare.indices[p], rare.data[p]
            begin = rare.lists[f, 0]
            for e in range(begin, begin + rare.lists[f, 1]):
                scores[np.int64(rare.entries[e, 0])] += x * rare.entries[e, column]


@inlined
def has_space(i, weights, n_classes):
    """Whether the lists have room for whatever a visit of row `i` may add.

    A list moves at most once a visit, to a place for twice as many entries as it can have.
    """
    rare = weights.rare
    if len(rare.lists) == 0:
        return True
    return rare.used[0] + 2 * n_classes * (rare.indptr[i + 1] - rare.indptr[i]) <= len(rare.entries)


@inlined
def _make_room(rare, f, n):
    """Have list `f` hold `n` more entries: if it is full, it moves."""
    begin, size = rare.lists[f, 0], rare.lists[f, 1]
    if size + n > rare.lists[f, 2]:
        moved = rare.used[0]
        for e in range(size):
            for column in range(rare.entries.shape[1]):
                rare.entries[moved + e, column] = rare.entries[begin + e, column]
        rare.lists[f, 0], rare.lists[f, 2] = moved, max(size + n, 2 * size)
        rare.used[0] += rare.lists[f, 2]


@inlined
def move_rare(i, weights, scratch, n_lines, rate):
    """Add row `i`'s rare features times ``delta`` to their weights, and `rate` times as much to their lag."""
    rare, delta, listed, left = weights.rare, scratch.delta, scratch.listed, weights.rare.left
    shift = lane_bits(delta)
    mask = (1 << shift) - 1
    zero = delta.dtype.type(0)
    for p in range(rare.indptr[i], rare.indptr[i + 1]):
        f, x = rare.indices[p], rare.data[p]
        rare.changed[f] = 1
        for q in range(n_lines):
            left[scratch.lines[q] >> shift] = listed[scratch.lines[q] >> shift]
        for e in range(rare.lists[f, 0], rare.lists[f, 0] + rare.lists[f, 1]):
            c = np.int64(rare.entries[e, 0])
            if (listed[c >> shift] >> (c & mask)) & 1:
                step = x * delta[c]
                rare.entries[e, 1] += step
                if rare.entries.shape[1] > 2:
                    rare.entries[e, 2] += rate * step
                left[c >> shift] &= ~(1 << (c & mask))
        # None in an inner pass, which looks for no space: a class with a dual was moved before.
        n_new = 0
        for q in range(n_lines):
            first = scratch.lines[q]
            bits = left[first >> shift]
            while bits != 0:
                c = first + lowest_bit(bits)
                bits &= bits - 1
                n_new += delta[c] != zero
        if n_new == 0:
            continue
        _make_room(rare, f, n_new)
        for q in range(n_lines):
            first = scratch.lines[q]
            bits = left[first >> shift]
            while bits != 0:
                c = first + lowest_bit(bits)
                bits &= bits - 1
                if delta[c] != zero:
                    step = x * delta[c]
                    e = rare.lists[f, 0] + rare.lists[f, 1]
                    rare.entries[e, 0], rare.entries[e, 1] = c, step
                    if rare.entries.shape[1] > 2:
                        rare.entries[e, 2] = rate * step
                    rare.lists[f, 1] += 1


@inlined
def _score_line(rows, i, weights, c):
    """Scores of row `i` for the classes from `c`, as a vector."""
    indices, data = rows.indices, rows.data
    p, end = rows.indptr[i], rows.indptr[i + 1]
    s0 = s1 = s2 = s3 = splat(weights.dtype.type(0))
    while p + 4 <= end:
        s0 = multiply_add(splat(data[p]), load2(weights, indices[p], c), s0)
        s1 = multiply_add(splat(data[p + 1]), load2(weights, indices[p + 1], c), s1)
        s2 = multiply_add(splat(data[p + 2]), load2(weights, indices[p + 2], c), s2)
        s3 = multiply_add(splat(data[p + 3]), load2(weights, indices[p + 3], c), s3)
        p += 4
    while p < end:
        s0 = multiply_add(splat(data[p]), load2(weights, indices[p], c), s0)
        p += 1
    return add(add(s0, s1), add(s2, s3))


@inlined
def score_lines(scores, rows, i, weights, lines, n_lines):
    """As `score_row`, but only the vectors of `scores` that begin at ``lines[:n_lines]``."""
    indices, data = rows.indices, rows.data
    end = rows.indptr[i + 1]
    q = 0
    while q + 2 <= n_lines:
        c0, c1 = lines[q], lines[q + 1]
        s0 = s1 = s2 = s3 = splat(weights.dtype.type(0))
        p = rows.indptr[i]
        while p + 2 <= end:
            f, x = indices[p], splat(data[p])
            s0 = multiply_add(x, load2(weights, f, c0), s0)
            s1 = multiply_add(x, load2(weights, f, c1), s1)
            f, x = indices[p + 1], splat(data[p + 1])
            s2 = multiply_add(x, load2(weights, f, c0), s2)
            s3 = multiply_add(x, load2(weights, f, c1), s3)
            p += 2
        if p < end:
            f, x = indices[p], splat(data[p])
            s0 = multiply_add(x, load2(weights, f, c0), s0)
            s1 = multiply_add(x, load2(weights, f, c1), s1)
        store(scores, c0, add(s0, s2))
        store(scores, c1, add(s1, s3))
        q += 2
    if q < n_lines:
        store(scores, lines[q], _score_line(rows, i, weights, lines[q]))


@inlined
def add_line(weights, rows, i, c, step):
    """Add row `i` times the vector `step` to the weights, in the columns from `c`."""
    indices, data = rows.indices, rows.data
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        f = indices[p]
        store2(weights, f, c, multiply_add(splat(data[p]), step, load2(weights, f, c)))


@inlined
def add_lines(weights, rows, i, delta, lines, n_lines):
    """Add x_i deltaᵀ to the weights, in the vectors of `delta` that begin at ``lines[:n_lines]``."""
    indices, data = rows.indices, rows.data
    begin, end = rows.indptr[i], rows.indptr[i + 1]
    q = 0
    while q + 2 <= n_lines:
        c0, c1 = lines[q], lines[q + 1]
        step0, step1 = load(delta, c0), load(delta, c1)
        for p in range(begin, end):
            f, x = indices[p], splat(data[p])
            store2(weights, f, c0, multiply_add(x, step0, load2(weights, f, c0)))
            store2(weights, f, c1, multiply_add(x, step1, load2(weights, f, c1)))
        q += 2
    if q < n_lines:
        add_line(weights, rows, i, lines[q], load(delta, lines[q]))


# What a kernel adds up, by position in a float64 array of shape (N_TALLIES,): of the pass in
# progress, and from CLOCK on of the whole run.
DUAL_SUM, LOSS_SUM, CORRECT, VISITED, EMPTY, CLOCK, DUAL_LAG = range(7)
N_TALLIES = 7


@inlined
def is_idle(rows, i, tally):
    """Count row `i`; tell whether it has no part in the objective.

    So it is without a known label, and with norm 0, where all scores are equal and the first class
    wins whatever the weights.
    """
    y = rows.labels[i]
    tally[VISITED] += 1
    if rows.norm2[i] == 0 or y < 0:
        tally[EMPTY] += 1
        tally[CORRECT] += y == 0
        return True
    return False


@inlined
def score_last(rows, i, weights, scratch):
    """Write row `i`'s scores by the last iterate into ``scratch.scores``."""
    score_row(scratch.scores, rows, i, weights.now)
    add_rare_scores(scratch.scores, i, weights.rare, 1)


@inlined
def turn_to_average(rows, i, weights, lagging, scratch):
    """Turn row `i`'s scores by the last iterate into those by the weights ``now - lagging * lag``."""
    scores, delta = scratch.scores, scratch.delta
    score_row(delta, rows, i, weights.lag)
    add_rare_scores(delta, i, weights.rare, 2)
    factor, zero = splat(delta.dtype.type(-lagging)), splat(delta.dtype.type(0))
    c = 0
    while c < len(scores):
        store(scores, c, multiply_add(factor, load(delta, c), load(scores, c)))
        store(delta, c, zero)
        c += lanes(scores)


@kernel
def clear_lag_of_lists(rare):
    """Let the average of listed weights begin anew."""
    for f in range(len(rare.lists)):
        for e in range(rare.lists[f, 0], rare.lists[f, 0] + rare.lists[f, 1]):
            rare.entries[e, 2] = 0
        rare.changed[f] = rare.lists[f, 1] > 0


@kernel
def score_rows(rows, begin, end, weights, scores):
    """Write the scores of the rows `begin` to `end` into the first rows of `scores`, shape (any, K)."""
    for i in range(begin, end):
        score_row(scores[i - begin], rows, i, weights)


@kernel
def sum_of_squares(weights, lagging):
    """‖now - lagging * lag‖² in float64, row after row; ``lag`` is not read if `lagging` is 0.

    Nor is a row that never changed: where the weights are larger than memory, most are holes of a file.
    """
    now, lag, marks = weights.now, weights.lag, weights.marks
    total = 0.0
    for f in range(now.shape[0]):
        if len(marks) > 0 and marks[f, 0] | marks[f, 1] == 0:
            continue
        part = 0.0
        if lagging == 0:
            for c in range(now.shape[1]):
                part += np.float64(now[f, c]) * np.float64(now[f, c])
        else:
            for c in range(now.shape[1]):
                w = np.float64(now[f, c]) - lagging * np.float64(lag[f, c])
                part += w * w
        total += part
    rare = weights.rare
    for f in range(len(rare.lists)):
        part = 0.0
        for e in range(rare.lists[f, 0], rare.lists[f, 0] + rare.lists[f, 1]):
            w = np.float64(rare.entries[e, 1])
            if lagging != 0:
                w -= lagging * np.float64(rare.entries[e, 2])
            part += w * w
        total += part
    return total


# -- duals -----------------------------------------------------------------------------------------


class OldDuals(NamedTuple):
    """A block's duals as the last pass left them: row i has ``counts[i]`` of them.

    Class ids are ``ids[ids_at[i]:]``, values ``values[values_at[i]:]``; the two arrays usually are
    views of one memory-mapped log, hence an offset each.
    """

    ids: np.ndarray  # (any,) uint8, uint16 or uint32
    values: np.ndarray  # (any,) dtype of the weights
    ids_at: np.ndarray  # (n_rows,) int64
    values_at: np.ndarray  # (n_rows,) int64
    counts: np.ndarray  # (n_rows,) int32


class Pool(NamedTuple):
    """The new duals, in the order in which a kernel visits the rows; of size 0 if nobody needs them."""

    ids: np.ndarray  # (capacity,) uint8, uint16 or uint32
    values: np.ndarray  # (capacity,) dtype of the weights
    rows: np.ndarray  # (n_rows,) int32: the rows visited so far
    counts: np.ndarray  # (n_rows,) int32: duals of each of them
    used: np.ndarray  # (2,) int64: entries and rows filled


class Scratch(NamedTuple):
    """One row's working space. ``delta`` and ``listed`` are zero between visits.

    The *candidates* of a row are the classes that may have a dual after the visit: m of them, in
    the first entries of ``ids``, ``before`` and ``v``.
    """

    scores: np.ndarray  # (K,) dtype of the weights
    delta: np.ndarray  # (K,) the same: change of the row's duals, by class
    ids: np.ndarray  # (K,) int64: the candidates' classes
    before: np.ndarray  # (K,) float64: their old duals
    v: np.ndarray  # (K + 8,) float64: their linear term in the block problem; room for a last vector
    listed: np.ndarray  # (K / lanes,) int64: by vector, bits of class y and the candidates
    lines: np.ndarray  # (K / lanes + 1,) int64: first columns of the vectors in which bits are set

    @classmethod
    def create(cls, K: int, dtype: np.dtype) -> Scratch:
        scores, delta = np.zeros((2, K), dtype)
        n_lines = K * dtype.itemsize // LINE
        listed, lines = np.zeros(n_lines, np.int64), np.zeros(n_lines + 1, np.int64)
        return cls(scores, delta, np.zeros(K, np.int64), np.zeros(K), np.zeros(K + 8), listed, lines)


@inlined
def has_room(pool, n_classes):
    """Whether the duals of one more row fit the pool, if it holds any at all."""
    return len(pool.ids) == 0 or pool.used[0] + n_classes <= len(pool.ids)


@inlined
def list_class(c, scratch, n_lines):
    """Set the bit of class `c`, and list its vector; return how many vectors are listed."""
    shift = lane_bits(scratch.scores)
    q = c >> shift
    scratch.lines[n_lines] = q << shift
    n_lines += scratch.listed[q] == 0
    scratch.listed[q] |= 1 << (c - (q << shift))
    return n_lines


@inlined
def list_above(threshold, n_classes, scratch, m, n_lines):
    """Add to the `m` candidates all classes with a score not below `threshold` that are not listed.

    Scores that are not numbers count as above, so that damage is not overlooked. Returns how many
    candidates there are, and how many vectors are listed.
    """
    scores, listed = scratch.scores, scratch.listed
    L, shift = lanes(scores), lane_bits(scores)
    limit = splat(scores.dtype.type(threshold))
    first = 0
    while first < n_classes:
        hits = not_below(load(scores, first), limit) & ~listed[first >> shift]
        if first + L > n_classes:
            hits &= (1 << (n_classes - first)) - 1  # not the padding
        while hits != 0:
            c = first + lowest_bit(hits)
            hits &= hits - 1
            scratch.ids[m] = c
            scratch.before[m] = 0
            m += 1
            n_lines = list_class(c, scratch, n_lines)
        first += L
    return m, n_lines


@inlined
def unlist(scratch, n_lines):
    """Clear what `list_class` set."""
    shift = lane_bits(scratch.scores)
    for q in range(n_lines):
        scratch.listed[scratch.lines[q] >> shift] = 0


@inlined
def beats(c, y, scores):
    """Whether class `c` would be predicted rather than `y`: of equals, the first."""
    return (scores[c] > scores[y]) | ((scores[c] == scores[y]) & (c < y))


@inlined
def load_duals(ids, ids_at, values, values_at, m, scratch, n_lines):
    """Make candidates of the classes of `m` duals; return their float64 sum, and the vectors listed."""
    total = 0.0
    for r in range(m):
        c = np.int64(ids[ids_at + r])
        value = np.float64(values[values_at + r])
        scratch.ids[r] = c
        scratch.before[r] = value
        total += value
        n_lines = list_class(c, scratch, n_lines)
    return total, n_lines


@kernel
def repeats_class(old, seen):
    """Whether a row has duals of one class twice. Modifies `seen`, int64 zeros, one a class.

    Kernels have room for each class once.
    """
    for i in range(len(old.counts)):
        for p in range(old.ids_at[i], old.ids_at[i] + old.counts[i]):
            c = np.int64(old.ids[p])
            if seen[c] == i + 1:
                return True
            seen[c] = i + 1
    return False


@inlined
def set_duals(y, margin, threshold, upper, scratch, m, pool, at, in_place):
    """Let the candidates' duals be clip(v - threshold, 0, upper).

    They go to ``pool`` from `at`: all `m` of them if `in_place`, else those that are not zero. The
    row times ``delta`` is then to be added to the weights: the candidates' ``margin * (old - new)``,
    and in class `y` the opposite of their sum. Returns the number of duals written, the change of
    their sum, and whether any changed.
    """
    delta = scratch.delta
    shift, changed, kept = 0.0, False, 0
    for r in range(m):
        value = delta.dtype.type(min(max(scratch.v[r] - threshold, 0.0), upper))
        step = value - scratch.before[r]
        delta[scratch.ids[r]] = -margin * step
        shift += step
        changed |= step != 0
        if len(pool.ids) > 0:
            pool.ids[at + kept] = scratch.ids[r]
            pool.values[at + kept] = value
            kept += in_place | (value != 0)
    if changed:
        delta[y] = margin * shift
    return kept, shift, changed


@inlined
def mark_lines(rows, i, weights, lines, n_lines):
    """Remember that the weights of row `i`'s features change, in the vectors at ``lines[:n_lines]``."""
    groups, marks = np.uint64(0), weights.marks
    if len(marks) == 0:
        return
    for q in range(n_lines):
        groups |= np.uint64(1) << np.uint64(lines[q] >> weights.shift)
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        marks[rows.indices[p], 0] |= groups


@inlined
def move_weights(rows, i, weights, scratch, n_lines, tally):
    """Add row `i` times ``delta`` to the weights, in the listed vectors; clear ``delta``."""
    delta, lines = scratch.delta, scratch.lines
    mark_lines(rows, i, weights, lines, n_lines)
    if len(weights.rare.lists) > 0:
        rate_now = delta.dtype.type((tally[CLOCK] / weights.horizon) ** AVERAGE_POWER)
        move_rare(i, weights, scratch, n_lines, rate_now)
    add_lines(weights.now, rows, i, delta, lines, n_lines)
    if len(weights.lag) > 0:
        rate = splat(delta.dtype.type((tally[CLOCK] / weights.horizon) ** AVERAGE_POWER))
        for q in range(n_lines):
            store(delta, lines[q], multiply(rate, load(delta, lines[q])))
        add_lines(weights.lag, rows, i, delta, lines, n_lines)
    zero = splat(delta.dtype.type(0))
    for q in range(n_lines):
        store(delta, lines[q], zero)


@inlined
def count_duals(old_sum, shift, weights, tally):
    """Add to the sums of the duals what a row contributes: `old_sum` counted anew, and its change."""
    tally[DUAL_SUM] += old_sum + shift
    tally[DUAL_LAG] += (tally[CLOCK] / weights.horizon) ** AVERAGE_POWER * shift


@inlined
def close_row(i, n, pool):
    """Have the pool end row `i` with the `n` duals written behind those it holds."""
    if len(pool.ids) > 0:
        row = pool.used[1]
        pool.rows[row] = i
        pool.counts[row] = n
        pool.used[0] += n
        pool.used[1] = row + 1


@kernel
def drop_zeros(pool):
    """Close the gaps that duals which became zero left in the pool."""
    kept, at = 0, 0
    for row in range(pool.used[1]):
        begin = kept
        for t in range(at, at + pool.counts[row]):
            if pool.values[t] != 0:
                pool.ids[kept] = pool.ids[t]
                pool.values[kept] = pool.values[t]
                kept += 1
        at += pool.counts[row]
        pool.counts[row] = kept - begin
    pool.used[0] = kept
