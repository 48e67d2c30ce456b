"""Parts of a visit before and after a row's block problem is solved (see `streamsvm.kernels.frame`)."""

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

OWN_CLASSES, SHARED_COLUMN, NOTHING = range(3)
# Storage of the duals of a visit: lists of non-zeros, lists overwritten in place, or a matrix.
LISTS, LISTED, MATRIX = range(3)


class Row(NamedTuple):
    """Scalars of a row's block problem, whose arrays are in `Scratch`. "Own" refers to the true classes."""

    y: int  # true class (the first one if there are several), or -1 if there is none
    norm2: float  # ‖x‖²
    C: float  # C times the weight of the row
    own_score: float  # score of the true class, or mean score of the true classes
    n_own: int
    old_sum: float
    own: Any  # None if every row has one true class, else ``scratch.own``
    shared: float  # score of the shared column, if there is one
    is_correct: bool  # whether a true class is predicted


class LabelSets(NamedTuple):
    """Label sets of rows: the labels of row i are ``codes[indptr[i]:indptr[i + 1]]``."""

    codes: np.ndarray  # (n_labels,) int32
    indptr: np.ndarray  # (n_rows + 1,) int64


@inlined
def linear_terms(b, C, problem):
    """Return the terms of the duals `b` in the dual objective of a loss without curvature."""
    return b


@inlined
def no_sum_term(total, C, problem):
    return 0.0


@inlined
def begin_row(rows, i, y, old_sum, vectors, n, n_shared, problem, pairs, sets, scratch):
    """Set scores of classes without a dual to -infinity, add class-pair margins, and return the `Row`."""
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
    shared = np.float64(scores[problem.n_classes]) if n_shared else 0.0
    is_correct = hide_scores(top, first, vectors, n, scratch)
    if pairs is not None:
        add_margins(y, vectors, n, problem, pairs, scratch)
    return Row(y, rows.norm2[i], rows.cost[i], own_score, n_own, old_sum, own, shared, is_correct)


@inlined
def mark_own_classes(i, y, own_dual, sets, scratch, n):
    """List vectors of true classes; hide these classes unless `own_dual`; return the number of vectors."""
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
def unmark_own_classes(i, y, sets, scratch):
    if sets is None:
        scratch.hidden[y] = 0.0
    else:
        for p in range(sets.indptr[i], sets.indptr[i + 1]):
            scratch.own[sets.codes[p] >> LOG_LANES] = 0
            scratch.hidden[sets.codes[p]] = 0.0


def make_step(name: str, kind: int, *, terms: Any, sum_term: Any, own_dual: bool, opposite: int) -> Any:
    has_linear_terms = terms is linear_terms

    def step(rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        """Round the new duals, write them to ``duals.new`` unless it is empty, and update the weights.

        Return the dual terms before the step, their increase, and the `time_factor` for `update_weights`.
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
        receiver = problem.n_classes if opposite == SHARED_COLUMN else row.y
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
                has_cost = above(cost, 0.0)  # at cost 0 both terms are 0
                surplus = zero
                if len(pairs.margins) > 0:
                    like = cast(zero, delta)
                    surplus = problem.margin * cast(shift_lanes(row.y, c, pairs, problem, like), scratch.v)
                old_terms = old_terms + (surplus * old + select(has_cost, terms(old, cost, problem), 0.0))
                new_terms = new_terms + (surplus * b + select(has_cost, terms(b, cost, problem), 0.0))
            kept = not_below(load_like(scratch.hidden, c, zero), 0.0)  # NaN reaches hidden lanes, too
            if kind != LISTED:
                kept &= differing(rounded, 0.0)  # drops -0.0, too
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
            if opposite == SHARED_COLUMN:
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
        unmark_own_classes(i, row.y, sets, scratch)
        return old_value + before, rise, time_factor

    return inlined(step, name=f"{name}_step")


@inlined
def hide_scores(top, first, vectors, n, scratch):
    """Set hidden scores to -infinity; return True if class `first`, whose score is `top`, is predicted."""
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
def is_idle(rows, i, y, allows_unlabelled, tally):
    """Count row `i`; return True if it needs no step. A row with norm zero is predicted as class 0."""
    tally[VISITED] += 1
    if rows.cost[i] == 0:
        tally[UNWEIGHTED] += 1
        return True
    if rows.norm2[i] == 0 or (y < 0 and not allows_unlabelled):
        tally[EMPTY] += 1
        tally[CORRECT] += y == 0
        return True
    return False


@inlined
def count_visit(tally, first, row, loss, old_terms, rise, time_factor):
    """Tally a visit; count the loss and the old dual terms only in the `first` visit of a row in a pass."""
    if first:
        tally[LOSS_SUM] += row.C * loss
        tally[CORRECT] += row.is_correct
        tally[DUAL_SUM] += old_terms
    tally[DUAL_SUM] += rise
    tally[DUAL_DELTA] += time_factor * rise
