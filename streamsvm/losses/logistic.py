"""Multinomial logistic regression: the negative log-likelihood of the own class under the softmax.

    min ½‖W‖² + C Σ_i (log Σ_c exp(w_cᵀx_i) - w_yᵀx_i)

The duals of a row are b_j = C p_j for the wrong classes, where p is a distribution over all classes, so that
p_y = 1 - Σb/C. They add Σb x to w_y and -b_j x to w_j, and the dual objective has the entropy -C Σ_c p_c log
p_c. b = 0 is feasible and adds nothing. With b_y = C - Σb for the own class, the block step of row i has

    log p_c + ‖x‖²C p_c = s_c + ‖x‖² b_c - θ    for all classes c, with the θ for which Σ p_c = 1,

in which p_c is a value of Lambert's W function. Nearly all duals are positive.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import add_candidates_above, beats
from streamsvm.kernels.frame import make_kernels
from streamsvm.kernels.jit import allocating, inlined

_MOST_SWEEPS = 100
_THIRD = 1.0 / 3.0


@inlined
def _entropy_term(b, C, problem):
    return b * (np.log(C) - np.log(b)) if b > 0.0 else 0.0  # b / C may be 0


@inlined
def _own_entropy_term(total, C, problem):
    return -(C - total) * np.log1p(-total / C) if 0.0 < total < C else 0.0


@inlined
def _loss(y, problem, scores):
    """The loss, and whether another class beats class `y`."""
    top, is_wrong = np.float64(scores[y]), False
    for c in range(problem.n_classes):
        top = max(top, np.float64(scores[c]))
        is_wrong |= beats(c, y, scores)
    total = 0.0
    for c in range(problem.n_classes):
        total += np.exp(np.float64(scores[c]) - top)
    return np.log(total) + (top - scores[y]), is_wrong


@inlined
def _exp_of_minus(d):
    """exp(-d): Newton's changes soon are so small that its series is faster."""
    if abs(d) < 0.01:
        return 1.0 - d * (1.0 - d * 0.5 * (1.0 - d * _THIRD * (1.0 - d * 0.25 * (1.0 - d * 0.2))))
    return np.exp(-d)


@allocating
def _solve_block(y, norm2, C, m, old_sum, scratch):
    """Write the new duals of the `m` candidates, over which and class `y` p is a distribution.

    With u = ‖x‖²C p and x = log u the equations are F_c = u_c + x_c - z_c + θ = 0 and Σ u_c = ‖x‖²C: convex
    in x. Newton's method for x and θ together starts at a θ below the solution and at an x above that of this
    θ, from where it does not overshoot. With the softmax p⁰ of z, θ >= log Σ exp z - log ‖x‖²C - ‖x‖²C Σ
    (p⁰)²: a solution is flatter than the softmax, and exp is convex.
    """
    total = norm2 * C
    z, x, u, shrink = np.empty((4, m + 1))  # the own class is the last
    for r in range(m):
        z[r] = scratch.scores[scratch.ids[r]] + norm2 * scratch.before[r]
    z[m] = scratch.scores[y] + norm2 * max(C - old_sum, 0.0)
    top = z[m]
    for r in range(m):
        top = max(top, z[r])
    sum_u, squares = 0.0, 0.0
    for r in range(m + 1):
        z[r] -= top
        u[r] = np.exp(z[r])
        sum_u += u[r]
        squares += u[r] * u[r]
    fall = total * (squares / (sum_u * sum_u))
    theta = np.log(sum_u / total) - fall
    scale = total / sum_u * np.exp(fall)
    for r in range(m + 1):
        x[r] = z[r] - theta
        if x[r] > 1.0:
            u[r] = x[r]
            x[r] = np.log(x[r])
        else:
            u[r] = u[r] * scale if fall < 1.0 else np.exp(x[r])
    for _ in range(_MOST_SWEEPS):
        sum_u, sum_slope, sum_part = 0.0, 0.0, 0.0
        for r in range(m + 1):
            shrink[r] = 1.0 / (1.0 + u[r])
            slope = u[r] * shrink[r]
            sum_u += u[r]
            sum_slope += slope
            sum_part += slope * (u[r] + x[r] - z[r] + theta)
        step = (sum_u - total - sum_part) / sum_slope
        theta += step
        is_solved = True
        for r in range(m + 1):
            change = (u[r] + x[r] - z[r] + theta) * shrink[r]
            x[r] -= change
            u[r] *= _exp_of_minus(change)
            # What is left of F_c is u change²/2; for large u the change is rounding at last.
            is_solved &= not change * change > max(1e-16 / max(u[r], 1.0), 1e-30)
        if is_solved:
            break
    sum_u = 0.0
    for r in range(m + 1):
        sum_u += u[r]
    for r in range(m):
        scratch.v[r] = C * (u[r] / sum_u)


@inlined
def _solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
    m, n_vectors = add_candidates_above(-np.inf, problem, scratch, n_old, n_vectors)
    loss, is_wrong = _loss(y, problem, scratch.scores)
    _solve_block(y, norm2, C, m, old_sum, scratch)
    return m, n_vectors, loss, is_wrong


@inlined
def _add_losses(y, problem, pairs, own, n_vectors, scratch):
    loss, is_wrong = _loss(y, problem, scratch.scores)
    return n_vectors, loss, is_wrong


KERNELS = {
    "logistic": make_kernels(
        "logistic",
        solve=_solve,
        solve_restricted=None,  # a visit over few of the classes would not be cheaper: all have duals
        add_losses=_add_losses,
        dual_term=_entropy_term,
        sum_term=_own_entropy_term,
    )
}
