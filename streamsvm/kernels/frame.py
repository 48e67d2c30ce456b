"""The frame of a visit, of a revisit and of scoring: all that does not depend on the loss, written once.

A row's block problem is vectors over its classes: scores, old duals, bounds, margins. `make_kernels` closes
the loops over rows over the functions in which a loss states its mathematics. These become free variables of
the kernels: arguments would do as well, but Numba would not cache the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.class_pairs import add_margins, cost_lanes
from streamsvm.kernels.duals import close_row, has_room, load_bits, load_duals, set_bits
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.score import score_row, score_vectors, subtract_scores
from streamsvm.kernels.scratch import (
    clear_lanes,
    clear_own,
    list_all,
    mark_class,
    mark_classes,
    mark_own,
    mark_vectors_above,
    own_bits,
    show_all_classes,
    show_classes,
)
from streamsvm.kernels.simd import (
    LANES,
    above,
    differing,
    lanes,
    load_first_like,
    load_like,
    lowest_bit,
    maximum,
    narrow,
    not_below,
    prefetch,
    select,
    store,
    sum_lanes,
    widen,
    zeros,
)
from streamsvm.kernels.sparse_rows import AVERAGE_DELTA, WEIGHT, add_sparse_scores, has_sparse_room
from streamsvm.kernels.tally import (
    CLOCK,
    CORRECT,
    DUAL_DELTA,
    DUAL_SUM,
    EMPTY,
    LOSS_SUM,
    UNWEIGHTED,
    VISITED,
)
from streamsvm.kernels.update import update_weights
from streamsvm.kernels.weights import AVERAGE_POWER, sum_of_squares

_ALL = np.array([[0, 2**62, 2**62]])
OWN_CLASSES, COLUMN_BEYOND, NOTHING = range(3)
FEW = 2  # vectors, among which to look for those that can have duals takes longer than to solve for all
ALL = 2**62


class Problem(NamedTuple):
    """What a block step needs to know of the training problem, beside the rows and their costs."""

    n_classes: int
    margin: float  # M
    smooth: float = 0.0  # ε of the smoothed hinge
    top: int = 1  # m of top-m
    temperature: float = 1.0  # τ of the block solvers bcpl and oeg
    solver_tol: float = 1e-3  # of the block solvers that are not exact
    solver: int = 0  # of chains: position in their solvers
    near: float = 0.0  # scores of at most this size count as 0 (see `streamsvm.losses.common_dual`)
    sigma: float = 1.0  # by which steps of the weights are multiplied: σ' of Ma et al. (2015)
    # (n_ranges, 3) int64: the first column of each range of classes, its end, and that of its padding
    ranges: np.ndarray = _ALL


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


class Kernels(NamedTuple):
    """The kernels of a loss; see `make_kernels` for their arguments."""

    visit: Any
    revisit: Any | None
    loss_rows: Any
    norm2: Any = sum_of_squares  # (weights, average_scale, sparse_rows, n_classes) -> ‖W‖²
    visits: Mapping[str, Any] = MappingProxyType({})  # by block solver, if they have kernels of their own
    sum_duals: Any = None  # (rows, duals, problem) -> the duals' terms in the dual objective


@inlined
def score_ranges(scores, rows, i, weights, problem):
    """Write the scores of row `i` for the classes of `problem`, and for their padding."""
    for r in range(len(problem.ranges)):
        score_row(scores, rows, i, weights, problem.ranges[r, 0], min(problem.ranges[r, 2], len(scores)))


@inlined
def linear_terms(b, C, problem):
    """The terms of duals b in the dual objective of a loss without curvature."""
    return b


@inlined
def no_sum_term(total, C, problem):
    """The term of the sum of a row's duals, for a loss that has none."""
    return 0.0


