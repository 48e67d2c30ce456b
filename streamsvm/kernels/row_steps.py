"""The steps of a visit around the block problem of a row: what precedes it, and what follows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.class_pairs import add_margins, cost_lanes
from streamsvm.kernels.duals import set_bits
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import clear_own, mark_class, mark_own, own_bits
from streamsvm.kernels.simd import (
    LANES,
    above,
    cast,
    differing,
    load_like,
    lowest_bit,
    maximum,
    not_below,
    select,
    store,
    sum_lanes,
    zeros,
)
from streamsvm.kernels.tally import CLOCK, CORRECT, EMPTY, UNWEIGHTED, VISITED
from streamsvm.kernels.update import update_weights
from streamsvm.kernels.weights import AVERAGE_POWER

OWN_CLASSES, COLUMN_BEYOND, NOTHING = range(3)


class Row(NamedTuple):
    """A row, and what its block problem has in numbers; its vectors are in the scratch."""

    y: int  # its class; of several the first, and -1 without one
    norm2: float  # ‖x‖²
    C: float  # C times the weight of the row
    own_score: float  # the score of its own class, the mean of several
    n_own: int  # the number of its own classes
    old_sum: float  # Σ of its old duals
    own: Any  # None for a row with one class, else ``scratch.own``
    shared: float  # the score of the column beyond the classes, if there is one


@inlined
def linear_terms(b, C, problem):
    """Return the terms of duals b in the dual objective of a loss without curvature."""
    return b


@inlined
def no_sum_term(total, C, problem):
    """Return the term of the sum of a row's duals, for a loss that has none."""
    return 0.0


class RowSteps(NamedTuple):
    """The steps of a loss: see the docstrings of the functions in `make_row_steps`."""

    begin_row: Any
    take_own: Any
    leave_own: Any
    set_duals: Any
    move: Any


