"""The frame of a visit, of a revisit and of scoring: all that does not depend on the loss, written once.

`make_kernels` closes these loops over the functions in which a loss states its mathematics. The functions
become free variables of the kernels: arguments would do as well, but Numba would not cache the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.candidates import beats, best_wrong_class, clear_candidates, mark_class
from streamsvm.kernels.class_pairs import (
    add_margins,
    add_margins_of_candidates,
    cost_of,
    margin_surplus,
)
from streamsvm.kernels.duals import clear_bits, close_row, has_room, load_bits, load_duals, set_bit
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.label_sets import average_own_scores, best_is_wrong, mark_own_classes, own_classes
from streamsvm.kernels.score import score_row, score_vectors, subtract_scores
from streamsvm.kernels.simd import lanes, prefetch
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


class Problem(NamedTuple):
    """What a block step needs to know of the training problem, beside the rows and their costs."""

    n_classes: int
    margin: float  # M
    solver: int  # position in the loss's solvers
    smooth: float = 0.0  # ε of the smoothed hinge
    top: int = 1  # m of top-m
    temperature: float = 1.0  # τ of the block solvers bcpl and oeg
    solver_tol: float = 1e-3  # of the block solvers that are not exact
    near: float = 0.0  # scores of at most this size count as 0 (see `streamsvm.losses.common_dual`)
    sigma: float = 1.0  # by which steps of the weights are multiplied: σ' of Ma et al. (2015)
    # (n_ranges, 3) int64: the first column of each range of classes, its end, and that of its padding
    ranges: np.ndarray = _ALL


class Kernels(NamedTuple):
    """The kernels of a loss; see `make_kernels` for their arguments."""

    visit: Any
    revisit: Any | None
    loss_rows: Any
    norm2: Any = sum_of_squares  # (weights, average_scale, sparse_rows, n_classes) -> ‖W‖²
    visits: Mapping[str, Any] = MappingProxyType({})  # by block solver, if they have kernels of their own
    sum_duals: Any = None  # (rows, duals, problem) -> the duals' terms in the dual objective


@inlined
def opposite_of_sum(y, problem, sum_of_steps, delta):
    """What the own class's weights move by, if w_y = M Σ_i x_i Σ_j b_ij: the other classes' opposite."""
    return problem.margin * problem.sigma * sum_of_steps


@inlined
def score_ranges(scores, rows, i, weights, problem):
    """Write the scores of row `i` for the classes of `problem`, and for their padding."""
    for r in range(len(problem.ranges)):
        score_row(scores, rows, i, weights, problem.ranges[r, 0], min(problem.ranges[r, 2], len(scores)))


@inlined
def linear_term(b, C, problem):
    """The term of a dual b in the dual objective of a loss without curvature."""
    return b


@inlined
def no_sum_term(total, C, problem):
    """The term of the sum of a row's duals, for a loss that has none."""
    return 0.0


