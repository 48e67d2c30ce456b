"""Base of learners that split their work: it has the workers, and scores with all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.run.weights import WeightStorage
from streamsvm.training.learner import Learner
from streamsvm.training.sources import TrainingBlock
from streamsvm.training.spec import Spec
from streamsvm.training.visitor import Target, Visitor

SCORED_PARTS = 16  # parts of a block that are scored; sums are added up in their order, whatever the workers


class Turn(NamedTuple):
    """One round of visits to a block: of the pairs of groups, or of one half of each part of its rows."""

    pass_number: int
    block: int  # its number
    number: int  # of the round in the block
    read_work: int
    permute: Callable[[int, int, int, int, int], np.ndarray]  # orders rows

    @classmethod
    def of(cls, block: TrainingBlock, number: int) -> Turn:
        return cls(block.pass_number, block.number, number, block.read_work, block.permute)


class SplitLearner(Learner):
    """Learner that shares its work among workers. It cannot estimate a progressive accuracy.

    Parameters
    ----------
    spec, storage, pairs
        As for `Learner`.
    workers : Threads
    dual_entries : int
        New duals that each worker may hold before they are copied.
    block_rows : int
        Rows of the largest block.

    Attributes
    ----------
    entries : int
        New duals that each worker has room for; if there are any, those of one row at least.
    """

    progressive = False

    def __init__(
        self,
        spec: Spec,
        storage: WeightStorage,
        pairs: ClassPairs | None,
        workers: Threads,
        dual_entries: int,
        block_rows: int,
    ) -> None:
        super().__init__(spec, storage, pairs)
        if spec.groups is not None:  # duals pass from round to round, whoever keeps them after the block
            self.entries, self._visited_rows = max(dual_entries, spec.columns), block_rows
        else:
            self.entries = max(dual_entries, spec.n_classes) if dual_entries else 0
            self._visited_rows = -(-block_rows // spec.settings.splits)
        self._workers, self._local = workers, threading.local()

    @property
    def _visitor(self) -> Visitor:
        """Visitor of this thread."""
        if not hasattr(self._local, "visitor"):
            self._local.visitor = Visitor(
                self.spec, self.spec.columns, self.entries, self._visited_rows, self.pairs
            )
        found: Visitor = self._local.visitor
        return found

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        def work(part: int) -> np.ndarray:
            some = scored_part(rows, part)
            found = np.zeros_like(tallies)
            self._visitor.score(some, Target(self.problem, self.storage.weights, found), average_scale)
            return found

        for found in self._workers.map(work, range(SCORED_PARTS)):
            tallies += found


def scored_part(rows: Rows, part: int) -> Rows:
    """Return one of the parts in which rows are scored."""
    begin, end = (rows.n_rows * p // SCORED_PARTS for p in (part, part + 1))
    return row_span(rows, begin, end)
