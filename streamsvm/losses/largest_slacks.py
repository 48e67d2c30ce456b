"""Losses based on the largest slacks: the code that Crammer-Singer, top-m and sparsemax share.

For the slacks z_j = 1 - (w_y - w_j)ᵀx of the wrong classes j, the block problem of a row is

    min ½ bᵀ((1 + ρ)I + κ11ᵀ) b - uᵀb    over 0 <= b_j <= U, Σb <= Z,    u_j = z_j / ‖x‖² + b_j + Σb,

where the duals in u are the old ones. The solution is b_j = clip((u_j - γ) / (1 + ρ), 0, U) with the scalar γ
for which Σb = min(γ/κ, Z). Each loss defines κ, ρ, U and Z; only sparsemax has ρ > 0.

If C‖x‖² is small, all u_j are near 1/‖x‖², which is many times C, and u_j - γ would be mostly rounding error.
So the solvers use differences from the largest u, that of class p. For scores s_j, these are

    d_j = u_j - u_p = (b_j - b_p) + (s_j - s_p) / ‖x‖² <= 0.

The solvers find θ = γ - u_p, so that b_j = clip((d_j - θ) / (1 + ρ), 0, U) and Σb = min((u_p + θ)/κ, Z).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import (
    LANES,
    LOG_LANES,
    lanes,
    load,
    load_like,
    lowest_bit,
    max_lanes,
    maximum,
    minimum,
    not_below,
    store,
    zeros,
)
from streamsvm.losses.hinges import STRAIGHT, Curve
from streamsvm.losses.threshold import threshold_newton

_MAX_ATTEMPTS = 8  # attempts to find the largest u


@inlined
def largest_slack(row, n, scratch):
    """Return the largest slack of the classes with a dual, or -infinity if no class has one."""
    zero = zeros()
    best = zero - np.inf
    for r in range(n):
        c = scratch.vectors[r]
        best = maximum(load_like(scratch.scores, c, zero), best)
    return 1.0 - (row.own_score - max_lanes(best))


@inlined
def _write_d(row, n, inverse, score, dual, largest, scratch):
    """Write (b_j - dual) + (s_j - score) / ‖x‖², limited to `largest`; return the maximum before limiting."""
    zero = zeros()
    top = zero - np.inf
    for r in range(n):
        c = scratch.vectors[r]
        s, b = load_like(scratch.scores, c, zero), load_like(scratch.old, c, zero)
        d = (b - dual) + (s - score) * inverse
        top = maximum(d, top)
        store(scratch.v, r * LANES, minimum(largest, d))
    return max_lanes(top)


@inlined
def _position(v, m, value):
    j = 0
    while j < m:
        hits = not_below(load(v, j), value)
        if hits != 0:
            return j + lowest_bit(hits)
        j += lanes(v)
    return 0


@inlined
def _score_and_dual(p, scratch):
    c = scratch.vectors[p >> LOG_LANES] + (p & (LANES - 1))
    return np.float64(scratch.scores[c]), scratch.old[c]


@inlined
def _nearest(d, m, theta):
    nearest, distance = 0, np.inf
    for r in range(m):
        if abs(d[r] - theta) < distance:
            nearest, distance = r, abs(d[r] - theta)
    return nearest


@inlined
def write_d(row, n, inverse, scratch):
    """Find the class p with the largest u, and write d; return z_p / ‖x‖², and the score and old dual of p.

    If the duals are much smaller than s / ‖x‖², rounding may lead to a wrong choice of p. In this case, some
    d_j is positive, and p is chosen again.
    """
    m = n * LANES
    top = _write_d(row, n, inverse, row.own_score, 0.0, np.inf, scratch)
    if top == -np.inf:  # no listed class has a dual
        return top, row.own_score - 1.0, 0.0
    score, dual = _score_and_dual(_position(scratch.v, m, top), scratch)
    for _ in range(_MAX_ATTEMPTS):
        top = _write_d(row, n, inverse, score, dual, 0.0, scratch)
        if not top > 0.0:
            break
        top = _write_d(row, n, inverse, score, dual, np.inf, scratch)
        score, dual = _score_and_dual(_position(scratch.v, m, top), scratch)
    return (1.0 - (row.own_score - score)) * inverse, score, dual


@inlined
def min_theta(max_sum, slope, u_top):
    """Return a lower bound for θ if U = ∞, because the largest dual, -θ, is at most the sum of the duals."""
    return -min(max_sum, u_top * slope / (1.0 + slope))


@inlined
def find_newton(d, m, upper, max_sum, slope, u_top, dual, problem):
    """Find θ by Newton's method, starting from minus the old dual of p, if θ may have this value."""
    low = -u_top if upper < max_sum else min_theta(max_sum, slope, u_top)
    guess = -dual if low < -dual < 0.0 else low
    return threshold_newton(d, m, upper, max_sum, slope, u_top, low, 0.0, guess)