def make_kernels(
    name: str,
    *,
    solve: Any,
    solve_restricted: Any,
    add_losses: Any,
    own_step: Any = opposite_of_sum,
    dual_term: Any = linear_term,
    sum_term: Any = no_sum_term,
    norm2: Any = sum_of_squares,
    bits: bool = False,
    own_dual: bool = False,
) -> Kernels:
    """The kernels of one loss, from the functions in which it states its mathematics.

    Parameters
    ----------
    name : str
        Of the loss: part of the kernels' names, by which they are cached.
    solve : inlined function
        ``solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch)`` solves the block
        problem of a row of class `y`. ``scratch.scores`` are its scores, margins of pairs included; its
        `n_old` old duals, whose sum is `old_sum`, are candidates. The function adds other candidates, and
        leaves the new duals of all `m` candidates in ``scratch.v[:m]``. It returns ``m, n_vectors, loss,
        is_wrong``: the number of candidates, the number of their vectors, the loss before the step without C,
        and whether another class was predicted.

        `pairs` is None or the `ClassPairs`, of which the costs concern the function. `own` is None or the
        `OwnClasses` of a row with several labels: unless these have duals, ``scratch.scores[y]`` is then the
        mean of their scores, and each of them moves by an equal share of the own class's step.
    solve_restricted : inlined function or None
        ``solve_restricted(y, norm2, C, problem, pairs, own, m, old_sum, scratch)`` does the same over the `m`
        candidates alone, and returns nothing. Without it there is no `revisit`, and there are no inner
        passes.
    add_losses : inlined function
        ``add_losses(y, problem, pairs, own, n_vectors, scratch)`` returns ``n_vectors, loss, is_wrong`` of
        scores.
    own_step : inlined function
        ``own_step(y, problem, sum_of_steps, delta)`` returns the multiple of the row by which the weights of
        its own class move. ``delta`` already has -M times the change of each candidate's dual; the function
        may set the entry of a column beyond the classes.
    dual_term, sum_term : inlined function
        ``dual_term(b, C, problem)`` and ``sum_term(total, C, problem)`` are what a dual b, and the sum of a
        row's duals, add to the dual objective, beside -½‖W‖². Both are concave, and 0 at 0.
    norm2 : kernel
        ``norm2(weights, average_scale, sparse_rows, n_classes)`` is ‖W‖² of the current weights or of the
        average.
    bits : bool
        Whether duals that are at C are kept as one bit each.
    own_dual : bool
        Whether the row's own classes have duals of their own.

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

    def term_of(b, c, y, C, problem, pairs, own):
        """What the dual b of class `c` adds to the dual objective."""
        if pairs is None:
            return dual_term(b, C, problem)
        cost = C * cost_of(y, c, own, pairs)
        term = margin_surplus(y, c, problem, pairs) * b
        if cost > 0.0:  # else b is 0
            term += dual_term(b, cost, problem)
        return term

    term_of = inlined(term_of, name=f"{name}_term_of")

    def prepare(y, problem, pairs, own, scratch):
        """Make the scores those of the block problem; return whether a wrong class has the best before."""
        scores, is_wrong = scratch.scores, False
        if own is not None:
            is_wrong = best_is_wrong(own, problem.n_classes, scores)
            if not own_dual:
                average_own_scores(y, own, scores)
        elif pairs is not None:
            best = best_wrong_class(y, problem.n_classes, scores)
            is_wrong = best != y and beats(best, y, scores)
            add_margins(y, problem, pairs, scores)
        return is_wrong

    prepare = inlined(prepare, name=f"{name}_prepare")

    def set_duals(y, C, problem, pairs, own, old_sum, scratch, m, dual_buffer, at, in_place):
        """Round the new duals, write them to the buffer from `at`, and set ``delta``.

        All `m` of them are written if `in_place`, else those that are not zero. Returns the number of duals
        written, the old dual terms and their change, and whether any dual changed.
        """
        delta, keep = scratch.delta, len(dual_buffer.ids) > 0
        sum_of_steps, changed, kept = 0.0, False, 0
        old_terms, term_change = sum_term(old_sum, C, problem), 0.0
        if bits and keep:
            clear_bits(dual_buffer)
        for r in range(m):
            value = delta.dtype.type(scratch.v[r])
            step = value - scratch.before[r]
            delta[scratch.ids[r]] = -(problem.margin * problem.sigma) * step
            sum_of_steps += step
            c = scratch.ids[r]
            old_term = term_of(scratch.before[r], c, y, C, problem, pairs, own)
            old_terms += old_term
            term_change += term_of(np.float64(value), c, y, C, problem, pairs, own) - old_term
            changed |= step != 0
            if bits and keep and value == delta.dtype.type(C):
                set_bit(dual_buffer, scratch.ids[r])
            elif keep:
                dual_buffer.ids[at + kept] = scratch.ids[r]
                dual_buffer.values[at + kept] = value
                kept += in_place | (value != 0)
        if changed and own is None:
            delta[y] = own_step(y, problem, sum_of_steps, delta)
        elif changed and own is not None:
            for p in range(own.begin, own.end):
                c = np.int64(own.codes[p])
                delta[c] = own_step(c, problem, sum_of_steps / (own.end - own.begin), delta)
        term_change += sum_term(old_sum + sum_of_steps, C, problem) - sum_term(old_sum, C, problem)
        return kept, old_terms, term_change, changed

    set_duals = inlined(set_duals, name=f"{name}_set_duals")

    def visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old, new = duals.old, duals.new
        for t in range(begin, end):
            i = order[t]
            if not has_room(new, problem.n_classes):
                return t
            if sparse_rows is not None and not has_sparse_room(sparse_rows, i, len(scratch.scores)):
                return t
            fetch_ahead(rows, old, order, t, end)
            y = np.int64(rows.labels[i])
            if is_idle(rows, i, y, sets is not None and own_dual, tally):
                continue
            n_old = np.int64(old.counts[i])
            C = rows.cost[i]
            own = None if sets is None else own_classes(sets, i)
            n_vectors = mark_class(y, scratch, 0) if sets is None else mark_own_classes(own, scratch, 0)
            old_sum, n_vectors = load_duals(
                old.ids, old.ids_at[i], old.values, old.values_at[i], n_old, old.scale, scratch, n_vectors
            )
            if bits:
                at_bound = np.float64(scratch.scores.dtype.type(C))
                n_old, old_sum, n_vectors = load_bits(
                    old, i, at_bound, problem.n_classes, n_old, old_sum, scratch, n_vectors
                )
            score_ranges(scratch.scores, rows, i, weights.current, problem)
            if sparse_rows is not None:
                add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
            is_beaten = prepare(y, problem, pairs, own, scratch)
            m, n_vectors, loss, is_wrong = solve(
                y, rows.norm2[i], C, problem, pairs, own, n_old, old_sum, n_vectors, scratch
            )
            if pairs is not None or sets is not None:
                is_wrong = is_beaten
            tally[LOSS_SUM] += C * loss
            tally[CORRECT] += not is_wrong
            tally[CLOCK] += 1
            n_duals, old_terms, term_change, changed = set_duals(
                y, C, problem, pairs, own, old_sum, scratch, m, new, new.used[0], False
            )
            time_factor = (tally[CLOCK] / weights.time_unit) ** AVERAGE_POWER
            if changed:
                update_weights(rows, i, weights, scratch, n_vectors, time_factor, sparse_rows)
            clear_candidates(scratch, n_vectors)
            tally[DUAL_SUM] += old_terms + term_change  # of this pass, which counts all duals anew
            tally[DUAL_DELTA] += time_factor * term_change
            close_row(i, n_duals, new)
        return end

    def revisit(rows, order, starts, problem, weights, dual_buffer, scratch, tally, sparse_rows, pairs, sets):
        for t in range(len(order)):
            fetch_ahead_of_revisit(rows, dual_buffer, starts, order, t)
            i = np.int64(dual_buffer.rows[order[t]])
            y = np.int64(rows.labels[i])
            m = np.int64(dual_buffer.counts[order[t]])
            C, at = rows.cost[i], starts[order[t]]
            own = None if sets is None else own_classes(sets, i)
            n_vectors = mark_class(y, scratch, 0) if sets is None else mark_own_classes(own, scratch, 0)
            old_sum, n_vectors = load_duals(
                dual_buffer.ids, at, dual_buffer.values, at, m, 1.0, scratch, n_vectors
            )
            score_vectors(scratch.scores, rows, i, weights.current, scratch.vectors, n_vectors)
            if sparse_rows is not None:
                add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
            if sets is not None and not own_dual:
                average_own_scores(y, own, scratch.scores)
            if pairs is not None:
                add_margins_of_candidates(y, problem, pairs, scratch, m)
            solve_restricted(y, rows.norm2[i], C, problem, pairs, own, m, old_sum, scratch)
            tally[CLOCK] += 1
            _, _, term_change, changed = set_duals(
                y, C, problem, pairs, own, old_sum, scratch, m, dual_buffer, at, True
            )
            time_factor = (tally[CLOCK] / weights.time_unit) ** AVERAGE_POWER
            if changed:
                update_weights(rows, i, weights, scratch, n_vectors, time_factor, sparse_rows)
            clear_candidates(scratch, n_vectors)
            tally[DUAL_SUM] += term_change
            tally[DUAL_DELTA] += time_factor * term_change

    def loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
        for i in range(len(rows.labels)):
            y = np.int64(rows.labels[i])
            for kind in range(len(tallies)):
                tally = tallies[kind]
                if is_idle(rows, i, y, sets is not None and own_dual, tally):
                    continue
                if kind == 0 or pairs is not None or sets is not None:  # `prepare` changes the scores
                    score_ranges(scratch.scores, rows, i, weights.current, problem)
                    if sparse_rows is not None:
                        add_sparse_scores(scratch.scores, sparse_rows, i, WEIGHT)
                if kind == 1:
                    score_ranges(scratch.delta, rows, i, weights.average_delta, problem)
                    if sparse_rows is not None:
                        add_sparse_scores(scratch.delta, sparse_rows, i, AVERAGE_DELTA)
                    subtract_scores(scratch.scores, scratch.delta, average_scale)
                own = None if sets is None else own_classes(sets, i)
                n_vectors = mark_class(y, scratch, 0) if sets is None else mark_own_classes(own, scratch, 0)
                is_beaten = prepare(y, problem, pairs, own, scratch)
                n_vectors, loss, is_wrong = add_losses(y, problem, pairs, own, n_vectors, scratch)
                if pairs is not None or sets is not None:
                    is_wrong = is_beaten
                tally[LOSS_SUM] += rows.cost[i] * loss
                tally[CORRECT] += not is_wrong
                clear_candidates(scratch, n_vectors)

    def sum_duals(rows, duals, problem):
        total = 0.0
        for i in range(len(duals.counts)):
            of_row, terms = 0.0, 0.0
            for p in range(duals.values_at[i], duals.values_at[i] + duals.counts[i]):
                b = np.float64(duals.values[p])
                of_row += b
                terms += dual_term(b, rows.cost[i], problem)
            if duals.counts[i] > 0:
                total += terms + sum_term(of_row, rows.cost[i], problem)
        return total

    return Kernels(
        kernel(visit, name=f"{name}_visit"),
        None if solve_restricted is None else kernel(revisit, name=f"{name}_revisit"),
        kernel(loss_rows, name=f"{name}_loss_rows"),
        norm2,
        sum_duals=kernel(sum_duals, name=f"{name}_sum_duals"),
    )


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
