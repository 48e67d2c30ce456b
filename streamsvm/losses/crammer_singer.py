"""Crammer-Singer: the wrong class with the largest score adds to the loss, if it is inside the margin.

    min ½‖w‖² + C Σ_i φ(1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)    cs: φ(z) = max(z, 0);  cs2: φ(z) = max(z, 0)²

The papers' dual block α has sum zero, α_y <= C and α_j <= 0 elsewhere; b_j = -α_j for the wrong classes.
In the block problem of `streamsvm.losses.largest_slacks`

           κ                 U      Z    dual terms
    cs     1                 ∞      C    Σb
    cs2    1 + 1 / 2C‖x‖²    ∞      ∞    Σb - (Σb)²/4C
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import beats
from streamsvm.kernels.jit import inlined
from streamsvm.losses.largest_slacks import find_newton, make_kernels_of_largest
from streamsvm.losses.simplex import NEWTON, improve_on_simplex, threshold_published, threshold_sorted
from streamsvm.losses.threshold import UNBOUNDED


@inlined
def _loss(y, best, problem, scratch, m):
    """The largest slack, or 0, and whether a wrong class beats class `y`."""
    scores = scratch.scores
    if best == y:  # only one class is known yet
        return 0.0, False
    return max(1.0 - (np.float64(scores[y]) - scores[best]), 0.0), beats(best, y, scores)


@inlined
def _squared_loss(y, best, problem, scratch, m):
    largest, is_wrong = _loss(y, best, problem, scratch, m)
    return largest * largest, is_wrong


@inlined
def _bounds(C, problem):
    return UNBOUNDED, C


@inlined
def _no_bounds(C, problem):
    return UNBOUNDED, UNBOUNDED


@inlined
def _curvature(C):
    return 0.5 / C


@inlined
def _squared_sum_term(total, C, problem):
    return -total * total / (4.0 * C)


@inlined
def _newton_or_sorted(d, m, upper, most, slope, u_top, dual, problem):
    if problem.solver != NEWTON:
        return threshold_sorted(d, m, most, slope, u_top)
    return find_newton(d, m, upper, most, slope, u_top, dual, problem)


@inlined
def _newton_or_published(d, m, upper, most, slope, u_top, dual, problem):
    if problem.solver != NEWTON:
        return threshold_published(problem.solver, d, m, most, u_top)
    return find_newton(d, m, upper, most, slope, u_top, dual, problem)


KERNELS = {
    "cs": make_kernels_of_largest("cs", _loss, _bounds, _newton_or_published, improve=improve_on_simplex),
    "cs2": make_kernels_of_largest(
        "cs2", _squared_loss, _no_bounds, _newton_or_sorted, curvature=_curvature, sum_term=_squared_sum_term
    ),
}
