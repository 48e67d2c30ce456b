"""Primal, dual, and the gap between them: how far from optimal a model can be at most."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.blocks import Blocks, ReadAhead
from streamsvm.data.rows import Rows
from streamsvm.kernels.steps import CORRECT, LOSS_SUM, N_TALLIES, VISITED, Scratch, Weights
from streamsvm.run.hybrid_weights import SplitRows


class Scoring(NamedTuple):
    """What one pass over the data with fixed weights tells."""

    loss_sum: float  # Σ of the rows' losses, without C
    accuracy: float  # fraction of rows classified correctly


def score_blocks(
    blocks: Blocks,
    weights: Weights,
    lagging: float | None,
    loss: ModuleType,
    margin: float,
    n_classes: int,
    step: Callable[[int], None],
    split: Callable[[Rows], SplitRows] | None = None,
) -> list[Scoring]:
    """Stream all blocks, in order, and add up loss and correct predictions.

    One result for the last iterate and, unless `lagging` is None, one for the weights
    ``now - lagging * lag``, from the same scores.

    Rows of norm zero have no part in the loss, as in training: no weights could change theirs.
    Calls ``step(block)`` after each block. With `split`, rows are divided as they are read.
    """
    read = blocks.read if split is None else lambda block: split(blocks.read(block))
    scratch = Scratch.create(weights.now.shape[1], weights.now.dtype)
    tallies = np.zeros((1 if lagging is None else 2, N_TALLIES))
    for block, rows in enumerate(ReadAhead()(read, range(len(blocks)))):
        if isinstance(rows, SplitRows):
            rows, weights = rows.enter(weights)
        loss.loss_rows(rows, weights, lagging or 0.0, n_classes, margin, scratch, tallies)
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


def gap_record(dual_sum: float, loss_sum: float, norm2: float, C: float) -> dict[str, float]:
    """Dual, primal, gap and relative gap from Σβ, the summed loss and ‖w‖²."""
    primal = 0.5 * norm2 + C * loss_sum
    dual = dual_sum - 0.5 * norm2
    gap = primal - dual
    return {
        "dual": dual,
        "primal": primal,
        "gap": gap,
        "relative_gap": gap / primal if primal != 0 else 0.0,
    }
