"""Margins Δ(y, j) between the true class y of a row and a wrong class j, and cost factors of true classes.

Most losses are functions of the slacks 1 - M (s_y - s_j), for scores s and the margin scale M. Adding
(Δ(y, j) - 1) / M to the score of each wrong class j changes the slacks to Δ(y, j) - M (s_y - s_j), so block
solvers need not handle margins. In the dual objective, the linear term of a dual b_j becomes Δ(y, j) b_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import own_bits
from streamsvm.kernels.simd import cast, load_like, select, store, zeros


class ClassPairs(NamedTuple):
    """Margins between pairs of classes, and cost factors of true classes."""

    margins: np.ndarray  # (k, K) float32: Δ off the diagonal, 1 on it; (0, K) if all are 1
    own_costs: np.ndarray  # (K,) float64: cost factors for the duals of true classes; (0,) if all are 1


@inlined
def cost_lanes(row, c, pairs, zero):
    """Return the cost factors of a row's duals for the vector of classes starting at `c`."""
    cost = zero + 1.0
    if len(pairs.own_costs) > 0:
        cost = select(own_bits(row.y, c, row.own), load_like(pairs.own_costs, c, zero), cost)
    return cost


@inlined
def shift_lanes(y, c, pairs, problem, like):
    """Return (Δ - 1) / M for the vector of classes starting at `c`; ``pairs.margins`` must not be empty."""
    return (load_like(pairs.margins, (y, c), like) - 1.0) / problem.margin


@inlined
def add_margins(y, vectors, n, problem, pairs, scratch):
    """Add (Δ - 1) / M to the scores of the classes in the first `n` of `vectors`, unless all Δ are 1."""
    if len(pairs.margins) == 0:
        return
    like = cast(zeros(), scratch.scores)
    for r in range(n):
        c = vectors[r]
        shift = shift_lanes(y, c, pairs, problem, like)
        store(scratch.scores, c, load_like(scratch.scores, c, like) + shift)