def make_row_steps(
    name: str, *, terms: Any, sum_term: Any, own_dual: bool, opposite: int, bits: bool
) -> RowSteps:
    """Make the steps of a loss; arguments are those of `streamsvm.kernels.frame.make_kernels`."""

    has_linear_terms = terms is linear_terms

    def begin_row(rows, i, y, old_sum, vectors, n, problem, pairs, sets, scratch):
        """Return the numbers of a row, and whether the class with the largest score is one of its own.

        Margins of pairs of classes are added to the scores.
        """
        scores, own, n_own, first = scratch.scores, None if sets is None else scratch.own, 1, y
        top, own_score = scores[0], 0.0
        if sets is None:
            top, own_score = scores[y], np.float64(scores[y])
        else:
            n_own, top = int(sets.indptr[i + 1] - sets.indptr[i]), scores.dtype.type(-np.inf)
            for p in range(sets.indptr[i], sets.indptr[i + 1]):
                c = np.int64(sets.codes[p])
                own_score += np.float64(scores[c])
                if scores[c] > top or (scores[c] == top and c < first):
                    top, first = scores[c], c
            own_score /= max(n_own, 1)
        shared = np.float64(scores[problem.n_classes]) if opposite == COLUMN_BEYOND else 0.0
        row = Row(y, rows.norm2[i], rows.cost[i], own_score, n_own, old_sum, own, shared)
        right = hide_scores(top, first, vectors, n, scratch)
        if pairs is not None:
            add_margins(y, vectors, n, problem, pairs, scratch)
        return row, right

    begin_row = inlined(begin_row, name=f"{name}_begin_row")

    def take_own(i, y, sets, scratch, n):
        """Hide the lanes of the row's own classes, unless they have duals; list and count their vectors."""
        if sets is None:
            n = mark_class(y, scratch, n)
            scratch.hidden[y] = 0.0 if own_dual else -np.inf
        else:
            for p in range(sets.indptr[i], sets.indptr[i + 1]):
                n = mark_class(np.int64(sets.codes[p]), scratch, n)
                mark_own(np.int64(sets.codes[p]), scratch)
                scratch.hidden[sets.codes[p]] = 0.0 if own_dual else -np.inf
        return n

    take_own = inlined(take_own, name=f"{name}_take_own")

    def leave_own(i, y, sets, scratch):
        """Show what `take_own` hides."""
        if sets is None:
            scratch.hidden[y] = 0.0
        else:
            for p in range(sets.indptr[i], sets.indptr[i + 1]):
                clear_own(np.int64(sets.codes[p]), scratch)
                scratch.hidden[sets.codes[p]] = 0.0

    leave_own = inlined(leave_own, name=f"{name}_leave_own")

    def set_duals(row, n, problem, pairs, scratch, dense, buffer, at, in_place):
        """Round the new duals, write them, and set ``delta``.

        They are written from `at` on: to the array `dense`, one for each class, if it is not None; else to
        the buffer as a list, of all if `in_place`, or of those that are not zero. Empty ones keep none.
        Returns the number of duals in the list, the old dual terms and their change, the number of vectors
        in which the weights move, and by what the own classes do.
        """
        delta, zero = scratch.delta, zeros()
        keep = False
        if buffer is not None:  # of an argument that is None, Numba drops the branch
            keep = len(buffer.ids) > 0
        scale, at_bound = problem.margin * problem.sigma, delta.dtype.type(row.C)
        steps, old_terms, new_terms = zero, zero, zero
        changed, n_moved, kept = np.int64(0), 0, 0
        receiver = problem.n_classes if opposite == COLUMN_BEYOND else row.y
        for r in range(n):
            c = scratch.vectors[r]
            old = load_like(scratch.old, c, zero)
            store(scratch.old, c, zero)
            new = cast(load_like(scratch.v, r * LANES, zero), delta)
            b = cast(new, scratch.v)
            step = b - old
            differs = differing(step, 0.0)
            if pairs is None and not has_linear_terms:
                old_terms = old_terms + terms(old, row.C, problem)
                new_terms = new_terms + terms(b, row.C, problem)
            elif pairs is not None:
                cost = row.C * cost_lanes(row, c, pairs, scratch, zero)
                counts = above(cost, 0.0)  # else both are 0
                surplus = problem.margin * load_like(scratch.shift, c, zero)
                old_terms = old_terms + (surplus * old + select(counts, terms(old, cost, problem), 0.0))
                new_terms = new_terms + (surplus * b + select(counts, terms(b, cost, problem), 0.0))
            has_dual = not_below(load_like(scratch.hidden, c, zero), 0.0)  # NaN is in all lanes
            if dense is not None and len(dense) > 0:
                kept_lanes = has_dual & differing(new, 0.0)  # without -0.0, which lists do not have
                store(dense, at + c, select(kept_lanes, new, 0.0))
            if buffer is not None and keep:
                left = has_dual
                if not in_place:
                    left &= differing(new, 0.0)
                if bits:
                    full = left & ~differing(new, at_bound)
                    set_bits(full, c, buffer)
                    left &= ~full
                store(scratch.v, r * LANES, b)
                while left != 0:
                    buffer.ids[at + kept] = c + lowest_bit(left)
                    buffer.values[at + kept] = scratch.v[r * LANES + lowest_bit(left)]
                    left &= left - 1
                    kept += 1
            own = own_bits(receiver, c, row.own)
            if differs != 0 or (opposite != NOTHING and own != 0):
                changed |= differs
                steps = steps + step
                moves = -scale * step
                if own_dual:
                    moves = select(own, scale * step, moves)
                store(delta, c, moves)
                scratch.moved[n_moved] = c
                n_moved += 1
        sum_of_steps, old_value, change = sum_lanes(steps), row.old_sum, sum_lanes(steps)
        if pairs is not None or not has_linear_terms:
            old_value = sum_lanes(old_terms)
            change = sum_lanes(new_terms) - old_value
        before = sum_term(row.old_sum, row.C, problem)
        change += sum_term(row.old_sum + sum_of_steps, row.C, problem) - before
        return kept, old_value + before, change, n_moved if changed != 0 else 0, scale * sum_of_steps

    set_duals = inlined(set_duals, name=f"{name}_set_duals")

    def move(rows, i, row, total, n_moved, problem, weights, scratch, tally, sparse_rows, sets):
        """Update the weights by ``delta``, and what moves by the sum of steps; return the time's factor."""
        tally[CLOCK] += 1
        time_factor = (tally[CLOCK] / weights.time_unit) ** AVERAGE_POWER
        if n_moved > 0:
            if opposite == COLUMN_BEYOND:
                scratch.delta[problem.n_classes] = total
            elif opposite == OWN_CLASSES and sets is None:
                scratch.delta[row.y] = total
            elif opposite == OWN_CLASSES:
                for p in range(sets.indptr[i], sets.indptr[i + 1]):
                    scratch.delta[sets.codes[p]] = total / row.n_own
            update_weights(rows, i, weights, scratch.delta, scratch.moved, n_moved, time_factor, sparse_rows)
        return time_factor

    move = inlined(move, name=f"{name}_move")

    return RowSteps(begin_row, take_own, leave_own, set_duals, move)


@inlined
def hide_scores(top, first, vectors, n, scratch):
    """Set the scores of lanes without a dual to -infinity.

    Returns whether no other class has a larger score than `top`, or the same and comes before class `first`.
    """
    scores = scratch.scores
    best = cast(zeros() - np.inf, scores)
    for r in range(n):
        s = load_like(scores, vectors[r], best) + load_like(scratch.hidden, vectors[r], best)
        store(scores, vectors[r], s)
        best = maximum(s, best)
    if above(best, top) != 0:
        return False
    if not_below(best, top) != 0:
        for r in range(n):
            ties = not_below(load_like(scores, vectors[r], best), top)
            if ties != 0:
                return vectors[r] + lowest_bit(ties) >= first
    return True


@inlined
def is_idle(rows, i, y, takes_unlabelled, tally):
    """Count row `i` of class `y`; return True if it does not enter the objective.

    Its cost is 0, its label is unknown, or its norm is 0: then all its scores are equal, and the first class
    is predicted whatever the weights are.
    """
    tally[VISITED] += 1
    if rows.cost[i] == 0:
        tally[UNWEIGHTED] += 1
        return True
    if rows.norm2[i] == 0 or (y < 0 and not takes_unlabelled):
        tally[EMPTY] += 1
        tally[CORRECT] += y == 0
        return True
    return False