def make_kernels(
    name: str,
    *,
    solve: Any,
    measure: Any = None,
    terms: Any = linear_terms,
    sum_term: Any = no_sum_term,
    own_dual: bool = False,
    opposite: int = OWN_CLASSES,
    norm2: Any = sum_of_squares,
    bits: bool = False,
    few: int = FEW,
    inner_passes: bool = True,
) -> Kernels:
    """The kernels of one loss, from the functions in which it states its mathematics.

    Parameters
    ----------
    name : str
        Of the loss: part of the kernels' names, by which they are cached.
    solve : inlined function
        ``solve(row, n, problem, pairs, scratch)`` solves the block problem of a `Row` over the classes in the
        first `n` of ``scratch.vectors``, with ``scratch.scores``, margins of pairs included, -infinity in
        lanes without a dual, and the old duals ``scratch.old``. It leaves the new duals in ``scratch.v``, 0
        in lanes without one. It returns the loss of these classes before the step, without C, and a score:
        other classes with a loss, or with a dual in the problem of all, have a larger one. All classes with
        an old dual are there.
    measure : inlined function, optional
        ``measure(row, n, problem, pairs, scratch)`` returns the loss of the scores alone, where that is
        cheaper than by `solve`.
    terms, sum_term : inlined function
        ``terms(b, C, problem)`` of a vector b, and ``sum_term(total, C, problem)`` of a number, are what
        duals, and the sum of a row's duals, add to the dual objective, beside -½‖W‖². Both are concave, and
        0 at 0.
    own_dual : bool
        Whether the row's own classes have duals of their own.
    opposite : int
        What moves by M times the sum of the changes of the duals, while each class moves by -M times that
        of its own: the row's `OWN_CLASSES`, by equal shares; the `COLUMN_BEYOND` the classes; or `NOTHING`.
    norm2 : kernel
        ``norm2(weights, average_scale, sparse_rows, n_classes)`` is ‖W‖² of the current weights or of the
        average.
    bits : bool
        Whether duals that are at C are kept as one bit each.
    few : int
        The number of vectors up to which all are listed for `solve`; `ALL` if it needs them.
    inner_passes : bool
        Whether there is a `revisit`: where nearly all classes have duals, it would not be cheaper.

    Returns
    -------
    Kernels
        ``visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets)``
        makes a block step for each row of ``order[begin:end]``. It modifies weights, ``duals.new``, scratch,
        tally and sparse rows, and returns the position reached, which is less than `end` if the buffer of
        duals or the sparse rows have no room for another row.

        ``revisit(rows, order, starts, problem, weights, dual_buffer, scratch, tally, sparse_rows, pairs,
        sets)`` makes a block step for each of the buffer's rows ``order``, over the classes of their duals
        alone. The duals of the buffer's row r begin at ``starts[r]`` and are replaced there.

        ``loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets)`` adds
        the rows' losses and correct predictions to `tallies`, shape (1 or 2, N_TALLIES): by the current
        weights, and by ``current - average_scale * average_delta``.

        `pairs` is None or `ClassPairs`: what errors between classes weigh. `sets` is None or the `LabelSets`
        of rows with several labels.
    """

    has_linear_terms = terms is linear_terms

    def loss_of_solve(row, n, problem, pairs, scratch):
        return solve(row, n, problem, pairs, scratch)[0]

    measure = measure or inlined(loss_of_solve, name=f"{name}_loss_of_solve")

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

    def set_duals(row, n, problem, pairs, scratch, buffer, at, in_place):
        """Round the new duals, write them to the buffer from `at`, and set ``delta``.

        All of them are written if `in_place`, else those that are not zero. Returns the number of duals
        written, the old dual terms and their change, the number of vectors in which the weights move, and by
        what the own classes do.
        """
        delta, zero = scratch.delta, zeros()
        keep = len(buffer.ids) > 0
        scale, at_bound = problem.margin * problem.sigma, delta.dtype.type(row.C)
        steps, old_terms, new_terms = zero, zero, zero
        changed, n_moved, kept = np.int64(0), 0, 0
        receiver = problem.n_classes if opposite == COLUMN_BEYOND else row.y
        for r in range(n):
            c = scratch.vectors[r]
            old = load_like(scratch.old, c, zero)
            store(scratch.old, c, zero)
            new = narrow(load_like(scratch.v, r * LANES, zero), delta)
            b = widen(new)
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
            if keep:
                left = not_below(load_like(scratch.hidden, c, zero), 0.0)  # NaN is in all lanes
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

    def visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old, new = duals.old, duals.new
        n_all, reached = show_all_classes(problem, opposite == COLUMN_BEYOND, scratch), end
        lists_all = n_all <= few
        if lists_all:
            list_all(n_all, scratch)
        for t in range(begin, end):
            i = order[t]
            if not has_room(new, problem.n_classes) or (
                sparse_rows is not None and not has_sparse_room(sparse_rows, i, len(scratch.scores))
            ):
                reached = t
                break
            fetch_ahead(rows, old, order, t, end)
            y = np.int64(rows.labels[i])
            if is_idle(rows, i, y, sets is not None and own_dual, tally):
                continue
            n = n_all
            if not lists_all:
                n = mark_classes(old.ids, old.ids_at[i], old.counts[i], scratch)
            n = take_own(i, y, sets, scratch, n)
            old_sum = load_duals(
                old.ids, old.ids_at[i], old.values, old.values_at[i], old.counts[i], old.scale, scratch
            )
            if bits:
                old_sum += load_bits(old, i, rows.cost[i], n, problem, scratch)
            score_ranges(scratch.scores, rows, i, weights.current, problem)
            if sparse_rows is not None:
                add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
            row, right = begin_row(
                rows, i, y, old_sum, scratch.all_vectors, n_all, problem, pairs, sets, scratch
            )
            loss, limit = solve(row, n, problem, pairs, scratch)
            if not lists_all:
                listed, n = n, mark_vectors_above(limit, n_all, scratch, n)
                if n > listed:
                    loss, _ = solve(row, n, problem, pairs, scratch)
                clear_lanes(scratch, n)
            tally[LOSS_SUM] += row.C * loss
            tally[CORRECT] += right
            n_duals, old_terms, change, n_moved, total = set_duals(
                row, n, problem, pairs, scratch, new, new.used[0], False
            )
            time_factor = move(
                rows, i, row, total, n_moved, problem, weights, scratch, tally, sparse_rows, sets
            )
            tally[DUAL_SUM] += old_terms + change  # of this pass, which counts all duals anew
            tally[DUAL_DELTA] += time_factor * change
            close_row(i, n_duals, new)
            leave_own(i, y, sets, scratch)
        if lists_all:
            clear_lanes(scratch, n_all)
        return reached

    def revisit(rows, order, starts, problem, weights, dual_buffer, scratch, tally, sparse_rows, pairs, sets):
        for t in range(len(order)):
            fetch_ahead_of_revisit(rows, dual_buffer, starts, order, t)
            i = np.int64(dual_buffer.rows[order[t]])
            y = np.int64(rows.labels[i])
            m, at = dual_buffer.counts[order[t]], starts[order[t]]
            n = mark_classes(dual_buffer.ids, at, m, scratch)
            n = take_own(i, y, sets, scratch, n)
            show_classes(dual_buffer.ids, at, m, scratch, n)
            old_sum = load_duals(dual_buffer.ids, at, dual_buffer.values, at, m, 1.0, scratch)
            score_vectors(scratch.scores, rows, i, weights.current, scratch.vectors, n)
            if sparse_rows is not None:
                add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
            row, _ = begin_row(rows, i, y, old_sum, scratch.vectors, n, problem, pairs, sets, scratch)
            solve(row, n, problem, pairs, scratch)
            _, _, change, n_moved, total = set_duals(row, n, problem, pairs, scratch, dual_buffer, at, True)
            time_factor = move(
                rows, i, row, total, n_moved, problem, weights, scratch, tally, sparse_rows, sets
            )
            tally[DUAL_SUM] += change
            tally[DUAL_DELTA] += time_factor * change
            leave_own(i, y, sets, scratch)
            clear_lanes(scratch, n)

    def loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
        n = show_all_classes(problem, opposite == COLUMN_BEYOND, scratch)
        list_all(n, scratch)
        for i in range(len(rows.labels)):
            y = np.int64(rows.labels[i])
            for kind in range(len(tallies)):
                tally = tallies[kind]
                if is_idle(rows, i, y, sets is not None and own_dual, tally):
                    continue
                if kind == 0 or pairs is not None or sets is not None:  # which change more scores
                    score_ranges(scratch.scores, rows, i, weights.current, problem)
                    if sparse_rows is not None:
                        add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
                if kind == 1:
                    score_ranges(scratch.delta, rows, i, weights.average_delta, problem)
                    if sparse_rows is not None:
                        add_sparse_scores(scratch.delta, sparse_rows, i, AVERAGE_DELTA)
                    subtract_scores(scratch.scores, scratch.delta, average_scale)
                take_own(i, y, sets, scratch, n)
                row, right = begin_row(rows, i, y, 0.0, scratch.vectors, n, problem, pairs, sets, scratch)
                tally[LOSS_SUM] += row.C * measure(row, n, problem, pairs, scratch)
                tally[CORRECT] += right
                leave_own(i, y, sets, scratch)
                if sets is None:  # it was hidden
                    scratch.scores[y] = row.own_score
                if opposite == COLUMN_BEYOND:
                    scratch.scores[problem.n_classes] = row.shared
        clear_lanes(scratch, n)

    def sum_duals(rows, duals, problem):
        zero, total = zeros(), 0.0
        for i in range(len(duals.counts)):
            of_row, values, p = zero, zero, duals.values_at[i]
            end = p + duals.counts[i]
            while p < end:
                b = load_first_like(duals.values, p, end - p, zero)
                of_row, values = of_row + b, values + terms(b, rows.cost[i], problem)
                p += LANES
            if duals.counts[i] > 0:
                total += sum_lanes(values) + sum_term(sum_lanes(of_row), rows.cost[i], problem)
        return total

    return Kernels(
        kernel(visit, name=f"{name}_visit"),
        kernel(revisit, name=f"{name}_revisit") if inner_passes else None,
        kernel(loss_rows, name=f"{name}_loss_rows"),
        norm2,
        sum_duals=kernel(sum_duals, name=f"{name}_sum_duals"),
    )


