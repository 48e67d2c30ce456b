"""Primal, dual, and the gap between them: how far from optimal a model can be at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.blocks import Blocks, ReadAhead
from streamsvm.data.rows import Rows
from streamsvm.kernels.candidates import Scratch
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.tally import CORRECT, LOSS_SUM, N_TALLIES, VISITED
from streamsvm.kernels.weights import Weights
from streamsvm.losses.base import Loss
from streamsvm.run.hybrid_weights import SplitRows


class Scoring(NamedTuple):
    """What one pass over the data with fixed weights tells."""

    loss_sum: float  # Σ of the rows' losses, each times its cost
    accuracy: float  # fraction of rows classified correctly


def score_blocks(
    blocks: Blocks,
    weights: Weights,
    average_scale: float | None,
    loss: Loss,
    problem: Problem,
    C: float,
    step: Callable[[int], None],
    split: Callable[[Rows], SplitRows] | None = None,
) -> list[Scoring]:
    """Stream all blocks, in order, and add up loss and correct predictions.

    One result for the current weights and, unless `average_scale` is None, one for their average
    ``current - average_scale * average_delta``, from the same scores. Each row has the cost `C`.

    Rows of norm zero have no part in the loss, as in training: no weights could change theirs.
    Calls ``step(block)`` after each block. With `split`, rows are divided as they are read.
    """
    read: Callable[[int], Any] = blocks.read if split is None else lambda block: split(blocks.read(block))
    scratch = Scratch.create(weights.current.shape[1], weights.current.dtype)
    tallies = np.zeros((1 if average_scale is None else 2, N_TALLIES))
    for block, rows in enumerate(ReadAhead()(read, range(len(blocks)))):
        sparse_rows = None
        if isinstance(rows, SplitRows):
            rows, sparse_rows = rows.enter()
        loss.loss_rows(
            rows.with_cost(C), problem, weights, average_scale or 0.0, scratch, tallies, sparse_rows
        )
        step(block)
    return [Scoring(float(t[LOSS_SUM]), float(t[CORRECT] / max(t[VISITED], 1.0))) for t in tallies]


def is_within(relative_gap: float, tol: float) -> bool:
    """Whether a relative gap meets a tolerance: a negative one, which is rounding, by its size as well."""
    return -tol <= relative_gap <= tol


def warn_of_rounding(record: dict[str, Any], dtype: np.dtype) -> list[str]:
    """A warning if a relative gap of a pass, if measured, is more negative than sound rounding makes it."""
    relative_gap = min(record.get(name) or 0.0 for name in ("relative_gap", "average_relative_gap"))
    if relative_gap >= -np.sqrt(np.finfo(dtype).eps):
        return []
    return [
        f"the relative gap is {relative_gap:.1e}, and only rounding makes it negative: how far the model is "
        "from optimal is not known; use dtype float64, or scale the values of the data to about 1"
    ]


def gap_record(dual_sum: float, loss_sum: float, norm2: float) -> dict[str, float]:
    """Dual, primal, gap and relative gap from the dual terms, the losses times their costs, and ‖W‖²."""
    primal = 0.5 * norm2 + loss_sum
    dual = dual_sum - 0.5 * norm2
    gap = primal - dual
    return {
        "dual": dual,
        "primal": primal,
        "gap": gap,
        "relative_gap": gap / primal if primal != 0 else 0.0,
    }
