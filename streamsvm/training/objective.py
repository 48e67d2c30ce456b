"""Primal and dual objective, and their gap: a bound of a model's distance from the optimum."""

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
    """Sums of a pass over the data with fixed weights."""

    loss_sum: float  # Σ of the rows' losses, each times its cost
    accuracy: float  # fraction of rows classified correctly
    rows: int  # of weight above 0


def score_blocks(
    blocks: Blocks, learner: Learner, average_scale: float | None, step: Callable[[int], None]
) -> list[Scoring]:
    """Stream all blocks, in order, and add up loss and correct predictions.

    Parameters
    ----------
    blocks : Blocks
    learner : Learner
    average_scale : float, optional
        Score by the average too, from the same reading.
    step : callable
        Called with the number of rows that were scored, after each block.

    Returns
    -------
    list of Scoring
        For the last iterate and, unless `average_scale` is None, for the average. As in training, rows of
        norm zero do not enter the loss: it does not depend on the weights.
    """
    tallies = np.zeros((1 if average_scale is None else 2, N_TALLIES))
    for n_rows in learner.visits.score_blocks(blocks, average_scale, tallies):
        step(n_rows)
    return [
        Scoring(float(tally[LOSS_SUM]), accuracy_of(tally), int(tally[VISITED] - tally[UNWEIGHTED]))
        for tally in tallies
    ]


def accuracy_of(tally: np.ndarray) -> float:
    """Return the fraction of the rows of weight above zero that were classified correctly."""
    return float(tally[CORRECT] / max(tally[VISITED] - tally[UNWEIGHTED], 1.0))


def is_within(relative_gap: float, tol: float) -> bool:
    """Return True if a relative gap meets a tolerance; a negative one, due to rounding, by its size too."""
    return -tol <= relative_gap <= tol


def warn_of_rounding(record: dict[str, Any], dtype: np.dtype) -> list[str]:
    """Return a warning if a measured relative gap of a pass is more negative than usual rounding explains."""
    relative_gap = min(record.get(name) or 0.0 for name in ("relative_gap", "average_relative_gap"))
    if relative_gap >= -np.sqrt(np.finfo(dtype).eps):
        return []
    problem = f"the relative gap is {relative_gap:.1e}: only rounding makes it negative, and it is not known"
    remedy = Remedy("use {}, or scale the values of the data to about 1", Option("dtype", "float64"))
    return [Message(problem, remedy)]


def gap_record(dual_sum: float, loss_sum: float, norm2: float, product: float = 0.0) -> dict[str, float]:
    """Return dual, primal, gap and relative gap, given the sums of dual terms and of losses, and ‖w‖².

    If training goes on from weights W₀, that is ‖w - W₀‖², and `product` is ⟨w - W₀, W₀⟩.
    """
    primal = 0.5 * norm2 + loss_sum
    dual = dual_sum - 0.5 * norm2 - product
    gap = primal - dual
    return {"dual": dual, "primal": primal, "gap": gap, "relative_gap": gap / primal if primal != 0 else 0.0}
