"""Loops over rows, shared by all losses: visits, revisits and scoring.

A *visit* scores a row and takes a *block step*, which solves the row's *block problem* and updates the
weights. The block problem is the dual problem with the duals of all other rows fixed. A *revisit* considers
only classes with a non-zero dual. `make_kernels` builds the loops around the functions that define a loss,
which are free variables of the kernels because Numba does not cache kernels that take functions as arguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.duals import clear_matrix_row, fill_duals, has_room, load_duals, load_matrix_row
from streamsvm.kernels.fetch import fetch_duals, fetch_matrix, fetch_rows
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.row_steps import (
    LISTED,
    LISTS,
    MATRIX,
    OWN_CLASSES,
    SHARED_COLUMN,
    begin_row,
    count_visit,
    is_idle,
    linear_terms,
    make_step,
    mark_own_classes,
    no_sum_term,
    unmark_own_classes,
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
_FEW = 2  # up to this number of vectors, solving for all classes is faster than searching for candidates


class Problem(NamedTuple):
    """Constants of the training problem for a block step."""

    n_classes: int
    margin: float  # margin scale M: slacks are 1 - M (s_y - s_j), for scores s and the true class y
    smooth: float = 0.0  # ε of the smoothed hinge
    top: int = 1  # m of top-m
    temperature: float = 1.0  # τ of the block solvers bcpl and oeg
    solver: int = 0  # index into `ON_CHAINS`, for the chain loss
    near: float = 0.0  # absolute scores up to this value count as 0 (see `streamsvm.losses.common_dual`)
    sigma: float = 1.0  # factor that scales the weight steps: σ' of Ma et al. (2015)
    start: float = 0.0  # if above 0, every old dual of row i is start * cost[i]
    # (n_ranges, 3) int64: first column, end, and end including padding of each range of classes
    ranges: np.ndarray = _ALL


class Kernels(NamedTuple):
    """Kernels of a loss (see `make_kernels`)."""

    visit: Any
    revisit: Any | None
    loss_rows: Any
    norm2: Any = sum_of_squares  # (weights, average_scale, sparse_rows, problem, sums): adds ‖W‖² to sums
    sum_duals: Any = None  # (rows, duals, problem) -> sum of the terms of all duals in the dual objective
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
    """Make the kernels of a loss from the functions that define it.

    Parameters
    ----------
    name : str
        Name of the loss, which identifies its kernels in the cache.
    solve : inlined function
        ``solve(row, n, problem, pairs, scratch)`` solves the block problem of a `Row` over the classes in
        ``scratch.vectors[:n]``, which include all classes with an old dual. It reads the old duals
        ``scratch.old`` and the scores ``scratch.scores``, which include the margins of class pairs and are
        -infinity in lanes without a dual. It writes the new duals to ``scratch.v``, with 0 in lanes without a
        dual. It returns the loss over these classes before the step, divided by C, and a score limit. Any
        other class that has a loss, or a dual in the solution over all classes, has a score above this limit.
    measure : inlined function, optional
        ``measure(row, n, problem, pairs, scratch)`` returns only the loss, and is faster than `solve`.
    terms, sum_term : inlined function
        Terms of the dual objective other than -½‖W‖²: ``terms(b, C, problem)`` for a vector b of duals, and
        ``sum_term(total, C, problem)`` for the sum of a row's duals. Both are concave, and 0 at 0.
    own_dual : bool
        Whether the true classes of a row have duals.
    opposite : int
        A step changes the weights of each class by -M x times the change of its dual. `opposite` selects the
        columns that change by M x times the sum of these changes: the true classes in equal parts
        (`OWN_CLASSES`), the shared column (`SHARED_COLUMN`), or none (`NOTHING`).
    norm2 : kernel
        Computes ‖W‖² for the current or the averaged weights (see `Kernels`).
    needs_all : bool
        Whether `solve` needs all classes rather than only those that may get a dual.

    Returns
    -------
    Kernels
        ``visit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets)``
        takes a block step for each row of ``order[begin:end]``. It modifies weights, ``duals.new``, scratch,
        tally and sparse rows. It returns the position reached, which is less than `end` if the dual buffer or
        the sparse rows have no room for another row. `pairs` is None or `ClassPairs`; `sets` is None or
        `LabelSets`. ``visit_matrix`` does the same with a `DualMatrix`. ``revisit`` takes block steps for
        only the classes with a listed dual, and counts neither rows nor losses. Its ``duals.old`` contains
        views of the buffer ``duals.new``, which it overwrites.

        ``loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets)`` adds
        the losses and correct predictions to `tallies`, shape (1 or 2, N_TALLIES). Row 0 is for the current
        weights, and row 1 for the averaged weights ``current - average_scale * average_delta``.
    """

    n_shared = int(opposite == SHARED_COLUMN)

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
        n_all = show_all_classes(problem, n_shared, scratch)
        has_all = starts or needs_all or n_all <= _FEW  # else only vectors with possible duals are listed
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
            n = mark_own_classes(i, y, own_dual, sets, scratch, n)
            old_sum = load_duals(old, i, scratch)
            if starts:
                old_sum = fill_duals(problem.start * rows.cost[i], n, scratch)
            if sparse_rows is not None:
                score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)
            else:
                score_visit(scratch.scores, rows, i, weights, weights.tile, t - begin, problem)
            row = begin_row(
                rows, i, y, old_sum, scratch.all_vectors, n_all, n_shared, problem, pairs, sets, scratch
            )
            loss, limit = solve(row, n, problem, pairs, scratch)
            if not has_all:
                listed, n = n, mark_vectors_above(limit, n_all, scratch, n)
                if n > listed:
                    loss, _ = solve(row, n, problem, pairs, scratch)
            row_terms = step_to_lists(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, True, row, loss, *row_terms)
            if not has_all:
                clear_lanes(scratch, n)
        if has_all:
            clear_lanes(scratch, n_all)
        return end

    def revisit(rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets):
        old = duals.old
        show_all_classes(problem, n_shared, scratch)
        for t in range(begin, end):
            i = order[t]
            fetch_rows(rows, order, t, end, weights.tile)
            fetch_duals(old, order, t, end)
            y = np.int64(rows.labels[i])
            n = mark_own_classes(i, y, own_dual, sets, scratch, mark_classes(old, i, scratch))
            old_sum = load_duals(old, i, scratch)
            show_classes(old, i, scratch, n)
            if sparse_rows is not None:
                score_by_sparse_rows(scratch.scores, sparse_rows, rows, i, WEIGHT)
            else:
                score_vectors(scratch.scores, rows, i, weights.current, scratch.vectors, n)
            row = begin_row(rows, i, y, old_sum, scratch.vectors, n, n_shared, problem, pairs, sets, scratch)
            loss, _ = solve(row, n, problem, pairs, scratch)
            row_terms = step_in_lists(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, False, row, loss, *row_terms)
            clear_lanes(scratch, n)
        return end

    def visit_matrix(
        rows, order, begin, end, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
    ):
        n = show_all_classes(problem, n_shared, scratch)
        list_all(n, scratch)
        for t in range(begin, end):
            i = order[t]
            fetch_rows(rows, order, t, end, weights.tile)
            fetch_matrix(duals, order, t, end)
            y = np.int64(rows.labels[i])
            if not duals.again and is_idle(rows, i, y, sets is not None and own_dual, tally):
                clear_matrix_row(duals.new, i)
                continue
            mark_own_classes(i, y, own_dual, sets, scratch, n)
            old_sum = load_matrix_row(duals, i, n, scratch)
            score_visit(scratch.scores, rows, i, weights, weights.tile, t - begin, problem)
            row = begin_row(rows, i, y, old_sum, scratch.vectors, n, n_shared, problem, pairs, sets, scratch)
            loss, _ = solve(row, n, problem, pairs, scratch)
            row_terms = step_in_matrix(
                rows, i, row, n, problem, weights, duals, scratch, tally, sparse_rows, pairs, sets
            )
            count_visit(tally, not duals.again, row, loss, *row_terms)
        clear_lanes(scratch, n)
        return end

    def loss_rows(rows, problem, weights, average_scale, scratch, tallies, sparse_rows, pairs, sets):
        n = show_all_classes(problem, n_shared, scratch)
        list_all(n, scratch)
        for i in range(len(rows.labels)):
            y = np.int64(rows.labels[i])
            for kind in range(len(tallies)):
                tally = tallies[kind]
                if is_idle(rows, i, y, sets is not None and own_dual, tally):
                    continue
                if kind == 0 or pairs is not None or sets is not None:  # pairs and sets modify the scores
                    matrix = weights.current
                    score_fixed(scratch.scores, rows, i, matrix, weights.tile, sparse_rows, WEIGHT, problem)
                if kind == 1:
                    matrix, array = weights.average_delta, AVERAGE_DELTA
                    score_fixed(scratch.delta, rows, i, matrix, weights.tile, sparse_rows, array, problem)
                    subtract_scores(scratch.scores, scratch.delta, average_scale)
                mark_own_classes(i, y, own_dual, sets, scratch, n)
                row = begin_row(rows, i, y, 0.0, scratch.vectors, n, n_shared, problem, pairs, sets, scratch)
                tally[LOSS_SUM] += row.C * measure(row, n, problem, pairs, scratch)
                tally[CORRECT] += row.is_correct
                unmark_own_classes(i, y, sets, scratch)
                if sets is None:  # `begin_row` sets it to -infinity
                    scratch.scores[y] = row.own_score
                if n_shared:
                    scratch.scores[problem.n_classes] = row.shared
        clear_lanes(scratch, n)

    def sum_duals(rows, duals, problem):
        zero, total = zeros(), 0.0
        for i in range(len(duals.counts)):
            sums, values, p = zero, zero, duals.at[i]
            end = p + duals.counts[i]
            while p < end:
                b = load_first_like(duals.values, p, end - p, zero)
                sums, values = sums + b, values + terms(b, rows.cost[i], problem)
                p += LANES
            if duals.counts[i] > 0:
                total += sum_lanes(values) + sum_term(sum_lanes(sums), rows.cost[i], problem)
        return total

    return Kernels(
        kernel(visit, name=f"{name}_visit"),
        kernel(revisit, name=f"{name}_revisit"),
        kernel(loss_rows, name=f"{name}_loss_rows"),
        norm2,
        sum_duals=kernel(sum_duals, name=f"{name}_sum_duals"),
        visit_matrix=kernel(visit_matrix, name=f"{name}_visit_matrix"),
    )
