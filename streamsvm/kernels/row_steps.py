"""The steps of a visit around the block problem of a row: what precedes it, and what follows it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.class_pairs import add_margins, cost_lanes, shift_lanes
from streamsvm.kernels.duals import close_row, write_lanes
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import mark_class, own_bits
from streamsvm.kernels.simd import (
    LANES,
    LOG_LANES,
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
from streamsvm.kernels.tally import CLOCK, CORRECT, DUAL_DELTA, DUAL_SUM, EMPTY, LOSS_SUM, UNWEIGHTED, VISITED
from streamsvm.kernels.update import time_of_step, update_weights
from streamsvm.kernels.weights import AVERAGE_POWER

OWN_CLASSES, COLUMN_BEYOND, NOTHING = range(3)
# What a visit reads and writes: lists of the duals that are not 0; those alone that are listed; or a matrix.
LISTS, LISTED, MATRIX = range(3)


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
    right: bool  # whether the class with the largest score is one of its own


class LabelSets(NamedTuple):
    """The labels of rows with several, all of them their own classes: ``codes[indptr[i]:indptr[i + 1]]``."""

    codes: np.ndarray  # (n_labels,) int32
    indptr: np.ndarray  # (n_rows + 1,) int64


@inlined
def linear_terms(b, C, problem):
    """Return the terms of duals b in the dual objective of a loss without curvature."""
    return b


@inlined
def no_sum_term(total, C, problem):
    """Return the term of the sum of a row's duals, for a loss that has none."""
    return 0.0


@inlined
def begin_row(rows, i, y, old_sum, vectors, n, beyond, problem, pairs, sets, scratch):
    """Return the numbers of a row.

    Margins of pairs of classes are added to the scores. `beyond` is 1 if there is a column beyond the
    classes.
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
    shared = np.float64(scores[problem.n_classes]) if beyond else 0.0
    right = hide_scores(top, first, vectors, n, scratch)
    if pairs is not None:
        add_margins(y, vectors, n, problem, pairs, scratch)
    return Row(y, rows.norm2[i], rows.cost[i], own_score, n_own, old_sum, own, shared, right)


@inlined
def take_own(i, y, own_dual, sets, scratch, n):
    """Hide the lanes of the row's own classes, unless they have duals; list and count their vectors."""
    hidden = 0.0 if own_dual else -np.inf
    if sets is None:
        scratch.hidden[y] = hidden
        return mark_class(y, scratch, n)
    for p in range(sets.indptr[i], sets.indptr[i + 1]):
        c = np.int64(sets.codes[p])
        n = mark_class(c, scratch, n)
        scratch.own[c >> LOG_LANES] |= 1 << (c & (LANES - 1))
        scratch.hidden[c] = hidden
    return n


@inlined
def leave_own(i, y, sets, scratch):
    """Show what `take_own` hides."""
    if sets is None:
        scratch.hidden[y] = 0.0
    else:
        for p in range(sets.indptr[i], sets.indptr[i + 1]):
            scratch.own[sets.codes[p] >> LOG_LANES] = 0
            scratch.hidden[sets.codes[p]] = 0.0


def make_step(name: str, kind: int, *, terms: Any, sum_term: Any, own_dual: bool, opposite: int) -> Any:
    """Make what ends a block step; arguments are those of `streamsvm.kernels.frame.make_kernels`."""

    has_linear_terms = terms is linear_terms

    def step(rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        """Round the new duals, write them to ``duals.new``, and update the weights.

        Empty arrays of new duals keep none. Returns the old dual terms, what they rise by, and the factor by
        which the average moves.
        """
        new, delta, zero = duals.new, scratch.delta, zeros()
        begin = at = i
        if kind == LISTS:
            begin = at = new.used[0]
        elif kind == LISTED:
            begin = at = duals.old.at[i]
        scale = problem.margin * problem.sigma
        changes, old_terms, new_terms = zero, zero, zero
        changed, n_moved = np.int64(0), 0
        receiver = problem.n_classes if opposite == COLUMN_BEYOND else row.y
        for r in range(n):
            c = scratch.vectors[r]
            old = load_like(scratch.old, c, zero)
            store(scratch.old, c, zero)
            rounded = cast(load_like(scratch.v, r * LANES, zero), delta)
            b = cast(rounded, scratch.v)
            change = b - old
            differs = differing(change, 0.0)
            if pairs is None and not has_linear_terms:
                old_terms = old_terms + terms(old, row.C, problem)
                new_terms = new_terms + terms(b, row.C, problem)
            elif pairs is not None:
                cost = row.C * cost_lanes(row, c, pairs, zero)
                counts = above(cost, 0.0)  # else both are 0
                surplus = zero
                if len(pairs.margins) > 0:
                    thin = cast(zero, delta)
                    surplus = problem.margin * cast(shift_lanes(row.y, c, pairs, problem, thin), scratch.v)
                old_terms = old_terms + (surplus * old + select(counts, terms(old, cost, problem), 0.0))
                new_terms = new_terms + (surplus * b + select(counts, terms(b, cost, problem), 0.0))
            kept = not_below(load_like(scratch.hidden, c, zero), 0.0)  # NaN is in all lanes
            if kind != LISTED:
                kept &= differing(rounded, 0.0)  # not -0.0 either
            if kind == MATRIX:
                if len(new) > 0:
                    store(new, (at, c), select(kept, rounded, 0.0))
            elif len(new.ids) > 0:
                store(scratch.v, r * LANES, b)
                at = write_lanes(kept, c, scratch.v, r * LANES, at, new)
            own = own_bits(receiver, c, row.own)
            if differs != 0 or (opposite != NOTHING and own != 0):
                changed |= differs
                changes = changes + change
                moves = -scale * change
                if own_dual:
                    moves = select(own, scale * change, moves)
                store(delta, c, moves)
                scratch.moved[n_moved] = c
                n_moved += 1
        old_value, total = row.old_sum, sum_lanes(changes)
        rise = total
        if pairs is not None or not has_linear_terms:
            old_value = sum_lanes(old_terms)
            rise = sum_lanes(new_terms) - old_value
        before = sum_term(row.old_sum, row.C, problem)
        rise += sum_term(row.old_sum + total, row.C, problem) - before
        tally[CLOCK] += 1
        time = time_of_step(tally[CLOCK], weights.tile)
        time_factor = (time / weights.time_unit) ** AVERAGE_POWER
        if changed != 0:
            total *= scale
            if opposite == COLUMN_BEYOND:
                delta[problem.n_classes] = total
            elif opposite == OWN_CLASSES and sets is None:
                delta[row.y] = total
            elif opposite == OWN_CLASSES:
                for p in range(sets.indptr[i], sets.indptr[i + 1]):
                    delta[sets.codes[p]] = total / row.n_own
            update_weights(
                rows, i, weights, weights.tile, delta, scratch.moved, n_moved, time_factor, sparse_rows
            )
        if kind == LISTS:
            close_row(i, at - begin, new)
        leave_own(i, row.y, sets, scratch)
        return old_value + before, rise, time_factor

    return inlined(step, name=f"{name}_step")


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


@inlined
def count_visit(tally, first, row, loss, old_terms, rise, time_factor):
    """Count a visit of a row; only the `first` one in a pass counts the row's loss and all its duals."""
    if first:
        tally[LOSS_SUM] += row.C * loss
        tally[CORRECT] += row.right
        tally[DUAL_SUM] += old_terms
    tally[DUAL_SUM] += rise
    tally[DUAL_DELTA] += time_factor * rise