def make_kernels_of_largest(
    name: str,
    loss_of: Any,
    bounds: Any,
    *,
    find_threshold: Any = find_newton,
    curve: Curve = STRAIGHT,
    sum_curve: Curve = STRAIGHT,
    has_two_bounds: bool = False,
) -> Kernels:
    """Make the kernels of a loss that is based on the largest slacks.

    Parameters
    ----------
    loss_of : inlined function
        ``loss_of(row, n, problem, scratch)`` returns the loss of a row.
    bounds : inlined function
        ``bounds(C, problem)`` returns U and Z.
    find_threshold : inlined function
        ``find_threshold(d, m, upper, max_sum, slope, u_p, dual, problem)`` returns θ for ``d[:m]``, where `d`
        has room for another vector. `dual` is the old dual of p. `upper`, `max_sum` and `dual` are multiplied
        by 1 + ρ.
    curve, sum_curve : Curve
        Curves of each dual and of the sum of duals. Their second derivatives, divided by ‖x‖², are ρ and, for
        n true classes, κ - 1/n.
    has_two_bounds : bool
        Whether U and Z may both be active.
    """
    curvature, sum_curvature = curve.curvature, sum_curve.curvature

    def threshold(row, n, u_p, score, dual, growth, upper, max_sum, problem, scratch):
        """Return θ, and the score and old dual of the class that it is relative to; θ is 0 if u_p <= 0."""
        m = n * LANES
        inverse, coupling = 1.0 / row.norm2, 1.0 / row.n_own
        if not u_p > 0.0:
            return -max(u_p, 0.0), score, dual
        slope = growth / (coupling + sum_curvature(row.C, problem) * inverse)
        theta = find_threshold(scratch.v, m, upper, max_sum, slope, u_p, growth * dual, problem)
        if has_two_bounds:  # γ may be far below u_p; the nearest u keeps more digits
            p = _nearest(scratch.v, m, theta)
            theta -= scratch.v[p]
            score, dual = _score_and_dual(p, scratch)
            top = _write_d(row, n, inverse, score, dual, np.inf, scratch)
            u_p = (1.0 - (row.own_score - score)) * inverse + (dual + coupling * row.old_sum)
            theta = threshold_newton(scratch.v, m, upper, max_sum, slope, u_p, -u_p, max(top, -u_p), theta)
        return theta, score, dual

    threshold = inlined(threshold, name=f"{name}_threshold")

    def solve(row, n, problem, pairs, scratch):
        """Solve by Blondel et al. (2014), Algorithm 1.

        If the block problem is solved for some classes, including all with an old dual, the solution γ' is at
        most the γ of all classes. Any other class gets a dual only if u_j > γ, and affects the loss only if
        its slack is positive. The score limit is the smaller of the scores with u_j = γ' and with slack 0.
        """
        inverse = 1.0 / row.norm2
        growth = 1.0 + curvature(row.C, problem) * inverse
        upper, max_sum = bounds(row.C, problem)
        upper, max_sum = growth * upper, growth * max_sum
        loss = loss_of(row, n, problem, scratch)
        u, score, dual = write_d(row, n, inverse, scratch)
        u += dual + row.old_sum / row.n_own
        theta, score, dual = threshold(row, n, u, score, dual, growth, upper, max_sum, problem, scratch)
        m = n * LANES
        clip_duals(scratch.v, m, theta, upper)
        if growth != 1.0:
            for p in range(m):
                scratch.v[p] /= growth
        if has_two_bounds:
            total = 0.0
            for p in range(m):
                total += scratch.v[p]
            if total > max_sum:  # by rounding
                for p in range(m):
                    scratch.v[p] *= max_sum / total
        limit = score + (dual + theta) * row.norm2  # score at which u_j = γ if b_j = 0
        return loss, min(limit, row.own_score - 1.0)

    def measure(row, n, problem, pairs, scratch):
        return loss_of(row, n, problem, scratch)

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        measure=inlined(measure, name=f"{name}_measure"),
        terms=curve.terms(name),
        sum_term=sum_curve.sum_term(name),
    )
