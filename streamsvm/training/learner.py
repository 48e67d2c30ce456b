"""The learner, which has weights, duals and scratch: it learns a block of rows, and scores rows.

It opens no files, looks at no clock and reports nothing. The trainer (`streamsvm.training.trainer`) brings
blocks, keeps the duals, commits and reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows
from streamsvm.errors import Option, PlanError, Remedy
from streamsvm.kernels.centre import centre, centre_with_shared
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.dual_matrix import DualMatrix, find_duals, from_lists, new_matrix
from streamsvm.kernels.duals import Duals, OldDuals, RowDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.memory import own_lines
from streamsvm.kernels.random import permutation
from streamsvm.kernels.sum_rows import mark
from streamsvm.kernels.tally import CLOCK, CORRECT, DUAL_DELTA, N_TALLIES, VISITED
from streamsvm.kernels.update import mark_rows_dirty
from streamsvm.kernels.weights import AVERAGE_POWER, Weights, add_up
from streamsvm.losses import get_loss
from streamsvm.model.coefficients import Coefficients
from streamsvm.run.files import MemoryDuals, NewLog, OldLog
from streamsvm.run.weights import WeightStorage
from streamsvm.settings.fit import Settings
from streamsvm.training.inner_passes import Place
from streamsvm.training.products import Products
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Target, Visitor

# Largest difference of scores that count as equal in the first pass, if there is a common dual.
_TIE_TOLERANCE = 1e-3
# Weights are centred at the end of a block, and within it after at least this many non-zeros for each of its
# features and this many rows.
_CENTRE_NON_ZEROS = 50
_CENTRE_ROWS = 100
ReadDuals = OldDuals | DualMatrix  # of a block, as the last pass left them


class Learner:
    """Weights and the state of their training.

    Parameters
    ----------
    spec : Spec
        With the classes known so far; `learn` adds those that appear in a block.
    storage : WeightStorage
    dual_entries, block_rows : int
        New duals, and their rows, that are held on their way to where they are kept; 0 if nobody needs them.
    pairs : ClassPairs, optional
        Margins and costs of pairs of classes, if they are not all 1.
    common_dual : bool
        True if most wrong classes of a row have one dual in common (see `streamsvm.losses.common_dual`); the
        weights are then sparse rows.
    threads : Threads
        Which compute parts of matrix products, if rows are dense.
    dual_matrix : bool
        True if the data are one block that stays in memory, and each row has a place for a dual of every
        class (see `streamsvm.kernels.dual_matrix`); the buffer is not used then.

    Attributes
    ----------
    tally : ndarray of float64, shape (N_TALLIES,)
        Sums over the rows of the pass in progress.
    averaging : bool
        True while visits update the average too.
    """

    progressive = True  # each row is scored for all classes before it is learned from

    def __init__(
        self,
        spec: Spec,
        storage: WeightStorage,
        pairs: ClassPairs | None = None,
        *,
        threads: Threads = Threads(),  # noqa: B008
        dual_entries: int = 0,
        block_rows: int = 0,
        common_dual: bool = False,
        dual_matrix: bool = False,
    ) -> None:
        self.pairs = pairs
        self._dual_matrix = dual_matrix
        self._spare = new_matrix(0, 0, spec.dtype)  # for a new matrix of duals
        self.spec = spec
        self.loss = spec.loss
        self._tie_tolerance = _TIE_TOLERANCE if common_dual else 0.0
        self.storage = storage
        self._own_visitor = Visitor(
            spec, 0, dual_entries, block_rows, pairs, storage, common_dual=common_dual
        )
        self._kernels, self.dual_buffer = self._own_visitor.kernels, self._own_visitor.buffer
        self.dtype = spec.dtype
        self.tally = own_lines(N_TALLIES)
        self.averaging = False
        self._threads = threads
        self._products: Products | None = None
        self._fit_classes()

    @property
    def n_classes(self) -> int:
        """Number of classes known so far."""
        return self.spec.n_classes

    @property
    def visited(self) -> int:
        """Number of rows visited in the pass in progress."""
        return int(self.tally[VISITED])

    @property
    def makes_inner_passes(self) -> bool:
        return self._own_visitor.inner_passes is not None

    @property
    def average_scale(self) -> float:
        """Factor in the average ``current - average_scale * average_delta``."""
        return (self.storage.weights.time_unit / max(float(self.tally[CLOCK]), 1.0)) ** AVERAGE_POWER

    def begin_average(self) -> None:
        """Start the average of the iterates at the current weights."""
        self.tally[CLOCK] = self.tally[DUAL_DELTA] = 0.0
        self.storage.begin_average()
        self.averaging = True

    def end_pass(self) -> None:
        """Reset the sums over a pass; the average's clock goes on."""
        self.tally[:CLOCK] = 0.0
        self.storage.end_pass()

    def compile(self, rows: Rows, old: OldDuals) -> None:
        """Compile or load the kernels by learning `rows`, of which there are none."""
        tally = self.tally
        self.tally = own_lines(N_TALLIES)
        permutation(0, 0, 0, 0, 0)
        none = self._matrix(0)
        duals = DualMatrix(none, none) if self._dual_matrix else old
        block = TrainingBlock(0, 0, rows, np.zeros(0, np.int64))
        for _ in self.learn(block, duals, None, lambda visited: visited + 1):
            pass
        self.compile_visits(rows, duals)
        self.tally = tally

    def compile_visits(self, rows: Rows, old: ReadDuals) -> None:
        """Compile or load the kernels that visit and score `rows`, of which there are none."""
        nothing = np.zeros(0, np.int64)
        self._visit(rows, nothing, 0, 0, old)
        if self.makes_inner_passes and not self._dual_matrix:
            listed = Duals(RowDuals.of_buffer(self.dual_buffer).in_block(0), self.dual_buffer)
            self._own_visitor.call(self._kernels.revisit, rows, nothing, 0, 0, listed, self._target)
        self.score(rows, None, np.zeros((1, N_TALLIES)))

    def learn(
        self, block: TrainingBlock, old: ReadDuals, keep: NewLog | None, next_pause: Callable[[int], int]
    ) -> Iterator[int]:
        """Visit the rows of a block in its order, each with one exact block step.

        Parameters
        ----------
        block : TrainingBlock
        old : OldDuals or DualMatrix
            The rows' duals as the last pass left them: what `read_duals` returned.
        keep : DualWriter or MemoryDuals, optional
            Log to which new duals are appended as the buffer fills.
        next_pause : callable
            Maps a number of visited rows to the larger number at which to pause next.

        Yields
        ------
        int
            The position in the block at each pause.
        """
        rows, first_rows = block.rows, self._first_rows(block)
        place = Place(block.pass_number, block.number, block.read_work)
        if self._tie_tolerance:
            near = self._tie_tolerance if block.pass_number == 1 else 0.0
            self.problem: Problem = self.problem._replace(near=near)
        at, centre_rows, features = 0, max(rows.n_rows, 1), np.zeros(0, np.int64)
        if self.loss.extra_columns:
            features = features_of(rows, self.storage.n_features)
            of_row = max(int(rows.indptr[-1] - rows.indptr[0]) // max(rows.n_rows, 1), 1)
            centre_rows = max(_CENTRE_NON_ZEROS * len(features) // of_row, _CENTRE_ROWS)
        while True:
            pause = at + next_pause(self.visited) - self.visited
            end = min(rows.n_rows, pause, (at // centre_rows + 1) * centre_rows)
            if block.arrived is not None:
                end = min(end, block.arrived(at))
            correct = self.tally[CORRECT]
            is_first = bool(first_rows) and first_rows[0] == at
            if is_first:
                end = at + 1
                self.spec = self.spec.grown(self.storage.n_features, self.n_classes + 1)
                self._fit_classes()
                del first_rows[0]
            elif first_rows:
                end = min(end, first_rows[0])
            reached = self._visit(rows, block.order, at, end, old)
            if is_first:
                self.tally[CORRECT] = correct  # a class that nobody knew was not predicted
            is_full = reached < end and self._buffer_is_full()
            if is_full and self.dual_buffer.used[1] == 0:
                raise self._too_long(rows, int(block.order[reached]))
            if reached < end and not is_full:  # sparse rows have no room
                self.storage.make_room(rows, int(block.order[reached]))
            if isinstance(old, DualMatrix) and reached == rows.n_rows:
                self._revisit_matrix(block.order, rows, old, place)
                if keep is not None:
                    assert isinstance(keep, MemoryDuals)
                    keep.append_matrix(block.number, old.new)
            elif is_full or reached == rows.n_rows:
                self._own_visitor.revisit(rows, self._target, place)
                if keep is not None:
                    keep.append_duals(block.number, RowDuals.of_buffer(self.dual_buffer))
                self.dual_buffer.used[:] = 0
            at = reached
            if at % centre_rows == 0 or at == rows.n_rows:
                self.centre(features)
            if at >= pause:  # beyond it, if the visit went on to the end of a group
                yield at
            if at == rows.n_rows:
                break

    def centre(self, features: np.ndarray) -> None:
        """Shift the weights of some features to the mean 0 over the classes, if the loss wants it."""
        if not (self.loss.extra_columns or self.loss.centred):
            return
        weights = self.moved_weights()
        for matrix in (weights.current, weights.average_delta):
            if len(matrix) and self.loss.centred:
                centre(features, matrix, self.problem.ranges)
            elif len(matrix):
                centre_with_shared(features, matrix, self.n_classes)
        if len(weights.dirty):
            mark_rows_dirty(features, weights)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        """Add loss and correct predictions of rows to `tallies`, with the weights fixed.

        Parameters
        ----------
        tallies : ndarray of float64, shape (1 or 2, N_TALLIES)
            Sums for the last iterate and, in a second row, for the average of this scale.
        """
        parts: Iterable[tuple[Rows, Weights]] = [(rows, self.storage.weights)]
        if self._products is not None and rows.dense:
            parts = self._products.score(rows, self.storage.weights, average=len(tallies) > 1)
        for part, weights in parts:
            self._own_visitor.score(part, Target(self.problem, weights, tallies), average_scale)

    def score_elsewhere(
        self, n_blocks: int, average_scale: float | None
    ) -> Iterator[list[np.ndarray]] | None:
        """Yield parts of the tallies of `score` for each block of the training data; None without workers."""
        return None

    def coefficients(self, columns: np.ndarray, *, average: bool) -> Coefficients:
        """Return the coefficients of a model with these classes: of the last iterate, or of the average."""
        scale = self.average_scale if average else None
        shared = self.n_classes if self.loss.extra_columns else None
        found = self.storage.coefficients(scale, columns)._replace(shared_column=shared)
        return found.without_last(self.loss.extra_rows(self.n_classes))

    def read_duals(self, log: OldLog, block: int, rows: Rows) -> ReadDuals:
        """Read the duals of a block that the last pass left, for `learn`."""
        if not self._dual_matrix:
            return log.segment(block, rows.n_rows)
        old = log.matrix(block) if isinstance(log, MemoryDuals) else None
        if old is None:
            lists = log.segment(block, rows.n_rows)
            old = self._matrix(rows.n_rows if lists.counts.any() else 0)
            if len(old):
                from_lists(lists, old)
        n_new = rows.n_rows if self.spec.settings.keep_duals or self.makes_inner_passes else 0
        new = self._spare if len(self._spare) == n_new else self._matrix(n_new)
        self._spare = old  # which nobody has when the next pass begins: fresh pages take time
        return DualMatrix(old, new)

    def _matrix(self, n_rows: int) -> np.ndarray:
        """Return a matrix for the duals of `n_rows` rows."""
        return new_matrix(n_rows, self.n_classes + self.loss.extra_columns, self.dtype)

    def fetch_weights(self) -> None:
        """Bring weights that workers elsewhere have into the storage."""

    def start_duals(self, share: float) -> None:
        """Take rows without duals to have duals of this share of their costs, in all classes."""
        self.problem = self.problem._replace(start=share)

    def scale(self, factor: float) -> None:
        """Multiply the weights by a factor, before an average begins."""
        self.storage.scale(factor)

    def work_of_pass(self) -> dict[str, float]:
        """Return what workers elsewhere did in the pass, for its record, and reset the counts."""
        return {}

    def norm2(self, average_scale: float = 0.0) -> float:
        """Return ‖w‖² of the last iterate, or of the average of this scale."""
        storage, problem, sums = self.storage, self.problem, np.zeros(len(self.problem.ranges))
        self._kernels.norm2(storage.weights, average_scale, storage.sparse_rows, problem, sums)
        return add_up(sums.tolist())

    def moved_weights(self) -> Weights:
        """Return the weights that visits update: with their average while there is one, else alone."""
        weights = self.storage.weights
        if self.averaging:
            return weights
        return weights._replace(average_delta=weights.average_delta[:0], time_unit=np.inf)

    @property
    def _target(self) -> Target:
        return Target(self.problem, self.moved_weights(), self.tally)

    def _visit(self, rows: Rows, order: np.ndarray, begin: int, end: int, old: ReadDuals) -> int:
        target = self._target
        if isinstance(old, DualMatrix):
            return self._own_visitor.call(self._kernels.visit_matrix, rows, order, begin, end, old, target)

        def visit(begin: int, end: int, weights: Weights) -> int:
            to, duals = target._replace(weights=weights), Duals(old, self.dual_buffer)
            return self._own_visitor.call(self._kernels.visit, rows, order, begin, end, duals, to)

        if self._products is None or not rows.dense:
            return visit(begin, end, target.weights)
        return self._products.visit(visit, rows, order, begin, end, target.weights, self.tally)

    def _revisit_matrix(self, order: np.ndarray, rows: Rows, duals: DualMatrix, place: Place) -> None:
        """Make inner passes over the rows of a block that have duals."""
        if self._own_visitor.inner_passes is None:
            return
        found = np.empty(rows.n_rows, np.bool_)
        find_duals(duals.new, found)
        # Rows that enter the objective: others took no time, and say nothing of what a visit costs.
        entered = (rows.cost != 0) & (rows.norm2 != 0) & ((rows.labels >= 0) | self.loss.own_dual)
        visited = order[entered[order]]
        again = duals._replace(old=duals.new, scale=1.0, again=True)
        counts = found[visited] * duals.new.shape[1]
        passes = self._own_visitor.inner_passes
        for each in passes.orders(rows, self.storage.weights.current, visited, counts, place):
            self._visit(rows, each, 0, len(each), again)

    def _buffer_is_full(self) -> bool:
        buffer = self.dual_buffer
        if self.loss.sequences:
            return True  # there is nothing else that a visit stops for
        return len(buffer.ids) > 0 and buffer.used[0] + self.n_classes > len(buffer.ids)

    def _too_long(self, rows: Rows, first: int) -> PlanError:
        length = int(np.count_nonzero(rows.qid == rows.qid[first]))
        return PlanError(
            f"the memory budget cannot hold the new duals of a group of {length:,} rows, up to "
            f"{length * self.loss.max_duals(self.n_classes, self.spec.settings.solver):,}",
            remedy=Remedy("give more with {}, or cut the sequence", Option("memory")),
        )

    def _first_rows(self, block: TrainingBlock) -> list[int]:
        """Return the row of the block in which each of its new classes appears first."""
        if not block.new_classes:
            return []
        codes, first = np.unique(block.rows.labels, return_index=True)
        return first[np.searchsorted(codes, self.n_classes) :].tolist()

    def _fit_classes(self) -> None:
        """Make room for the weights and scores of the classes known so far, and score for these alone."""
        self.storage.grow(self.storage.n_features, self.n_classes + self.loss.extra_columns)
        self.problem = problem_of(self.spec.settings, self.n_classes)
        if len(self._own_visitor.scratch.scores) != self.spec.columns:
            self._own_visitor.make_room(self.spec.columns)
            if self.spec.by_products:
                self._products = Products(self.spec.columns, self.dtype, self._threads)


def features_of(rows: Rows, n_features: int) -> np.ndarray:
    """Return the distinct features of the rows, ascending."""
    if rows.indices is None:
        return np.arange(n_features if rows.n_rows else 0)
    seen = np.zeros(n_features, np.bool_)
    mark(rows.indices, seen)
    return np.flatnonzero(seen)


def problem_of(settings: Settings, n_classes: int) -> Problem:
    """Return the parameters that the kernels of the settings' loss take."""
    return Problem(
        n_classes,
        settings.margin,
        smooth=settings.smooth or 0.0,
        top=settings.top or 1,
        temperature=settings.temperature or 1.0,
        solver=get_loss(settings.loss).solvers.index(settings.solver),
    )
