"""Visits of some rows of a block by one worker."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.kernels.duals import DualBuffer, Duals, OldDuals, RowDuals
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.label_sets import LabelSets
from streamsvm.kernels.scratch import Scratch
from streamsvm.kernels.weights import Weights
from streamsvm.losses.base import Loss
from streamsvm.settings.fit import Settings
from streamsvm.training.inner_passes import InnerPasses


class Visitor:
    """Private arrays of one worker, scratch and a buffer of new duals, and the visits made with them.

    Parameters
    ----------
    loss : Loss
    settings : Settings
    columns : int
        Columns of the weights.
    buffer : DualBuffer
    pairs : ClassPairs, optional
        Margins and costs of pairs of classes.
    """

    def __init__(
        self,
        loss: Loss,
        settings: Settings,
        columns: int,
        buffer: DualBuffer,
        pairs: ClassPairs | None = None,
    ) -> None:
        self._kernels = loss.kernels_of(settings.solver)
        self.scratch = Scratch.create(columns, np.dtype(settings.dtype))
        self._buffer = buffer
        self.pairs = pairs
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
        sets: LabelSets | None = None,
        *,
        was_read: bool,
    ) -> list[RowDuals]:
        """Visit the rows of ``order``, make inner passes, and return the new duals; none if not kept."""
        buffer, at, found = self._buffer, 0, []

        def visit(kernel: Any, order: np.ndarray, begin: int, duals: Duals) -> int:
            return kernel(
                rows, order, begin, len(order), problem, weights, duals, self.scratch, tally, None,
                self.pairs, sets,
            )  # fmt: skip

        buffer.used[:] = 0
        while at < len(order):
            at = visit(self._kernels.visit, order, at, Duals(old, buffer))
            if self._inner_passes is not None:
                width = int(
                    (problem.ranges[:, 2] - problem.ranges[:, 0]).clip(max=len(self.scratch.scores)).sum()
                )
                self._inner_passes.over_lists(
                    lambda order, duals: visit(self._kernels.revisit, order, 0, duals), rows,
                    weights.current[:, :width], buffer, place, was_read=was_read,
                )  # fmt: skip
            if len(buffer.ids):
                found.append(RowDuals.of_buffer(buffer).copy())
            buffer.used[:] = 0
        return found
