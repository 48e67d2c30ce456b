"""Losses of the largest slacks: what Crammer-Singer and top-m share.

With the slacks z_j = 1 - (w_y - w_j)ᵀx of the wrong classes j, and b_j in [0, U], Σ b <= Z, the block problem
of a row is

    min ½ bᵀ(I + κ11ᵀ) b - uᵀb,    u_j = z_j / ‖x‖² + b_j + Σb,

and its solution b_j = clip(u_j - γ, 0, U) with the one scalar γ for which Σ_j b_j = min(γ/κ, Z).

If C‖x‖² is small, all u_j are near 1/‖x‖², which is many times C, and u_j - γ would be mostly rounding error.
So with p, the candidate of the largest u, the solvers work on

    d_j = u_j - u_p = (b_j - b_p) + (s_j - s_p) / ‖x‖² <= 0

and find θ = γ - u_p: then b_j = clip(d_j - θ, 0, U), and Σ b = min((u_p + θ)/κ, Z).
If C‖x‖² is large, C enters nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.kernels.candidates import (
    add_candidate,
    add_candidates_above,
    best_wrong_class,
    is_candidate,
)
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels, no_sum_term
from streamsvm.kernels.jit import inlined
from streamsvm.losses.simplex import BISECTION, FRANK_WOLFE, least_theta
from streamsvm.losses.threshold import threshold_newton


@inlined
def _top(y, inverse, m, scratch):
    """The position of the largest u of the `m` >= 1 candidates."""
    scores, ids = scratch.scores, scratch.ids
    own, top, largest = np.float64(scores[y]), 0, -np.inf
    for r in range(m):
        d = scratch.before[r] + (scores[ids[r]] - own) * inverse
        if d > largest:
            top, largest = r, d
    return top


@inlined
def _write_d(y, inverse, p, m, coupled, largest, scratch):
    """Write d relative to candidate `p`, at most `largest` in spite of rounding; return u_p.

    `coupled` is what the other duals add to each u.
    """
    scores, ids, before = scratch.scores, scratch.ids, scratch.before
    score, dual = np.float64(scores[ids[p]]), before[p]
    for r in range(m):
        # NaN stays visible.
        scratch.v[r] = min((before[r] - dual) + (scores[ids[r]] - score) * inverse, largest)
    return (1.0 - (np.float64(scores[y]) - score)) * inverse + (dual + coupled)


@inlined
def _nearest(d, m, theta):
    """The position of the entry next to `theta`."""
    nearest, distance = 0, np.inf
    for r in range(m):
        if abs(d[r] - theta) < distance:
            nearest, distance = r, abs(d[r] - theta)
    return nearest


@inlined
def _largest(d, m):
    largest = -np.inf
    for r in range(m):
        largest = max(largest, d[r])
    return largest


@inlined
def find_newton(d, m, upper, most, slope, u_top, dual, problem):
    """θ, from what the largest of the old duals suggests."""
    low = -u_top if upper < most else least_theta(most, slope, u_top)
    guess = -dual if low < -dual < 0.0 else low
    return threshold_newton(d, m, upper, most, slope, u_top, low, 0.0, guess)


@inlined
def _no_curvature(C):
    return 0.0


@inlined
def _no_improvement(y, norm2, C, problem, m, old_sum, scratch):
    pass


def make_kernels_of_largest(
    name: str,
    loss_of: Any,
    bounds: Any,
    find_threshold: Any,
    *,
    curvature: Any = _no_curvature,
    sum_term: Any = no_sum_term,
    improve: Any = _no_improvement,
    has_two_bounds: bool = False,
) -> Kernels:
    """The kernels of a loss of the largest slacks.

    Parameters
    ----------
    name : str
        As for `make_kernels`, and so is `sum_term`.
    loss_of : inlined function
        ``loss_of(y, best, problem, scratch, m)`` is the loss of a row with `m` candidates, and whether a
        wrong class beats class `y`; `best` is the one with the largest score, or `y` if there is none.
    bounds : inlined function
        ``bounds(C, problem)`` is U, Z.
    find_threshold : inlined function
        ``find_threshold(d, m, upper, most, slope, u_p, dual, problem)`` is θ; `dual` is the old one of p.
    curvature : inlined function
        ``curvature(C)`` divided by ‖x‖² is κ - 1.
    improve : inlined function
        ``improve(y, norm2, C, problem, m, old_sum, scratch)`` writes new duals, for solvers from `BISECTION`
        on.
    has_two_bounds : bool
        Whether U and Z may both bind. Then `loss_of` needs all candidates inside the margin.
    """

    def threshold(y, norm2, C, problem, own, m, old_sum, scratch):
        """Write d of the `m` candidates, and solve their block problem.

        Returns θ, and the score above which a class that is not a candidate has u_j > γ.
        """
        inverse = 1.0 / norm2
        if m == 0:  # only one class is known yet
            return 0.0, np.inf
        coupling = 1.0 if own is None else 1.0 / (own.end - own.begin)
        p = _top(y, inverse, m, scratch)
        u_p = _write_d(y, inverse, p, m, coupling * old_sum, 0.0, scratch)
        theta: Any = -max(u_p, 0.0)  # 0 or NaN, if u_p is not positive
        if u_p > 0.0:
            upper, most = bounds(C, problem)
            slope = 1.0 / (coupling + curvature(C) * inverse)
            theta = find_threshold(scratch.v, m, upper, most, slope, u_p, scratch.before[p], problem)
            if has_two_bounds:  # γ may be far below u_p: more digits are right relative to the u next to it
                p = _nearest(scratch.v, m, theta)
                theta -= scratch.v[p]
                u_p = _write_d(y, inverse, p, m, coupling * old_sum, np.inf, scratch)
                high = max(_largest(scratch.v, m), -u_p)
                theta = threshold_newton(scratch.v, m, upper, most, slope, u_p, -u_p, high, theta)
        return theta, scratch.scores[scratch.ids[p]] + (scratch.before[p] + theta) / inverse

    threshold = inlined(threshold, name=f"{name}_threshold")

    def clip(C, problem, m, theta, scratch):
        """Make the new duals of d and θ."""
        upper, most = bounds(C, problem)
        clip_duals(scratch.v, m, theta, upper)
        if has_two_bounds:
            total = 0.0
            for r in range(m):
                total += scratch.v[r]
            if total > most:  # by rounding
                for r in range(m):
                    scratch.v[r] *= most / total

    clip = inlined(clip, name=f"{name}_clip")

    def solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
        """Blondel et al. (2014), Algorithm 1, without the classes whose dual stays 0.

        A class with b_j = 0 keeps it unless u_j > γ, and γ is not below the solution γ' for some of the
        classes alone: more classes raise Σ_j clip(u_j - γ, 0, U). So the candidates are the classes with b_j
        > 0 and the one with the largest score, and then those with a score above the point at which u_j = γ'.
        The loss of several classes needs all that are inside the margin, too.
        """
        scores, k, m, theta = scratch.scores, problem.n_classes, n_old, 0.0
        best = best_wrong_class(y, k, scores)
        if problem.solver >= BISECTION:
            limit = scores[y] - 1.0 if problem.solver == FRANK_WOLFE else -np.inf  # the others may move all
            m, n_vectors = add_candidates_above(limit, problem, scratch, m, n_vectors)
            loss, is_wrong = loss_of(y, best, problem, scratch, m)
            improve(y, norm2, C, problem, m, old_sum, scratch)
            return m, n_vectors, loss, is_wrong
        if not is_candidate(best, scratch):
            n_vectors = add_candidate(best, 0.0, scratch, m, n_vectors)
            m += 1
        n_first = m
        for attempt in range(2):
            theta, limit = threshold(y, norm2, C, problem, own, m, old_sum, scratch)
            if has_two_bounds:
                limit = min(limit, scores[y] - 1.0)
            if attempt == 0:
                m, n_vectors = add_candidates_above(limit, problem, scratch, n_first, n_vectors)
            if m == n_first:
                break
        loss, is_wrong = loss_of(y, best, problem, scratch, m)
        clip(C, problem, m, theta, scratch)
        return m, n_vectors, loss, is_wrong

    def solve_restricted(y, norm2, C, problem, pairs, own, m, old_sum, scratch):
        if problem.solver < BISECTION:
            theta, _ = threshold(y, norm2, C, problem, own, m, old_sum, scratch)
            clip(C, problem, m, theta, scratch)
        else:
            improve(y, norm2, C, problem, m, old_sum, scratch)

    def add_losses(y, problem, pairs, own, n_vectors, scratch):
        m, best = 0, best_wrong_class(y, problem.n_classes, scratch.scores)
        if has_two_bounds:
            limit = scratch.scores[y] - 1.0
            m, n_vectors = add_candidates_above(limit, problem, scratch, 0, n_vectors)
        loss, is_wrong = loss_of(y, best, problem, scratch, m)
        return n_vectors, loss, is_wrong

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        solve_restricted=inlined(solve_restricted, name=f"{name}_solve_restricted"),
        add_losses=inlined(add_losses, name=f"{name}_add_losses"),
        sum_term=sum_term,
    )
