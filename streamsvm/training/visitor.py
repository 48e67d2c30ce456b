"""Visits of rows by one thread, with its own scratch arrays and its buffer of new duals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import DualMatrix, Duals, OldDuals, RowDuals, drop_zeros
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.row_steps import LabelSets
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.sparse_rows import SparseRows
from streamsvm.kernels.weights import Weights
from streamsvm.settings.fit import AUTO
from streamsvm.training.inner_passes import InnerPasses, Place
from streamsvm.training.spec import Spec


class Target(NamedTuple):
    """What visits solve, and what they change."""

    problem: Problem
    weights: Weights
    tally: np.ndarray  # (N_TALLIES,); or (1 or 2, N_TALLIES) for scores
    sparse_rows: SparseRows | None = None  # of the weights, if they are not in a matrix


class VisitPlan(NamedTuple):
    """What all visits of a training need to know.

    Attributes
    ----------
    spec : Spec
    pairs : ClassPairs, optional
        Margins and costs of pairs of classes, if they are not all 1.
    dual_entries, n_rows : int
        Capacity of the buffer for new duals and their rows; 0 if duals are discarded.
    sparse : bool
        True if the weights are sparse rows.
    common_dual : bool
        True if most wrong classes of a row have one dual in common (see `streamsvm.losses.common_dual`); the
        weights are then sparse rows.
    dual_matrix : bool
        True if the data are one block that stays in memory, and each row has a place for a dual of every
        class (see `streamsvm.kernels.duals`); the buffer is not used then.
    """

    spec: Spec
    pairs: ClassPairs | None = None
    dual_entries: int = 0
    n_rows: int = 0
    sparse: bool = False
    common_dual: bool = False
    dual_matrix: bool = False


class Visitor:
    """Private arrays of one thread, and the visits and scores made with them.

    Parameters
    ----------
    plan : VisitPlan
    columns : int
        Columns of the weights that are visited.
    """

    def __init__(self, plan: VisitPlan, columns: int) -> None:
        settings, loss = plan.spec.settings, plan.spec.loss
        self.kernels = loss.common_kernels if plan.common_dual else loss.kernels_of(settings.solver)
        duals = plan.spec.dual_format(common_dual=plan.common_dual)
        self.buffer = duals.new_buffer(plan.dual_entries, plan.n_rows)
        self._dtype, self._pairs = plan.spec.dtype, plan.pairs
        self.make_room(columns)
        wanted = settings.inner_passes
        if wanted == AUTO and (plan.sparse or plan.spec.by_products):
            wanted = 0  # a visit of few classes goes through the same lists, or a product scores all at once
        self.inner_passes = None
        if wanted != 0 and loss.has_inner_passes and not plan.common_dual:
            self.inner_passes = InnerPasses(wanted, settings.seed)

    def make_room(self, columns: int) -> None:
        """Make scratch arrays for weights with so many columns."""
        self.scratch = Scratch.create(columns, self._dtype)

    def call(
        self, kernel: Callable[..., int] | None, rows: Rows, order: np.ndarray, begin: int, end: int,
        duals: Duals | DualMatrix, target: Target,
    ) -> int:  # fmt: skip
        """Visit the rows of ``order[begin:end]`` by one of the kernels; return the position reached."""
        assert kernel is not None
        return kernel(
            rows, order, begin, end, target.problem, target.weights, duals, self.scratch, target.tally,
            target.sparse_rows, self._pairs, label_sets(rows),
        )  # fmt: skip

    def compile_revisit(self, rows: Rows, target: Target) -> None:
        """Compile or load the kernel that revisits `rows`, of which there are none."""
        if self.inner_passes is not None:
            duals = Duals(RowDuals.of_buffer(self.buffer).in_block(0), self.buffer)
            self.call(self.kernels.revisit, rows, np.zeros(0, np.int64), 0, 0, duals, target)

    def visit(
        self, rows: Rows, order: np.ndarray, old: OldDuals, target: Target, place: Place
    ) -> list[RowDuals]:
        """Visit the rows of ``order``, make inner passes, and return the new duals; none if not kept."""
        buffer, at, found = self.buffer, 0, []
        buffer.used[:] = 0
        while True:
            duals = Duals(old, buffer)
            at = self.call(self.kernels.visit, rows, order, at, len(order), duals, target)
            self.revisit(rows, target, place)
            if len(buffer.ids):
                found.append(RowDuals.of_buffer(buffer).copy())
            buffer.used[:] = 0
            if at == len(order):
                return found

    def revisit(self, rows: Rows, target: Target, place: Place) -> None:
        """Make inner passes over the rows whose new duals are in the buffer."""
        if self.inner_passes is None:
            return
        buffer, new, ranges = self.buffer, RowDuals.of_buffer(self.buffer), target.problem.ranges
        columns = (ranges[:, 2] - ranges[:, 0]).clip(max=len(self.scratch.scores)).sum()
        weights = target.weights.current[:, : int(columns)]
        duals = Duals(new.in_block(rows.n_rows), buffer)
        for order in self.inner_passes.orders(rows, weights, new.rows, new.counts, place):
            self.call(self.kernels.revisit, rows, order, 0, len(order), duals, target)
        drop_zeros(buffer)

    def score(self, rows: Rows, target: Target, average_scale: float | None) -> None:
        """Add loss and correct predictions of rows to the tallies, as `Visits.score` does."""
        self.kernels.loss_rows(
            rows, target.problem, target.weights, average_scale or 0.0, self.scratch, target.tally,
            target.sparse_rows, self._pairs, label_sets(rows),
        )  # fmt: skip


def label_sets(rows: Rows) -> LabelSets | None:
    """Return the sets of labels of the rows; None if each row has one label."""
    return LabelSets(rows.label_codes, rows.label_indptr) if len(rows.label_indptr) else None
