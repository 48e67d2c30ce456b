"""Base of visits in splits: it has the workers, and scores with all of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.weights import Weights
from streamsvm.run.weights import map_array
from streamsvm.training.inner_passes import Place
from streamsvm.training.learner import Learner, Visits
from streamsvm.training.parallel.class_groups import in_columns
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Visitor

SCORED_PARTS = 16  # parts of a block that are scored; sums are added up in their order, whatever the workers


class Turn(NamedTuple):
    """One round of visits to a block: of the pairs of groups, or of one half of each part of its rows."""

    pass_number: int
    block: int  # its number
    number: int  # of the round in the block
    read_work: int
    permute: Callable[[int, int, int, int, int], np.ndarray]  # orders rows
    averaging: bool
    clock: float  # of the average when the round begins, unless results of earlier tasks have a later one

    @classmethod
    def of(cls, learner: Learner, block: TrainingBlock, number: int) -> Turn:
        of_block = block.pass_number, block.number, number, block.read_work, block.permute
        return cls(*of_block, learner.averaging, learner.tally[CLOCK])


class SplitVisits(Visits):
    """Visits that are shared among threads. They cannot estimate a progressive accuracy.

    Parameters
    ----------
    spec : Spec
    pairs : ClassPairs or None
        Margins and costs of pairs of classes, if they are not all 1.
    workers : Threads
    entries, block_rows : int
        New duals that each worker has room for (see `room_for_duals`), and rows of the largest block.
    """

    progressive = False

    def __init__(
        self, spec: Spec, pairs: ClassPairs | None, workers: Threads, entries: int, block_rows: int
    ) -> None:
        self.kernels = spec.loss.kernels_of(spec.settings.solver)
        rows = block_rows if spec.groups is not None else -(-block_rows // spec.settings.splits)
        self._new_visitor = functools.partial(Visitor, spec, spec.columns, entries, rows, pairs)
        self._workers, self._local = workers, threading.local()

    @property
    def _visitor(self) -> Visitor:
        """Visitor of this thread."""
        if not hasattr(self._local, "visitor"):
            self._local.visitor = self._new_visitor()
        found: Visitor = self._local.visitor
        return found

    def compile(self, rows: Rows, old: OldDuals) -> None:
        place = Place(0, 0, 0)
        self._visitor.visit(rows, np.zeros(0, np.int64), old, self.learner.target, place)
        self._visitor.compile_revisit(rows, self.learner.target)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        target, groups = self.learner.target, self.learner.spec.groups
        if groups is not None:
            rows = in_columns(rows, groups)

        def work(part: int) -> np.ndarray:
            some = scored_part(rows, part)
            found = np.zeros_like(tallies)
            self._visitor.score(some, target._replace(tally=found), average_scale)
            return found

        for found in self._workers.map(work, range(SCORED_PARTS)):
            tallies += found


def room_for_duals(spec: Spec, dual_entries: int) -> int:
    """Return the new duals that a worker has room for: if there are any, those of one row at least."""
    if spec.groups is not None:  # duals pass from round to round, whoever keeps them after the block
        return max(dual_entries, spec.columns)
    return max(dual_entries, spec.n_classes) if dual_entries else 0


def new_weights(spec: Spec, n_features: int, columns: int, *, averaging: bool) -> Weights:
    """Make weights of zeros for visits, and their average if one is being formed."""
    shape = n_features, columns
    average = map_array(None, shape if averaging else (0, columns), spec.dtype)
    time_unit = spec.time_unit if averaging else np.inf
    return Weights(map_array(None, shape, spec.dtype), average, time_unit)


def scored_part(rows: Rows, part: int) -> Rows:
    """Return one of the parts in which rows are scored."""
    begin, end = (rows.n_rows * p // SCORED_PARTS for p in (part, part + 1))
    return row_span(rows, begin, end)
