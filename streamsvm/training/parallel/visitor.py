"""Visits of some rows of a block by one worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import Duals, OldDuals, RowDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights
from streamsvm.training.inner_passes import InnerPasses
from streamsvm.training.learner import label_sets
from streamsvm.training.spec import Spec


class Visitor:
    """Private arrays of one worker, scratch and a buffer of new duals, and the visits made with them.

    Parameters
    ----------
    spec : Spec
    columns : int
        Columns of the weights that are visited.
    dual_entries, n_rows : int
        New duals, and rows that have any, that are held before they are copied.
    pairs : ClassPairs, optional
        Margins and costs of pairs of classes.
    """

    def __init__(
        self,
        spec: Spec,
        columns: int,
        dual_entries: int,
        n_rows: int,
        pairs: ClassPairs | None = None,
    ) -> None:
        settings, self._kernels = spec.settings, spec.loss.kernels_of(spec.settings.solver)
        self._scratch = Scratch.create(columns, spec.dtype)
        self._buffer = spec.dual_format().new_buffer(dual_entries, n_rows)
        self._pairs = pairs
        self._inner_passes = None
        if settings.inner_passes != 0 and self._kernels.revisit is not None:
            self._inner_passes = InnerPasses(settings.inner_passes, settings.seed)

    def visit(
        self,
        rows: Rows,
        order: np.ndarray,
        old: OldDuals,
        problem: Problem,
        weights: Weights,
        tally: np.ndarray,
        place: tuple[int, int],
        *,
        read_work: int,
    ) -> list[RowDuals]:
        """Visit the rows of ``order``, make inner passes, and return the new duals; none if not kept."""
        buffer, at, found = self._buffer, 0, []

        def visit(kernel: Any, order: np.ndarray, begin: int, duals: Duals) -> int:
            return kernel(
                rows, order, begin, len(order), problem, weights, duals, self._scratch, tally, None,
                self._pairs, label_sets(rows),
            )  # fmt: skip

        buffer.used[:] = 0
        while at < len(order):
            at = visit(self._kernels.visit, order, at, Duals(old, buffer))
            if self._inner_passes is not None:
                width = int(
                    (problem.ranges[:, 2] - problem.ranges[:, 0]).clip(max=len(self._scratch.scores)).sum()
                )
                self._inner_passes.over_lists(
                    lambda order, duals: visit(self._kernels.revisit, order, 0, duals), rows,
                    weights.current[:, :width], buffer, place, read_work=read_work,
                )  # fmt: skip
            if len(buffer.ids):
                found.append(RowDuals.of_buffer(buffer).copy())
            buffer.used[:] = 0
        return found

    def score(
        self, rows: Rows, problem: Problem, weights: Weights, average_scale: float | None
    ) -> np.ndarray:
        """Return the tallies of `Learner.score`."""
        tallies = np.zeros((1 if average_scale is None else 2, N_TALLIES))
        self._kernels.loss_rows(
            rows, problem, weights, average_scale or 0.0, self._scratch, tallies, None, self._pairs,
            label_sets(rows),
        )  # fmt: skip
        return tallies
