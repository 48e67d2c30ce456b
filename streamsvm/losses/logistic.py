"""Multinomial logistic regression: the negative log-likelihood of the true class under the softmax.

    min ½‖W‖² + C Σ_i (log Σ_c exp(w_cᵀx_i) - w_yᵀx_i)

The duals of a row are b_j = C p_j for the wrong classes j, where p is a distribution over all classes, so
p_y = 1 - Σb/C. They add Σb x to w_y and -b_j x to w_j, and the entropy -C Σ_c p_c log p_c to the dual
objective. The duals b = 0 are feasible, with entropy 0. For b_y = C - Σb, the block step of row i solves

    log p_c + ‖x‖²C p_c = s_c + ‖x‖² b_c - θ    for all classes c, with the θ for which Σ p_c = 1.

Each p_c is a value of Lambert's W function. Nearly all duals are positive.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.frame import make_kernels
from streamsvm.kernels.jit import allocating, inlined
from streamsvm.kernels.simd import LANES, above, log, select

_MAX_STEPS = 100
_THIRD = 1.0 / 3.0


@inlined
def _entropy_terms(b, C, problem):
    return select(above(b, 0.0), b * (np.log(C) - log(b)), 0.0)  # b / C may underflow to 0


@inlined
def _own_entropy_term(total, C, problem):
    return -(C - total) * np.log1p(-total / C) if 0.0 < total < C else 0.0


@inlined
def _measure(row, n, problem, pairs, scratch):
    top = row.own_score
    for c in range(problem.n_classes):
        top = max(top, np.float64(scratch.scores[c]))
    total = np.exp(row.own_score - top)  # the true class, whose score is hidden
    for c in range(problem.n_classes):
        total += np.exp(np.float64(scratch.scores[c]) - top)
    return np.log(total) + (top - row.own_score)


@inlined
def _exp_of_minus(d):
    """Return exp(-d), computed by a series if d is small, as in late Newton steps."""
    if abs(d) < 0.01:
        return 1.0 - d * (1.0 - d * 0.5 * (1.0 - d * _THIRD * (1.0 - d * 0.25 * (1.0 - d * 0.2))))
    return np.exp(-d)


@allocating
def _solve_block(row, k, scratch):
    """Write the new duals of the wrong classes, found by Newton's method.

    With u = ‖x‖²C p, x = log u and z_c = s_c + ‖x‖² b_c, the equations F_c = u_c + x_c - z_c + θ = 0 and
    Σ u_c = ‖x‖²C are convex in x. A lower bound for θ is log Σ exp z - log ‖x‖²C - ‖x‖²C Σ (p⁰)², where p⁰ is
    the softmax of z. The method starts at this bound and above the solution in x, so it does not overshoot.
    """
    total = row.norm2 * row.C
    z, x, u, shrink = np.empty((4, k))
    top = -np.inf
    for c in range(k):
        z[c] = np.float64(scratch.scores[c]) + row.norm2 * scratch.old[c]
        if c == row.y:
            z[c] = row.own_score + row.norm2 * max(row.C - row.old_sum, 0.0)
        top = max(top, z[c])
    sum_u, squares = 0.0, 0.0
    for c in range(k):
        z[c] -= top
        u[c] = np.exp(z[c])
        sum_u += u[c]
        squares += u[c] * u[c]
    fall = total * (squares / (sum_u * sum_u))
    theta = np.log(sum_u / total) - fall
    scale = total / sum_u * np.exp(fall)
    for c in range(k):
        x[c] = z[c] - theta
        if x[c] > 1.0:
            u[c] = x[c]
            x[c] = np.log(x[c])
        else:
            u[c] = u[c] * scale if fall < 1.0 else np.exp(x[c])
    for _ in range(_MAX_STEPS):
        sum_u, sum_slope, sum_part = 0.0, 0.0, 0.0
        for c in range(k):
            shrink[c] = 1.0 / (1.0 + u[c])
            slope = u[c] * shrink[c]
            sum_u += u[c]
            sum_slope += slope
            sum_part += slope * (u[c] + x[c] - z[c] + theta)
        theta += (sum_u - total - sum_part) / sum_slope
        is_solved = True
        for c in range(k):
            change = (u[c] + x[c] - z[c] + theta) * shrink[c]
            x[c] -= change
            u[c] *= _exp_of_minus(change)
            # F_c is now about u change²/2. For large u the last changes are only rounding error.
            is_solved &= not change * change > max(1e-16 / max(u[c], 1.0), 1e-30)
        if is_solved:
            break
    sum_u = 0.0
    for c in range(k):
        sum_u += u[c]
    for c in range(k):
        scratch.v[c] = row.C * (u[c] / sum_u)
    scratch.v[row.y] = 0.0


@inlined
def _solve(row, n, problem, pairs, scratch):
    for p in range(problem.n_classes, n * LANES):
        scratch.v[p] = 0.0
    _solve_block(row, problem.n_classes, scratch)
    return _measure(row, n, problem, pairs, scratch), -np.inf


KERNELS = {
    "logistic": make_kernels(
        "logistic",
        solve=_solve,
        measure=_measure,
        terms=_entropy_terms,
        sum_term=_own_entropy_term,
        needs_all=True,
    )
}
