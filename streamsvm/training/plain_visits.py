"""Visits of the rows of a block one after another, without splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows
from streamsvm.errors import Option, PlanError, Remedy
from streamsvm.kernels.duals import DualMatrix, Duals, OldDuals, RowDuals, find_duals, from_lists, new_matrix
from streamsvm.kernels.tally import CORRECT
from streamsvm.kernels.weights import Weights
from streamsvm.run.duals import PassDuals
from streamsvm.training.inner_passes import Place
from streamsvm.training.learner import Learner, ReadDuals, Visits, features_of
from streamsvm.training.products import Products
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Visitor, VisitPlan

# In the first pass with a common dual, scores that differ by at most this count as equal.
_TIE_TOLERANCE = 1e-3
# Within a block, weights are centred after at least this many non-zeros per feature and this many rows.
_CENTRE_NON_ZEROS = 50
_CENTRE_ROWS = 100


class PlainVisits(Visits):
    """Visits without splits. `threads` compute parts of matrix products if rows are dense."""

    def __init__(self, plan: VisitPlan, threads: Threads = Threads()) -> None:  # noqa: B008
        self._visitor = Visitor(plan, 0)
        self.kernels, self._buffer = self._visitor.kernels, self._visitor.buffer
        self._tie_tolerance = _TIE_TOLERANCE if plan.common_dual else 0.0
        self._dual_matrix = plan.dual_matrix
        self._spare = new_matrix(0, 0, plan.spec.dtype)  # reused for new duals
        self._threads = threads
        self._products: Products | None = None

    def set_columns(self, spec: Spec) -> None:
        if len(self._visitor.scratch.scores) != spec.columns:
            self._visitor.make_room(spec.columns)
            if spec.by_products:
                self._products = Products(spec.columns, spec.dtype, self._threads)

    def compile(self, rows: Rows, old: OldDuals) -> None:
        none = self._matrix(0)
        duals = DualMatrix(none, none) if self._dual_matrix else old
        self._visit(rows, np.zeros(0, np.int64), 0, 0, duals)
        if not self._dual_matrix:
            self._visitor.compile_revisit(rows, self.learner.target)

    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: PassDuals | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        learner = self.learner
        rows, first_rows = block.rows, _first_rows(block, learner.n_classes)
        place = Place(block.pass_number, block.number, block.read_work)
        if self._tie_tolerance:
            tolerance = self._tie_tolerance if block.pass_number == 1 else 0.0
            learner.problem = learner.problem._replace(near=tolerance)
        at, centre_rows, features = 0, max(rows.n_rows, 1), np.zeros(0, np.int64)
        if learner.loss.extra_columns:
            features = features_of(rows, learner.storage.n_features)
            row_nnz = max(int(rows.indptr[-1] - rows.indptr[0]) // max(rows.n_rows, 1), 1)
            centre_rows = max(_CENTRE_NON_ZEROS * len(features) // row_nnz, _CENTRE_ROWS)
        while True:
            pause = at + next_pause(learner.visited) - learner.visited
            end = min(rows.n_rows, pause, (at // centre_rows + 1) * centre_rows)
            correct = learner.tally[CORRECT]
            is_first = bool(first_rows) and first_rows[0] == at
            if is_first:
                end = at + 1
                learner.set_classes(learner.n_classes + 1)
                del first_rows[0]
            elif first_rows:
                end = min(end, first_rows[0])
            reached = self._visit(rows, block.order, at, end, old)
            if is_first:
                learner.tally[CORRECT] = correct  # a new class cannot have been predicted
            is_full = reached < end and self._buffer_is_full()
            if is_full and self._buffer.used[1] == 0:
                raise _too_long(learner, rows, int(block.order[reached]))
            if reached < end and not is_full:  # the sparse weights are full
                learner.storage.make_room(rows, int(block.order[reached]))
            if isinstance(old, DualMatrix) and reached == rows.n_rows:
                self._revisit_matrix(block.order, rows, old, place)
                if keep is not None:
                    keep.append_matrix(block.first, old.new)
            elif is_full or reached == rows.n_rows:
                self._visitor.revisit(rows, learner.target, place)
                if keep is not None:
                    keep.append_duals(block.first, RowDuals.of_buffer(self._buffer))
                self._buffer.used[:] = 0
            at = reached
            if at % centre_rows == 0 or at == rows.n_rows:
                learner.centre(features)
            if at >= pause:  # beyond the pause if the visit continued to the end of a group
                yield at
            if at == rows.n_rows:
                break

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        target = self.learner.target._replace(tally=tallies)
        parts: Iterable[tuple[Rows, Weights]] = [(rows, target.weights)]
        if self._products is not None and rows.dense:
            parts = self._products.score(rows, target.weights, average=len(tallies) > 1)
        for part, weights in parts:
            self._visitor.score(part, target._replace(weights=weights), average_scale)

    def read_duals(self, duals: PassDuals, first: int, rows: Rows) -> ReadDuals:
        if not self._dual_matrix:
            return duals.segment(first, rows.n_rows)
        old = duals.matrix(first, rows.n_rows)
        if old is None:
            lists = duals.segment(first, rows.n_rows)
            old = self._matrix(rows.n_rows if lists.counts.any() else 0)
            if len(old):
                from_lists(lists, old)
        is_needed = self.learner.spec.settings.keep_duals or self._visitor.inner_passes is not None
        n_new = rows.n_rows if is_needed else 0
        new = self._spare if len(self._spare) == n_new else self._matrix(n_new)
        self._spare = old  # unused in the next pass; reusing it saves the time to map fresh pages
        return DualMatrix(old, new)

    def _matrix(self, n_rows: int) -> np.ndarray:
        spec = self.learner.spec
        return new_matrix(n_rows, spec.n_classes + spec.loss.extra_columns, spec.dtype)

    def _visit(self, rows: Rows, order: np.ndarray, begin: int, end: int, old: ReadDuals) -> int:
        target = self.learner.target
        if isinstance(old, DualMatrix):
            return self._visitor.call(self.kernels.visit_matrix, rows, order, begin, end, old, target)

        def visit(begin: int, end: int, weights: Weights) -> int:
            visit_target, duals = target._replace(weights=weights), Duals(old, self._buffer)
            return self._visitor.call(self.kernels.visit, rows, order, begin, end, duals, visit_target)

        if self._products is None or not rows.dense:
            return visit(begin, end, target.weights)
        return self._products.visit(visit, rows, order, begin, end, target.weights, self.learner.tally)

    def _revisit_matrix(self, order: np.ndarray, rows: Rows, duals: DualMatrix, place: Place) -> None:
        if (passes := self._visitor.inner_passes) is None:
            return
        has_duals = np.empty(rows.n_rows, np.bool_)
        find_duals(duals.new, has_duals)
        # The other rows do not enter the objective, and visits skip them.
        counted = (rows.cost != 0) & (rows.norm2 != 0) & ((rows.labels >= 0) | self.learner.loss.own_dual)
        visited = order[counted[order]]
        matrices = duals._replace(old=duals.new, scale=1.0, again=True)
        counts = has_duals[visited] * duals.new.shape[1]
        for inner_order in passes.orders(rows, self.learner.storage.weights.current, visited, counts, place):
            self._visit(rows, inner_order, 0, len(inner_order), matrices)

    def _buffer_is_full(self) -> bool:
        if self.learner.loss.sequences:
            return True  # visits of sequences stop early only if the buffer is full
        return len(self._buffer.ids) > 0 and self._buffer.used[0] + self.learner.n_classes > len(
            self._buffer.ids
        )


def _too_long(learner: Learner, rows: Rows, first: int) -> PlanError:
    length = int(np.count_nonzero(rows.qid == rows.qid[first]))
    return PlanError(
        f"a group of {length:,} rows may have up to {length * learner.spec.max_duals:,} new duals, which do "
        "not fit into the memory budget",
        remedy=Remedy("raise {}, or split the sequence", Option("memory")),
    )


def _first_rows(block: TrainingBlock, n_classes: int) -> list[int]:
    if not block.new_classes:
        return []
    codes, first = np.unique(block.rows.labels, return_index=True)
    return first[np.searchsorted(codes, n_classes) :].tolist()
