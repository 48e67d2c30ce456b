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

from streamsvm.kernels.duals import close_row, has_room, load_bits, load_duals
from streamsvm.kernels.fetch import fetch_ahead, fetch_ahead_of_revisit
from streamsvm.kernels.few_classes import make_visit_of_few
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.row_steps import (
    COLUMN_BEYOND,
    OWN_CLASSES,
    is_idle,
    linear_terms,
    make_row_steps,
    no_sum_term,
)
from streamsvm.kernels.score import score_ranges, score_vectors, subtract_scores
from streamsvm.kernels.scratch import (
    clear_lanes,
    list_all,
    mark_classes,
    mark_vectors_above,
    show_all_classes,
    show_classes,
)
from streamsvm.kernels.simd import LANES, load_first_like, sum_lanes, zeros
from streamsvm.kernels.sparse_rows import AVERAGE_DELTA, WEIGHT, add_sparse_scores, has_sparse_room
from streamsvm.kernels.tally import CORRECT, DUAL_DELTA, DUAL_SUM, LOSS_SUM
from streamsvm.kernels.weights import sum_of_squares

_ALL = np.array([[0, 2**62, 2**62]])
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


class Kernels(NamedTuple):
    """The kernels of a loss; see `make_kernels` for their arguments."""

    visit: Any
    revisit: Any | None
    loss_rows: Any
    norm2: Any = sum_of_squares  # (weights, average_scale, sparse_rows, n_classes) -> ‖W‖²
    visits: Mapping[str, Any] = MappingProxyType({})  # by block solver, if they have kernels of their own
    sum_duals: Any = None  # (rows, duals, problem) -> the duals' terms in the dual objective
    visit_few: Any = None


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
    """Make the kernels of one loss, from the functions in which it states its mathematics.

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

        ``visit_few(rows, order, begin, end, problem, weights, old, scale, new, again, scratch, tally, pairs,
        sets)`` does as `visit` where there are few classes (see `streamsvm.kernels.few_classes`). The duals
        are `scale` times `old`, dense or empty, and become `new`, which may be the same array. It makes an
        inner pass, which counts neither rows nor losses, if `again`.

        ``loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets)`` adds
        the rows' losses and correct predictions to `tallies`, shape (1 or 2, N_TALLIES): by the current
        weights, and by ``current - average_scale * average_delta``.

        `pairs` is None or `ClassPairs`: what errors between classes weigh. `sets` is None or the `LabelSets`
        of rows with several labels.
    """

    steps = make_row_steps(
        name, terms=terms, sum_term=sum_term, own_dual=own_dual, opposite=opposite, bits=bits
    )
    begin_row, take_own, leave_own, set_duals, move = steps

    def loss_of_solve(row, n, problem, pairs, scratch):
        return solve(row, n, problem, pairs, scratch)[0]

    measure = measure or inlined(loss_of_solve, name=f"{name}_loss_of_solve")

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
                row, n, problem, pairs, scratch, None, new, new.used[0], False
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
            _, _, change, n_moved, total = set_duals(
                row, n, problem, pairs, scratch, None, dual_buffer, at, True
            )
            time_factor = move(
                rows, i, row, total, n_moved, problem, weights, scratch, tally, sparse_rows, sets
            )
            tally[DUAL_SUM] += change
            tally[DUAL_DELTA] += time_factor * change
            leave_own(i, y, sets, scratch)
            clear_lanes(scratch, n)

    visit_few = make_visit_of_few(name, steps, solve, own_dual=own_dual, opposite=opposite)

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
        visit_few=visit_few,
    )
