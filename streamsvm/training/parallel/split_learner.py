"""Base of learners that split their work: it has the workers, and scores with all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.settings.fit import Settings
from streamsvm.training.learner import Learner, label_sets, new_buffer
from streamsvm.training.parallel.visitor import Visitor

SCORED_PARTS = 16  # parts of a block that are scored; sums are added up in their order, whatever the workers


class SplitLearner(Learner):
    """Learner that shares its work among workers. It cannot estimate a progressive accuracy.

    Parameters
    ----------
    settings, storage, n_classes, pairs
        As for `Learner`.
    workers : Threads
    new_visitor : callable
        Returns a new `Visitor` for a worker.
    """

    progressive = False

    def __init__(
        self,
        settings: Settings,
        storage: Any,
        n_classes: int,
        pairs: ClassPairs | None,
        workers: Threads,
        new_visitor: Callable[[], Visitor],
        ids_dtype: np.dtype,
        bytes_of_bits: int = 0,
    ) -> None:
        no_buffer = new_buffer(0, 0, np.dtype(settings.dtype), ids_dtype, bytes_of_bits)
        super().__init__(settings, storage, no_buffer, n_classes, pairs)
        self._workers = workers
        self._new_visitor, self._local = new_visitor, threading.local()

    @property
    def _visitor(self) -> Visitor:
        """Visitor of this thread."""
        if not hasattr(self._local, "visitor"):
            self._local.visitor = self._new_visitor()
        found: Visitor = self._local.visitor
        return found

    def score(self, rows: Rows, average_scale: float | None, tallies: np.ndarray) -> None:
        def work(part: int) -> np.ndarray:
            some, found = scored_part(rows, part), np.zeros_like(tallies)
            visitor = self._visitor
            self._kernels.loss_rows(
                some, self.problem, self.storage.weights, average_scale or 0.0, visitor.scratch, found,
                None, visitor.pairs, label_sets(some),
            )  # fmt: skip
            return found

        for found in self._workers.map(work, range(SCORED_PARTS)):
            tallies += found


def scored_part(rows: Rows, part: int) -> Rows:
    """Return one of the parts in which rows are scored, as views of their arrays."""
    begin, end = (rows.n_rows * p // SCORED_PARTS for p in (part, part + 1))
    has_sets = len(rows.label_indptr) > 0
    return rows._replace(
        indptr=rows.indptr[begin : end + 1],
        labels=rows.labels[begin:end],
        norm2=rows.norm2[begin:end],
        cost=rows.cost[begin:end],
        label_indptr=rows.label_indptr[begin : end + 1] if has_sets else rows.label_indptr,
        qid=rows.qid[begin:end],
    )
