"""Compiled code for several threads on one block, with the iterates of the serial order.

Rows are visited in groups. While the leader solves the rows of one group, the helpers score those of
the next by the same weights, and the leader joins them when it is done; then all move the weights by
what the solved group changed. A row's scores lack what the rows since then changed: the leader adds
it, from the scalar products of these rows with it and their few changes. Only rounding differs from
visiting one row after another, and nothing depends on how many threads there are, but that they take
of the memory that blocks are cut to.

      leader   | solve group g  | score g + 1 | move by g |
      helpers  |        score group g + 1     | move by g |
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from streamsvm.kernels import (
    AVERAGE_POWER,
    CLOCK,
    add_line,
    fetch_ahead,
    inlined,
    kernel,
    mark_lines,
    score_row,
)
from streamsvm.simd import (
    LINE,
    atomic_add,
    atomic_load,
    atomic_store,
    lane_bits,
    lanes,
    load,
    load2,
    multiply,
    multiply_add,
    pause,
    splat,
    store,
    store2,
)

GROUP = 6  # rows: more cost scalar products, fewer make threads wait for each other

# Entries of `Team.shared`, on cache lines of their own as far as threads contend for them.
_WAITING, _ROUND, _NEXT_ROW = 0, 8, 16
_BEGIN, _SIZE, _PARITY, _SOLVED, _STOP, ABANDONED = range(24, 30)
_SPINS = 10_000  # looks at a barrier before others get the processor


class Team(NamedTuple):
    """What threads share. A group's rows have slots 0..GROUP-1, or the second half, in turn."""

    n_threads: int
    shared: np.ndarray  # (32,) int64
    scores: np.ndarray  # (2 * GROUP, K) dtype of the weights
    products: np.ndarray  # (2 * GROUP, 2 * GROUP) the same: row in slot r with the earlier row in slot q
    moves: np.ndarray  # (2 * GROUP, K) the same: what to add to the weights, as a multiple of the row
    lines: np.ndarray  # (2 * GROUP, K / lanes) int64: the vectors in which that is not zero
    n_lines: np.ndarray  # (2 * GROUP,) int64
    rates: np.ndarray  # (2 * GROUP,) float64: the same, for the lag of the average
    dense: np.ndarray  # (n_threads, n_features) dtype of the weights, zero: a row spread out

    @staticmethod
    def size(n_threads: int, K: int, dtype: np.dtype, n_features: int) -> int:
        """Bytes of a team, at most."""
        return (4 * GROUP * K + n_threads * n_features + 4 * GROUP**2) * dtype.itemsize + 12 * K + 1024

    @classmethod
    def create(cls, n_threads: int, K: int, dtype: np.dtype, n_features: int) -> Team:
        slots, line = 2 * GROUP, LINE // dtype.itemsize
        scores, moves = np.zeros((2, slots, K), dtype)
        return cls(
            n_threads,
            np.zeros(32, np.int64),
            scores,
            np.zeros((slots, slots), dtype),
            moves,
            np.zeros((slots, K // line), np.int64),
            np.zeros(slots, np.int64),
            np.zeros(slots),
            np.zeros((n_threads, n_features), dtype),
        )


@inlined
def meet(team):
    """Wait until all threads have come here."""
    shared = team.shared
    this_round = atomic_load(shared, _ROUND)
    if atomic_add(shared, _WAITING, 1) == team.n_threads - 1:
        atomic_store(shared, _WAITING, 0)
        atomic_store(shared, _ROUND, this_round + 1)
    else:
        spins = 0
        while atomic_load(shared, _ROUND) == this_round:
            if atomic_load(shared, ABANDONED) != 0:
                shared[_STOP] = 1
                break
            spins += 1
            if spins > _SPINS:
                pause()


@inlined
def plan_round(team, begin, size, parity, solved):
    """Say what the next round is: score `size` rows from `begin`, and solve `solved` before them."""
    shared = team.shared
    shared[_BEGIN], shared[_SIZE], shared[_PARITY], shared[_SOLVED] = begin, size, parity, solved
    shared[_STOP] = 0
    atomic_store(shared, _NEXT_ROW, 0)


@inlined
def dismiss(team):
    """Have the helpers end at the next meeting."""
    team.shared[_STOP] = 1


# Without reordered sums: each kernel that it becomes a part of must sum alike, for which of them
# multiplies two rows is a matter of time.
@functools.partial(kernel, forceinline=True, fastmath=False)
def _product(rows, j, dense):
    """The scalar product of row `j` with one that is spread out in `dense`."""
    total = dense.dtype.type(0)
    for p in range(rows.indptr[j], rows.indptr[j + 1]):
        total += dense[rows.indices[p]] * rows.data[p]
    return total


@inlined
def score_share(thread, rows, old, order, weights, team):
    """Score rows of the next group until none is left, and multiply them with the rows before."""
    shared, dense = team.shared, team.dense[thread]
    begin, size, parity, solved = shared[_BEGIN], shared[_SIZE], shared[_PARITY], shared[_SOLVED]
    base, base_before = parity * GROUP, (1 - parity) * GROUP
    while True:
        r = atomic_add(shared, _NEXT_ROW, 1)
        if r >= size:
            break
        fetch_ahead(rows, old, order, begin + r, len(order))
        i = order[begin + r]
        score_row(team.scores[base + r], rows, i, weights.now)
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            dense[rows.indices[p]] = rows.data[p]
        for q in range(solved):
            team.products[base + r, base_before + q] = _product(rows, order[begin - solved + q], dense)
        for q in range(r):
            team.products[base + r, base + q] = _product(rows, order[begin + q], dense)
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            dense[rows.indices[p]] = 0


@inlined
def take_scores(r, before, parity, scratch, team):
    """Write the scores of the group's row `r` by the weights as they would be now.

    Counts `before` rows of the group before, and the first `r` of this one.
    """
    scores, L = scratch.scores, lanes(scratch.scores)
    slot = parity * GROUP + r
    c = 0
    while c < len(scores):
        store(scores, c, load2(team.scores, slot, c))
        c += L
    for q in range(before + r):
        earlier = (1 - parity) * GROUP + q if q < before else parity * GROUP + q - before
        product = team.products[slot, earlier]
        if product != 0:
            factor = splat(product)
            for t in range(team.n_lines[earlier]):
                c = team.lines[earlier, t]
                store(scores, c, multiply_add(factor, load2(team.moves, earlier, c), load(scores, c)))


@inlined
def leave_move(rows, i, r, parity, scratch, n_lines, team, weights, tally):
    """Put row `i`'s ``scratch.delta`` aside for `move_share`, in the group's slot `r`, and clear it."""
    mark_lines(rows, i, weights, scratch.lines, n_lines)
    delta, slot = scratch.delta, parity * GROUP + r
    zero = splat(delta.dtype.type(0))
    for t in range(n_lines):
        c = scratch.lines[t]
        team.lines[slot, t] = c
        store2(team.moves, slot, c, load(delta, c))
        store(delta, c, zero)
    team.n_lines[slot] = n_lines
    team.rates[slot] = (tally[CLOCK] / weights.horizon) ** AVERAGE_POWER


@inlined
def move_share(thread, rows, order, weights, team):
    """Move the weights by the group just solved, in this thread's share of the vectors."""
    shared, delta = team.shared, team.moves
    solved, base = shared[_SOLVED], (1 - shared[_PARITY]) * GROUP
    begin = shared[_BEGIN] - solved
    shift = lane_bits(delta)
    for q in range(solved):
        slot, i = base + q, order[begin + q]
        for t in range(team.n_lines[slot]):
            c = team.lines[slot, t]
            if (c >> shift) % team.n_threads == thread:
                step = load2(delta, slot, c)
                add_line(weights.now, rows, i, c, step)
                if len(weights.lag) > 0:
                    rate = splat(delta.dtype.type(team.rates[slot]))
                    add_line(weights.lag, rows, i, c, multiply(rate, step))


@kernel
def help_leader(thread, rows, old, order, weights, team):
    """What every thread but the leader runs, until it is dismissed."""
    while True:
        meet(team)
        if team.shared[_STOP] != 0:
            return
        score_share(thread, rows, old, order, weights, team)
        meet(team)
        move_share(thread, rows, order, weights, team)
        meet(team)
