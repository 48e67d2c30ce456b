"""Published block solvers, for comparison. The keys of `KERNELS` are pairs of a loss and a solver.

Weston-Watkins can be solved by sorting (Wang & Scott 2021, Algorithm 2) or greedily (Shark, Igel et al.
2008), and Crammer-Singer by sorting (Blondel et al. 2014, Algorithm 2; see `largest_slacks` for d and θ).
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.frame import make_kernels
from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.kernels.simd import LANES, LOG_LANES
from streamsvm.losses import crammer_singer, weston_watkins
from streamsvm.losses.hinges import HINGE, SMOOTH_HINGE, SQUARED_HINGE
from streamsvm.losses.largest_slacks import min_theta
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton

_STEPS = 10  # maximum number of steps of Shark's solver per class
_TOLERANCE = 1e-3  # Shark's solver stops when all violations are smaller


@allocating
def find_by_sorting(v, m, upper, slope, guess):
    """Find γ with Σ clip(v_j - γ, 0, upper) = slope γ, by sorting: Wang & Scott (2021), Algorithm 2.

    `v` is float64 and has room for m + 8 entries, the last eight of which are overwritten. Entries <= 0 are
    inactive. `slope` is positive, and 1 in the paper. `guess` is unused.

    As γ decreases, b_j becomes positive at the breakpoint v_j and reaches its bound at v_j - upper. The
    intervals between breakpoints are visited in descending order; of equal breakpoints, v_j - upper comes
    first. Each interval yields a candidate for γ, which is accepted if it is not below the interval's lower
    end. The upper end is not tested, because rounding could then cause all candidates to be rejected.
    """
    descending = np.sort(v[:m])[::-1]
    n_positive = np.sum(descending > 0)
    n_upper = 0  # entries at the bound: descending[:n_upper]
    n_free = 0  # entries inside (0, upper): the next n_free
    total = 0.0
    while True:
        enter = n_upper + n_free
        next_enter = np.float64(descending[enter]) if enter < n_positive else 0.0
        next_leave = descending[n_upper] - upper if n_free > 0 else 0.0
        breakpoint = max(next_enter, next_leave, 0.0)
        if (upper * n_upper + total) / (n_free + slope) >= breakpoint:
            break
        if n_free > 0 and (enter == n_positive or next_leave >= next_enter):
            total -= descending[n_upper]
            n_upper += 1
            n_free -= 1
        elif enter < n_positive:
            total += descending[enter]
            n_free += 1
        else:
            break  # only with NaN
    # Large terms may have cancelled in the sum. Usually, one Newton step removes this rounding error.
    gamma = (upper * n_upper + total) / (n_free + slope)
    return threshold_newton(v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m / slope, gamma)


@allocating
def _greedy_coordinates(row, n, problem, scratch):
    """Repeatedly change the dual whose change gains the most; write the new duals, and return the loss.

    The dual objective of the row has the gradient g_j = 1 - M (s_y - s_j) and the Hessian -H (I + 11ᵀ), where
    H = M²‖x‖². A step μ in dual j gains μ (g_j - Hμ). Stop when all violations are below `_TOLERANCE`, or
    after `_STEPS` steps per class.
    """
    H, C = problem.margin * problem.margin * row.norm2, row.C
    v, g, has_dual = scratch.v, np.zeros(n * LANES), np.zeros(n * LANES, np.bool_)
    loss, m = 0.0, 0
    for p in range(n * LANES):
        c = scratch.vectors[p >> LOG_LANES]
        c += p & (LANES - 1)
        has_dual[p], v[p] = scratch.hidden[c] == 0.0, scratch.old[c]
        if has_dual[p]:
            g[p] = 1.0 - problem.margin * (row.own_score - np.float64(scratch.scores[c]))
            loss += max(g[p], 0.0)
            m += 1
    for _ in range(_STEPS * m):
        best, step, max_gain, violation = -1, 0.0, 0.0, 0.0
        for p in range(len(g)):
            if (g[p] > 0.0 and v[p] < C) or (g[p] < 0.0 and v[p] > 0.0):
                violation = max(violation, abs(g[p]))
            mu = min(max(v[p] + 0.5 * g[p] / H, 0.0), C) - v[p]
            gain = mu * (g[p] - H * mu)
            if gain > max_gain:
                best, step, max_gain = p, mu, gain
        if best < 0 or violation < _TOLERANCE:
            break
        v[best] = min(max(v[best] + step, 0.0), C)
        for p in range(len(g)):
            if has_dual[p]:
                g[p] -= H * step
        g[best] -= H * step
    return loss


@inlined
def _solve(row, n, problem, pairs, scratch):
    return _greedy_coordinates(row, n, problem, scratch), -np.inf


@kernel
def polished(d, m, max_sum, slope, u_top, theta):
    """Return θ without the rounding error of a long sum, usually after one Newton step."""
    low = min_theta(max_sum, slope, u_top)
    return threshold_newton(d, m, UNBOUNDED, max_sum, slope, u_top, low, 0.0, theta)


@allocating
def threshold_sorted(d, m, max_sum, slope, u_top):
    """Find θ by sorting: Blondel et al. (2014), Algorithm 2, the projection onto a simplex.

    The first `m` >= 1 entries of `d` are u_j minus the largest u, which is `u_top` > 0; the next eight are
    overwritten. The sum of the duals is at most `max_sum` > 0. `slope` is 1 in the paper.

    The paper includes class y in the projection. Without it, Σb = slope (u_top + θ), which loses no digits.
    If this sum exceeds `max_sum`, b is the projection of d onto the simplex of the wrong classes.
    """
    descending = np.sort(d[:m])[::-1]
    total, n_free = 0.0, 0  # sum and number of the entries with b_j > 0
    theta = -u_top
    while n_free < m and descending[n_free] > theta:
        total += descending[n_free]
        n_free += 1
        theta = (total - slope * u_top) / (n_free + slope)
    if slope * (u_top + theta) > max_sum:
        total, n_free = 0.0, 0
        theta = -max_sum
        while n_free < m and descending[n_free] > theta:
            total += descending[n_free]
            n_free += 1
            theta = (total - max_sum) / n_free
    return polished(d, m, max_sum, slope, u_top, theta)


@inlined
def _find_sorted(d, m, upper, max_sum, slope, u_top, dual, problem):
    return threshold_sorted(d, m, max_sum, slope, u_top)


KERNELS = {
    ("ww", "sorted"): weston_watkins.make("ww_sorted", HINGE, find_by_sorting),
    ("ww2", "sorted"): weston_watkins.make("ww2_sorted", SQUARED_HINGE, find_by_sorting),
    ("wws", "sorted"): weston_watkins.make("wws_sorted", SMOOTH_HINGE, find_by_sorting),
    ("ww", "shark"): make_kernels("ww_shark", solve=_solve, needs_all=True),
    ("cs", "sorted"): crammer_singer.make("cs_sorted", HINGE, _find_sorted),
    ("cs2", "sorted"): crammer_singer.make("cs2_sorted", SQUARED_HINGE, _find_sorted),
}
