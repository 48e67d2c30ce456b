"""The frame of a visit, of a revisit and of scoring: all that does not depend on the loss, written once.

A row's block problem is vectors over its classes: scores, old duals, bounds, margins. `make_kernels` closes
the loops over rows over the functions in which a loss states its mathematics. These become free variables of
the kernels: arguments would do as well, but Numba would not cache the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.duals import clear_matrix_row, fill_duals, has_room, load_duals, load_matrix_row
from streamsvm.kernels.fetch import fetch_duals, fetch_matrix, fetch_rows
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.row_steps import (
    COLUMN_BEYOND,
    LISTED,
    LISTS,
    MATRIX,
    OWN_CLASSES,
    begin_row,
    count_visit,
    is_idle,
    leave_own,
    linear_terms,
    make_step,
    no_sum_term,
    take_own,
)
from streamsvm.kernels.score import score_fixed, score_vectors, score_visit, subtract_scores
from streamsvm.kernels.scratch import (
    clear_lanes,
    list_all,
    mark_classes,
    mark_vectors_above,
    show_all_classes,
    show_classes,
)
from streamsvm.kernels.simd import LANES, load_first_like, sum_lanes, zeros
from streamsvm.kernels.sparse_rows import AVERAGE_DELTA, WEIGHT, has_sparse_room, score_by_sparse_rows
from streamsvm.kernels.tally import CORRECT, LOSS_SUM
from streamsvm.kernels.weights import sum_of_squares

_ALL = np.array([[0, 2**62, 2**62]])
_FEW = 2  # vectors, among which to look for those that can have duals takes longer than to solve for all


class Problem(NamedTuple):
    """What a block step needs to know of the training problem, beside the rows and their costs."""

    n_classes: int
    margin: float  # M
    smooth: float = 0.0  # ε of the smoothed hinge
    top: int = 1  # m of top-m
    temperature: float = 1.0  # τ of the block solvers bcpl and oeg
    solver: int = 0  # of chains: position in their solvers
    near: float = 0.0  # scores of at most this size count as 0 (see `streamsvm.losses.common_dual`)
    sigma: float = 1.0  # by which steps of the weights are multiplied: σ' of Ma et al. (2015)
    start: float = 0.0  # each old dual of a row divided by its cost, while none are listed
    # (n_ranges, 3) int64: the first column of each range of classes, its end, and that of its padding
    ranges: np.ndarray = _ALL


class Kernels(NamedTuple):
    """The kernels of a loss; see `make_kernels` for their arguments."""

    visit: Any
    revisit: Any | None
    loss_rows: Any
    norm2: Any = sum_of_squares  # (weights, average_scale, sparse_rows, problem, sums): adds ‖W‖² to sums
    sum_duals: Any = None  # (rows, duals, problem) -> the duals' terms in the dual objective
    visit_matrix: Any = None


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
    needs_all: bool = False,
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
        ``norm2(weights, average_scale, sparse_rows, problem, sums)`` adds ‖W‖² of each range of classes, of
        the current weights or of the average, to `sums`.
    needs_all : bool
        Whether `solve` needs all classes, not only those that have a dual or a score above its threshold.

    Returns
    -------
    Kernels
        ``visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets)``
        makes a block step for each row of ``order[begin:end]``. It modifies weights, ``duals.new``, scratch,
        tally and sparse rows, and returns the position reached, which is less than `end` if the buffer of
        duals or the sparse rows have no room for another row.

        ``revisit``, with the same arguments, makes a block step over the classes of each row's duals alone,
        and counts neither rows nor losses. ``duals.old`` are views of those in the buffer ``duals.new``, and
        are replaced there.

        ``visit_matrix``, with the same arguments, does as `visit` with a `DualMatrix`.

        ``loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets)`` adds
        the rows' losses and correct predictions to `tallies`, shape (1 or 2, N_TALLIES): by the current
        weights, and by ``current - average_scale * average_delta``.

        `pairs` is None or `ClassPairs`: what errors between classes weigh. `sets` is None or the `LabelSets`
        of rows with several labels.
    """

    beyond = int(opposite == COLUMN_BEYOND)

    def loss_of_solve(row, n, problem, pairs, scratch):
        return solve(row, n, problem, pairs, scratch)[0]

    measure = measure or inlined(loss_of_solve, name=f"{name}_loss_of_solve")

    step_to_lists, step_in_lists, step_in_matrix = (
        make_step(
            f"{name}_{visit}", kind, terms=terms, sum_term=sum_term, own_dual=own_dual, opposite=opposite
        )
        for visit, kind in (("visit", LISTS), ("revisit", LISTED), ("visit_matrix", MATRIX))
    )

    def visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old, new, starts = duals.old, duals.new, problem.start > 0
        n_all = show_all_classes(problem, beyond, scratch)
        has_all = starts or needs_all or n_all <= _FEW  # else only vectors that can have duals are listed
        if has_all:
            list_all(n_all, scratch)
        for t in range(begin, end):
            i = order[t]
            if not has_room(new, problem.n_classes) or not has_sparse_room(
                sparse_rows, rows, i, len(scratch.scores)
            ):
                end = t
                break
            fetch_rows(rows, order, t, end, weights.tile)
            fetch_duals(old, order, t, end)
            y = np.int64(rows.labels[i])
            if is_idle(rows, i, y, sets is not None and own_dual, tally):
                continue
            n = n_all if has_all else mark_classes(old, i, scratch)
            n = take_own(i, y, own_dual, sets, scratch, n)
            old_sum = load_duals(old, i, scratch)
            if starts:
                old_sum = fill_duals(problem.start * rows.cost[i], n, scratch)
            if sparse_rows is not None:
                score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)
            else:
                score_visit(scratch.scores, rows, i, weights, weights.tile, t - begin, problem)
            row = begin_row(
                rows, i, y, old_sum, scratch.all_vectors, n_all, beyond, problem, pairs, sets, scratch
            )
            loss, limit = solve(row, n, problem, pairs, scratch)
            if not has_all:
                listed, n = n, mark_vectors_above(limit, n_all, scratch, n)
                if n > listed:
                    loss, _ = solve(row, n, problem, pairs, scratch)
            terms_of_row = step_to_lists(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, True, row, loss, *terms_of_row)
            if not has_all:
                clear_lanes(scratch, n)
        if has_all:
            clear_lanes(scratch, n_all)
        return end

    def revisit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old = duals.old
        show_all_classes(problem, beyond, scratch)
        for t in range(begin, end):
            i = order[t]
            fetch_rows(rows, order, t, end, weights.tile)
            fetch_duals(old, order, t, end)
            y = np.int64(rows.labels[i])
            n = take_own(i, y, own_dual, sets, scratch, mark_classes(old, i, scratch))
            old_sum = load_duals(old, i, scratch)
            show_classes(old, i, scratch, n)
            if sparse_rows is not None:
                score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)
            else:
                score_vectors(scratch.scores, rows, i, weights.current, scratch.vectors, n)
            row = begin_row(rows, i, y, old_sum, scratch.vectors, n, beyond, problem, pairs, sets, scratch)
            loss, _ = solve(row, n, problem, pairs, scratch)
            terms_of_row = step_in_lists(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, False, row, loss, *terms_of_row)
            clear_lanes(scratch, n)
        return end

    def visit_matrix(
        rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
    ):
        n = show_all_classes(problem, beyond, scratch)
        list_all(n, scratch)
        for t in range(begin, end):
            i = order[t]
            fetch_rows(rows, order, t, end, weights.tile)
            fetch_matrix(duals, order, t, end)
            y = np.int64(rows.labels[i])
            if not duals.again and is_idle(rows, i, y, sets is not None and own_dual, tally):
                clear_matrix_row(duals.new, i)
                continue
            take_own(i, y, own_dual, sets, scratch, n)
            old_sum = load_matrix_row(duals, i, n, scratch)
            score_visit(scratch.scores, rows, i, weights, weights.tile, t - begin, problem)
            row = begin_row(rows, i, y, old_sum, scratch.vectors, n, beyond, problem, pairs, sets, scratch)
            loss, _ = solve(row, n, problem, pairs, scratch)
            terms_of_row = step_in_matrix(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, not duals.again, row, loss, *terms_of_row)
        clear_lanes(scratch, n)
        return end

    def loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
        n = show_all_classes(problem, beyond, scratch)
        list_all(n, scratch)
        for i in range(len(rows.labels)):
            y = np.int64(rows.labels[i])
            for kind in range(len(tallies)):
                tally = tallies[kind]
                if is_idle(rows, i, y, sets is not None and own_dual, tally):
                    continue
                if kind == 0 or pairs is not None or sets is not None:  # which change more scores
                    matrix = weights.current
                    score_fixed(scratch.scores, rows, i, matrix, weights.tile, sparse_rows, WEIGHT, problem)
                if kind == 1:
                    matrix, array = weights.average_delta, AVERAGE_DELTA
                    score_fixed(scratch.delta, rows, i, matrix, weights.tile, sparse_rows, array, problem)
                    subtract_scores(scratch.scores, scratch.delta, average_scale)
                take_own(i, y, own_dual, sets, scratch, n)
                row = begin_row(rows, i, y, 0.0, scratch.vectors, n, beyond, problem, pairs, sets, scratch)
                tally[LOSS_SUM] += row.C * measure(row, n, problem, pairs, scratch)
                tally[CORRECT] += row.right
                leave_own(i, y, sets, scratch)
                if sets is None:  # it was hidden
                    scratch.scores[y] = row.own_score
                if beyond:
                    scratch.scores[problem.n_classes] = row.shared
        clear_lanes(scratch, n)

    def sum_duals(rows, duals, problem):
        zero, total = zeros(), 0.0
        for i in range(len(duals.counts)):
            of_row, values, p = zero, zero, duals.at[i]
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
        kernel(revisit, name=f"{name}_revisit"),
        kernel(loss_rows, name=f"{name}_loss_rows"),
        norm2,
        sum_duals=kernel(sum_duals, name=f"{name}_sum_duals"),
        visit_matrix=kernel(visit_matrix, name=f"{name}_visit_matrix"),
    )
