"""Base class of visits that are divided among threads, with parallel scoring."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.duals import OldDuals
from streamsvm.kernels.tally import CLOCK
from streamsvm.kernels.weights import Weights
from streamsvm.run.weights import map_array
from streamsvm.training.inner_passes import Place
from streamsvm.training.learner import Learner, Visits
from streamsvm.training.parallel.class_groups import in_columns
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Visitor, VisitPlan

SCORED_PARTS = 16  # parts of a block that are scored in parallel; their sums are added in a fixed order


class Turn(NamedTuple):
    """One round of visits in a block, to some pairs of class groups or to half of the rows of each part."""

    pass_number: int
    block: int
    number: int
    read_work: int
    permute: Callable[[int, int, int, int, int], np.ndarray]
    averaging: bool
    clock: float  # clock of the average at the start of the round; a cluster's tasks may replace it

    @classmethod
    def of(cls, learner: Learner, block: TrainingBlock, number: int) -> Turn:
        block_fields = block.pass_number, block.number, number, block.read_work, block.permute
        return cls(*block_fields, learner.averaging, learner.tally[CLOCK])


class SplitVisits(Visits):
    """Base class of visits that are divided among threads; they cannot measure progressive accuracy.

    `plan` describes the duals and rows of a block. Each worker allocates buffers for one split.
    """

    progressive = False

    def __init__(self, plan: VisitPlan, workers: Threads) -> None:
        spec, n_rows, entries = plan.spec, plan.n_rows, -(-plan.dual_entries // plan.spec.settings.splits)
        if spec.groups is not None:  # rounds pass duals on, even if they are not kept after the block
            entries = max(entries, spec.columns)
        else:
            n_rows = -(-n_rows // spec.settings.splits)
            entries = max(entries, spec.n_classes) if entries else 0
        self.kernels = spec.loss.kernels_of(spec.settings.solver)
        self.plan = plan._replace(dual_entries=entries, n_rows=n_rows)
        self._workers, self._local = workers, threading.local()

    @property
    def _visitor(self) -> Visitor:
        if not hasattr(self._local, "visitor"):
            self._local.visitor = Visitor(self.plan, self.plan.spec.columns)
        visitor: Visitor = self._local.visitor
        return visitor

    def compile(self, rows: Rows, old: OldDuals) -> None:
        place = Place(0, 0, 0)
        self._visitor.visit(rows, np.zeros(0, np.int64), old, self.learner.target, place)
        self._visitor.compile_revisit(rows, self.learner.target)

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        target, groups = self.learner.target, self.learner.spec.groups
        if groups is not None:
            rows = in_columns(rows, groups)

        def work(part: int) -> np.ndarray:
            part_rows = scored_part(rows, part)
            part_tallies = np.zeros_like(tallies)
            self._visitor.score(part_rows, target._replace(tally=part_tallies), average_scale)
            return part_tallies

        for part_tallies in self._workers.map(work, range(SCORED_PARTS)):
            tallies += part_tallies


def new_weights(spec: Spec, n_features: int, columns: int, *, averaging: bool) -> Weights:
    """Allocate zero weights for visits, with their average if `averaging` is True."""
    shape = n_features, columns
    average = map_array(None, shape if averaging else (0, columns), spec.dtype)
    time_unit = spec.time_unit if averaging else np.inf
    return Weights(map_array(None, shape, spec.dtype), average, time_unit)


def scored_part(rows: Rows, part: int) -> Rows:
    """Return one of the `SCORED_PARTS` parts of the rows."""
    begin, end = (rows.n_rows * p // SCORED_PARTS for p in (part, part + 1))
    return row_span(rows, begin, end)
