"""Visits of rows in one thread, with private scratch arrays and a private buffer for new duals."""

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
    """Problem to solve, and arrays that visits change."""

    problem: Problem
    weights: Weights
    tally: np.ndarray  # (N_TALLIES,); or (1 or 2, N_TALLIES) for scores
    sparse_rows: SparseRows | None = None


class VisitPlan(NamedTuple):
    """Settings and capacities shared by all visits of a training run.

    If `common_dual` is True, most wrong classes of a row share a dual (see `streamsvm.losses.common_dual`),
    and the weights are sparse rows. If `dual_matrix` is True, the data is a single block in memory, its duals
    are a matrix of rows and classes (see `streamsvm.kernels.duals`), and the buffer is unused.
    """

    spec: Spec
    pairs: ClassPairs | None = None  # margins of class pairs and class weights; None if all are 1
    dual_entries: int = 0  # capacity of the buffer for new duals; 0 if duals are discarded
    n_rows: int = 0  # capacity of the buffer for rows of new duals; 0 if duals are discarded
    sparse: bool = False
    common_dual: bool = False
    dual_matrix: bool = False


class Visitor:
    """Visitor of rows in one thread, with private arrays for `columns` weight columns."""

    def __init__(self, plan: VisitPlan, columns: int) -> None:
        settings, loss = plan.spec.settings, plan.spec.loss
        self.kernels = loss.common_kernels if plan.common_dual else loss.kernels_of(settings.solver)
        duals = plan.spec.dual_format(common_dual=plan.common_dual)
        self.buffer = duals.new_buffer(plan.dual_entries, plan.n_rows)
        self._dtype, self._pairs = plan.spec.dtype, plan.pairs
        self.make_room(columns)
        n_passes = settings.inner_passes
        if n_passes == AUTO and (plan.sparse or plan.spec.by_products):
            n_passes = 0  # no gain: visits read the same lists, or a product scores all classes at once
        self.inner_passes = None
        if n_passes != 0 and loss.has_inner_passes and not plan.common_dual:
            self.inner_passes = InnerPasses(n_passes, settings.seed)

    def make_room(self, columns: int) -> None:
        """Allocate scratch arrays for weights with `columns` columns."""
        self.scratch = Scratch.create(columns, self._dtype)

    def call(
        self, kernel: Callable[..., int] | None, rows: Rows, order: np.ndarray, begin: int, end: int,
        duals: Duals | DualMatrix, target: Target,
    ) -> int:  # fmt: skip
        """Visit the rows of ``order[begin:end]`` with a kernel; return the position reached."""
        assert kernel is not None
        return kernel(
            rows, order, begin, end, target.problem, target.weights, duals, self.scratch, target.tally,
            target.sparse_rows, self._pairs, label_sets(rows),
        )  # fmt: skip

    def compile_revisit(self, rows: Rows, target: Target) -> None:
        """Compile or load the kernel for inner passes by visiting the empty `rows`."""
        if self.inner_passes is not None:
            duals = Duals(RowDuals.of_buffer(self.buffer).in_block(0), self.buffer)
            self.call(self.kernels.revisit, rows, np.zeros(0, np.int64), 0, 0, duals, target)

    def visit(
        self, rows: Rows, order: np.ndarray, old: OldDuals, target: Target, place: Place
    ) -> list[RowDuals]:
        """Visit the rows in ``order`` and make inner passes over them; return new duals if they are kept."""
        buffer, at, new_duals = self.buffer, 0, []
        buffer.used[:] = 0
        while True:
            duals = Duals(old, buffer)
            at = self.call(self.kernels.visit, rows, order, at, len(order), duals, target)
            self.revisit(rows, target, place)
            if len(buffer.ids):
                new_duals.append(RowDuals.of_buffer(buffer).copy())
            buffer.used[:] = 0
            if at == len(order):
                return new_duals

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
        """Add the losses and correct predictions of rows to ``target.tally`` (see `Visits.score`)."""
        self.kernels.loss_rows(
            rows, target.problem, target.weights, average_scale or 0.0, self.scratch, target.tally,
            target.sparse_rows, self._pairs, label_sets(rows),
        )  # fmt: skip


def label_sets(rows: Rows) -> LabelSets | None:
    """Return the label sets of the rows; None if each row has one label."""
    return LabelSets(rows.label_codes, rows.label_indptr) if len(rows.label_indptr) else None