@inlined
def hide_scores(top, first, vectors, n, scratch):
    """Set the scores of lanes without a dual to -infinity.

    Returns whether no other class has a larger score than `top`, or the same and comes before class `first`.
    """
    scores = scratch.scores
    best = narrow(zeros() - np.inf, scores)
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


# -- prefetching -----------------------------------------------------------------------------------
#
# Rows are visited in random order, which no hardware predicts: without prefetching, reading the row takes
# longer than scoring it if there are few classes.

_AHEAD = 2  # rows fetched before their visit: one row is too late, more rows crowd the cache


@inlined
def _fetch_facts(rows, i):
    """Begin to load the numbers of row `i`, where its values begin among them."""
    prefetch(rows.indptr, i)
    prefetch(rows.labels, i)
    prefetch(rows.norm2, i)
    prefetch(rows.cost, i)


@inlined
def _fetch_values(rows, i):
    """Begin to load the values and indices of row `i`, whose offsets are loaded."""
    p = rows.indptr[i]
    while p < rows.indptr[i + 1]:
        prefetch(rows.indices, p)
        prefetch(rows.data, p)
        p += lanes(rows.data)


@inlined
def fetch_ahead(rows, old, order, t, end):
    """Begin to load the row that is visited soon after ``order[t]``, and its duals."""
    if t + 2 * _AHEAD < end:
        i = order[t + 2 * _AHEAD]
        _fetch_facts(rows, i)
        prefetch(old.counts, i)
        prefetch(old.ids_at, i)
        prefetch(old.values_at, i)
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        _fetch_values(rows, i)
        prefetch(old.ids, old.ids_at[i])
        prefetch(old.values, old.values_at[i])


@inlined
def fetch_ahead_of_revisit(rows, dual_buffer, starts, order, t):
    """As `fetch_ahead`, for the buffer's rows ``order``."""
    if t + 3 * _AHEAD < len(order):
        prefetch(dual_buffer.rows, order[t + 3 * _AHEAD])
        prefetch(dual_buffer.counts, order[t + 3 * _AHEAD])
        prefetch(starts, order[t + 3 * _AHEAD])
    if t + 2 * _AHEAD < len(order):
        _fetch_facts(rows, dual_buffer.rows[order[t + 2 * _AHEAD]])
        prefetch(dual_buffer.ids, starts[order[t + 2 * _AHEAD]])
        prefetch(dual_buffer.values, starts[order[t + 2 * _AHEAD]])
    if t + _AHEAD < len(order):
        _fetch_values(rows, dual_buffer.rows[order[t + _AHEAD]])
