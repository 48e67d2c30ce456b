"""Margins Δ(y, j) of class j in a row of class y, and weights of the row's own classes.

A loss of the slacks 1 - M (s_y - s_j) becomes one of Δ(y, j) - M (s_y - s_j) when (Δ(y, j) - 1) / M is added
to the score of each wrong class j, so the block solvers need not know of margins. The dual term of b_j
becomes Δ(y, j) b_j.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.scratch import own_bits
from streamsvm.kernels.simd import cast, load_like, select, store, zeros


class ClassPairs(NamedTuple):
    """What errors between classes weigh."""

    margins: np.ndarray  # (k, K) float32: Δ off the diagonal, else 1; or (0, K) if all are 1
    own_costs: np.ndarray  # (K,) float64: of the own class, where it has a dual; or (0,) if all are 1


@inlined
def cost_lanes(row, c, pairs, zero):
    """Return the factors of the losses of the classes of a vector."""
    cost = zero + 1.0
    if len(pairs.own_costs) > 0:
        cost = select(own_bits(row.y, c, row.own), load_like(pairs.own_costs, c, zero), cost)
    return cost


@inlined
def shift_lanes(y, c, pairs, problem, thin):
    """Return (Δ - 1) / M of the classes of a vector, in the precision of `thin`; there are margins."""
    return (load_like(pairs.margins, (y, c), thin) - 1.0) / problem.margin


@inlined
def add_margins(y, vectors, n, problem, pairs, scratch):
    """Add (Δ(y, c) - 1) / M to the scores of the classes."""
    if len(pairs.margins) == 0:
        return
    thin = cast(zeros(), scratch.scores)
    for r in range(n):
        c = vectors[r]
        shift = shift_lanes(y, c, pairs, problem, thin)
        store(scratch.scores, c, load_like(scratch.scores, c, thin) + shift)
