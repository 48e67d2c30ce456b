"""Sparsemax: the logistic loss with the softmax replaced by the Euclidean projection onto the simplex.

    min ½‖W‖² + C Σ_i (max_p (pᵀWᵀx_i - ½‖p‖²) - w_yᵀx_i + ½)    over the distributions p over all classes

This is the loss of Martins & Astudillo (2016). The maximiser p contains the class probabilities, most of
which are 0. The loss is 0 if the score of the true class exceeds all other scores by at least 1. With
p_y = 1 - Σp, the slacks z_j = 1 - (w_y - w_j)ᵀx, and all sums over the wrong classes j, the loss is

    max_p Σ_j p_j z_j - ½(Σ_j p_j² + (Σp)²)    over p >= 0, Σp <= 1.

So the duals are b_j = C p_j, with the terms Σb - (Σ_j b_j² + (Σb)²)/2C. In the block problem of
`streamsvm.losses.largest_slacks`, ρ = 1/C‖x‖², κ = 1 + ρ, U = ∞ and Z = C.
"""

from __future__ import annotations

from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import LANES, load_like, store, zeros
from streamsvm.losses.hinges import Curve
from streamsvm.losses.largest_slacks import largest_slack, make_kernels_of_largest, min_theta
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton


@inlined
def _loss(row, n, problem, scratch):
    """Return ½‖p‖² + Σp (τ - ½Σp), with p_j = max(z_j - τ, 0) and the τ for which Σp = min(τ, 1)."""
    top, zero, m = largest_slack(row, n, scratch), zeros(), n * LANES
    if not top > 0.0:
        return max(top, 0.0)
    for r in range(n):
        slack = 1.0 - (row.own_score - load_like(scratch.scores, scratch.vectors[r], zero))
        store(scratch.v, r * LANES, slack)
    low = top + min_theta(1.0, 1.0, top)
    tau = threshold_newton(scratch.v, m, UNBOUNDED, 1.0, 1.0, 0.0, low, top, low)
    clip_duals(scratch.v, m, tau, UNBOUNDED)
    total, squares = 0.0, 0.0
    for j in range(m):
        total += scratch.v[j]
        squares += scratch.v[j] * scratch.v[j]
    return 0.5 * squares + total * (tau - 0.5 * total)


_bounds = inlined(lambda C, problem: (UNBOUNDED, C), name="sparsemax_bounds")
_CURVE = Curve(
    inlined(lambda C, problem: 1.0 / C, name="sparsemax_curvature"),
    inlined(lambda b, C, problem: b * b / (2.0 * C), name="sparsemax_curve"),
)
KERNELS = {"sparsemax": make_kernels_of_largest("sparsemax", _loss, _bounds, curve=_CURVE, sum_curve=_CURVE)}
