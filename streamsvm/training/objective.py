"""Primal and dual objectives, and their gap, which bounds how far a model is from the optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamsvm.errors import Message, Option, Remedy
from streamsvm.kernels.tally import CORRECT, LOSS_SUM, N_TALLIES, UNWEIGHTED, VISITED

if TYPE_CHECKING:
    from streamsvm.data.blocks import Blocks
    from streamsvm.training.learner import Learner


class Scoring(NamedTuple):
    """Result of scoring all rows with fixed weights."""

    loss_sum: float  # sum of the losses of the rows, multiplied by their costs
    accuracy: float
    rows: int  # number of rows with weight above 0


def score_blocks(
    blocks: Blocks, learner: Learner, average_scale: float | None, step: Callable[[int], None]
) -> list[Scoring]:
    """Score all blocks with the last iterate and, unless `average_scale` is None, with the average.

    Return one `Scoring` for each of these models. The blocks are read only once. `step` is called after each
    block with the number of rows scored so far. Rows with norm 0 are left out of the loss sum, because their
    loss does not depend on the weights.
    """
    tallies = np.zeros((1 if average_scale is None else 2, N_TALLIES))
    for n_rows in learner.visits.score_blocks(blocks, average_scale, tallies):
        step(n_rows)
    return [
        Scoring(float(tally[LOSS_SUM]), accuracy_of(tally), int(tally[VISITED] - tally[UNWEIGHTED]))
        for tally in tallies
    ]


def accuracy_of(tally: np.ndarray) -> float:
    """Return the fraction of correctly classified rows among the rows with weight above 0."""
    return float(tally[CORRECT] / max(tally[VISITED] - tally[UNWEIGHTED], 1.0))


def is_within(relative_gap: float, tol: float) -> bool:
    """Return True if a relative gap, which rounding may make negative, is within `tol` of 0."""
    return -tol <= relative_gap <= tol


def warn_of_rounding(record: dict[str, Any], dtype: np.dtype) -> list[str]:
    """Return a list with a warning if rounding made a relative gap clearly negative, else an empty list."""
    relative_gap = min(record.get(name) or 0.0 for name in ("relative_gap", "average_relative_gap"))
    if relative_gap >= -np.sqrt(np.finfo(dtype).eps):
        return []
    problem = f"the relative gap is {relative_gap:.1e}: rounding makes it negative, so the gap is unknown"
    remedy = Remedy("use {}, or rescale the data to values of order 1", Option("dtype", "float64"))
    return [Message(problem, remedy)]


def gap_record(dual_sum: float, loss_sum: float, norm2: float, product: float = 0.0) -> dict[str, float]:
    """Return dual, primal, gap and relative gap, from the sums of dual terms and losses, and from ‖w‖².

    If training continues from weights W₀, `norm2` is ‖w - W₀‖², and `product` is ⟨w - W₀, W₀⟩.
    """
    primal = 0.5 * norm2 + loss_sum
    dual = dual_sum - 0.5 * norm2 - product
    gap = primal - dual
    return {"dual": dual, "primal": primal, "gap": gap, "relative_gap": gap / primal if primal != 0 else 0.0}
