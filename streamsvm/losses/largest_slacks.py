"""Losses of the largest slacks: what Crammer-Singer, top-m and sparsemax share.

With the slacks z_j = 1 - (w_y - w_j)ᵀx of the wrong classes j, and b_j in [0, U], Σ b <= Z, the block problem
of a row is

    min ½ bᵀ((1 + ρ)I + κ11ᵀ) b - uᵀb,    u_j = z_j / ‖x‖² + b_j + Σb,

and its solution b_j = clip((u_j - γ) / (1 + ρ), 0, U) with the one scalar γ for which Σ_j b_j = min(γ/κ, Z).
ρ is 0 but for sparsemax.

If C‖x‖² is small, all u_j are near 1/‖x‖², which is many times C, and u_j - γ would be mostly rounding error.
So with p, the candidate of the largest u, the solvers work on

    d_j = u_j - u_p = (b_j - b_p) + (s_j - s_p) / ‖x‖² <= 0

and find θ = γ - u_p: then b_j = clip((d_j - θ) / (1 + ρ), 0, U), and Σ b = min((u_p + θ)/κ, Z).
If C‖x‖² is large, C enters nothing else.
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

_MOST_TOPS = 8  # classes that may take the place of the largest u


@inlined
def largest_slack(row, n, scratch):
    """Return the slack of the class with the largest score among those with a dual; -infinity if none."""
    zero = zeros()
    best = zero - np.inf
    for r in range(n):
        c = scratch.vectors[r]
        best = maximum(load_like(scratch.scores, c, zero), best)
    return 1.0 - (row.own_score - max_lanes(best))


@inlined
def _write_d(row, n, inverse, score, dual, largest, scratch):
    """Write (b_j - dual) + (s_j - score) / ‖x‖², at most `largest` in spite of rounding.

    In lanes without a dual that is -infinity; NaN stays, and is seen. Returns the largest.
    """
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
    """Find the first of `m` entries that is at least `value`, or NaN; 0 if there is none."""
    j = 0
    while j < m:
        hits = not_below(load(v, j), value)
        if hits != 0:
            return j + lowest_bit(hits)
        j += lanes(v)
    return 0


@inlined
def _numbers_at(p, scratch):
    """Return the score and the old dual at a position."""
    c = scratch.vectors[p >> LOG_LANES] + (p & (LANES - 1))
    return np.float64(scratch.scores[c]), scratch.old[c]


@inlined
def _nearest(d, m, theta):
    """Find the position of the entry next to `theta`."""
    nearest, distance = 0, np.inf
    for r in range(m):
        if abs(d[r] - theta) < distance:
            nearest, distance = r, abs(d[r] - theta)
    return nearest


@inlined
def write_d(row, n, inverse, scratch):
    """Write d relative to the largest u; return that u, less what duals add to it, its score and its dual.

    Where b is lost beside s / ‖x‖², the largest of rounded u may not be the largest: then others are above
    it by their differences.
    """
    m = n * LANES
    top = _write_d(row, n, inverse, row.own_score, 0.0, np.inf, scratch)
    if top == -np.inf:  # no class listed has a dual
        return top, row.own_score - 1.0, 0.0
    score, dual = _numbers_at(_position(scratch.v, m, top), scratch)
    for _ in range(_MOST_TOPS):
        top = _write_d(row, n, inverse, score, dual, 0.0, scratch)
        if not top > 0.0:
            break
        top = _write_d(row, n, inverse, score, dual, np.inf, scratch)
        score, dual = _numbers_at(_position(scratch.v, m, top), scratch)
    return (1.0 - (row.own_score - score)) * inverse, score, dual


@inlined
def least_theta(most, slope, u_top):
    """Return a lower bound of θ where duals have none: the largest of them, -θ, is at most their sum."""
    return -min(most, u_top * slope / (1.0 + slope))


@inlined
def find_newton(d, m, upper, most, slope, u_top, dual, problem):
    """Find θ, from what the largest of the old duals suggests."""
    low = -u_top if upper < most else least_theta(most, slope, u_top)
    guess = -dual if low < -dual < 0.0 else low
    return threshold_newton(d, m, upper, most, slope, u_top, low, 0.0, guess)


def make_kernels_of_largest(
    name: str,
    loss_of: Any,
    bounds: Any,
    *,
    find_threshold: Any = find_newton,
    of_each: Curve = STRAIGHT,
    of_sum: Curve = STRAIGHT,
    has_two_bounds: bool = False,
) -> Kernels:
    """Make the kernels of a loss of the largest slacks.

    Parameters
    ----------
    name : str
        As for `make_kernels`.
    loss_of : inlined function
        ``loss_of(row, n, problem, scratch)`` is the loss of a row.
    bounds : inlined function
        ``bounds(C, problem)`` is U, Z.
    find_threshold : inlined function
        ``find_threshold(d, m, upper, most, slope, u_p, dual, problem)`` is θ of `m` entries d, which have
        room for a vector more; `dual` is the old one of p. Both bounds and `dual` are times 1 + ρ.
    of_each, of_sum : Curve
        What the dual objective loses by each dual, and by their sum. The second derivative divided by ‖x‖² is
        ρ of the first, and κ - 1 of the second: of several own classes, κ less 1 over their number.
    has_two_bounds : bool
        Whether U and Z may both bind.
    """
    curvature_of_each, curvature_of_sum = of_each.curvature, of_sum.curvature

    def threshold(row, n, u_p, score, dual, growth, upper, most, problem, scratch):
        """Find θ, if u_p is positive, else 0 or NaN; and the score and old dual that d is relative to."""
        m = n * LANES
        inverse, coupling = 1.0 / row.norm2, 1.0 / row.n_own
        if not u_p > 0.0:
            return -max(u_p, 0.0), score, dual
        slope = growth / (coupling + curvature_of_sum(row.C, problem) * inverse)
        theta = find_threshold(scratch.v, m, upper, most, slope, u_p, growth * dual, problem)
        if has_two_bounds:  # γ may be far below u_p: more digits are right relative to the u next to it
            p = _nearest(scratch.v, m, theta)
            theta -= scratch.v[p]
            score, dual = _numbers_at(p, scratch)
            top = _write_d(row, n, inverse, score, dual, np.inf, scratch)
            u_p = (1.0 - (row.own_score - score)) * inverse + (dual + coupling * row.old_sum)
            theta = threshold_newton(scratch.v, m, upper, most, slope, u_p, -u_p, max(top, -u_p), theta)
        return theta, score, dual

    threshold = inlined(threshold, name=f"{name}_threshold")

    def solve(row, n, problem, pairs, scratch):
        """Solve by Blondel et al. (2014), Algorithm 1.

        A class with b_j = 0 keeps it unless u_j > γ, and γ is not below the solution for some of the classes,
        among them all with b_j > 0. The loss needs those inside the margin, too.
        """
        inverse = 1.0 / row.norm2
        growth = 1.0 + curvature_of_each(row.C, problem) * inverse
        upper, most = bounds(row.C, problem)
        upper, most = growth * upper, growth * most
        loss = loss_of(row, n, problem, scratch)
        u, score, dual = write_d(row, n, inverse, scratch)
        u += dual + row.old_sum / row.n_own
        theta, score, dual = threshold(row, n, u, score, dual, growth, upper, most, problem, scratch)
        m = n * LANES
        clip_duals(scratch.v, m, theta, upper)
        if growth != 1.0:
            for p in range(m):
                scratch.v[p] /= growth
        if has_two_bounds:
            total = 0.0
            for p in range(m):
                total += scratch.v[p]
            if total > most:  # by rounding
                for p in range(m):
                    scratch.v[p] *= most / total
        limit = score + (dual + theta) * row.norm2  # where u_j is γ, if b_j = 0
        return loss, min(limit, row.own_score - 1.0)

    def measure(row, n, problem, pairs, scratch):
        return loss_of(row, n, problem, scratch)

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        measure=inlined(measure, name=f"{name}_measure"),
        terms=of_each.terms(name),
        sum_term=of_sum.sum_term(name),
    )
