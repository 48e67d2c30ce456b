"""Margins Δ(y, j) between the class y of a row and another class j, and costs of own classes.

A loss of the slacks 1 - M (s_y - s_j) becomes a loss of Δ(y, j) - M (s_y - s_j) when (Δ(y, j) - 1) / M is
added to the score of each wrong class j. So block solvers need no margins. The dual term is Δ(y, j) b_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import own_bits
from streamsvm.kernels.simd import cast, load_like, select, store, zeros


class ClassPairs(NamedTuple):
    """Margins between pairs of classes, and cost factors of own classes."""

    margins: np.ndarray  # (k, K) float32: Δ off the diagonal, 1 on it; (0, K) if all are 1
    own_costs: np.ndarray  # (K,) float64: cost factor of an own class with a dual; (0,) if all are 1


@inlined
def cost_lanes(row, c, pairs, zero):
    """Return the cost factors of a vector of classes."""
    cost = zero + 1.0
    if len(pairs.own_costs) > 0:
        cost = select(own_bits(row.y, c, row.own), load_like(pairs.own_costs, c, zero), cost)
    return cost


@inlined
def shift_lanes(y, c, pairs, problem, thin):
    """Return (Δ - 1) / M for a vector of classes, in the precision of `thin`; `pairs` must have margins."""
    return (load_like(pairs.margins, (y, c), thin) - 1.0) / problem.margin


@inlined
def add_margins(y, vectors, n, problem, pairs, scratch):
    """Add the shifts (Δ - 1) / M to the scores of the first `n` vectors of classes."""
    if len(pairs.margins) == 0:
        return
    thin = cast(zeros(), scratch.scores)
    for r in range(n):
        c = vectors[r]
        shift = shift_lanes(y, c, pairs, problem, thin)
        store(scratch.scores, c, load_like(scratch.scores, c, thin) + shift)
