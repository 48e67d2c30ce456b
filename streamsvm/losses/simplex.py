"""Block solvers of Crammer-Singer that the papers compare, over the simplex of all classes.

With the own class's b_y = C - Σ_{j≠y} b_j the block is a simplex {b >= 0, Σ b = C}, and the gradient of its
dual is g_j = 1 - (s_y - s_j) for the wrong classes, and g_y = 0. A step δ with sum 0 changes the dual by gᵀδ
- ½‖x‖²‖δ‖², so the exact solution is the projection of b + g/‖x‖² to the simplex.

`sorted` and `pivot` find it, `bisection` up to its tolerance. The others only improve on the old duals: their
results are feasible, and except for `oeg`, and `bisection` near the optimum, the dual never falls.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.kernels.random import GAMMA, mix
from streamsvm.kernels.sorting import sorted_falling
from streamsvm.losses.base import ON_SIMPLEX
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton

NEWTON, SORTED, PIVOT, BISECTION, SMO, FRANK_WOLFE, BCPL, OEG = range(len(ON_SIMPLEX))

_MOST_STEPS = 10  # of SMO, for each candidate
_LEAST_SHARE = 1e-12  # of C, for BCPL and OEG: from 0 they could not rise


# -- exact solvers, for d and θ as in `streamsvm.losses.largest_slacks` ----------------------------


@inlined
def least_theta(most, slope, u_top):
    """A lower bound of θ where duals have none: the largest of them, -θ, is at most their sum."""
    return -min(most, u_top * slope / (1.0 + slope))


@kernel
def _polished(d, m, most, slope, u_top, theta):
    """θ without the rounding error of a long sum: usually one Newton step."""
    low = least_theta(most, slope, u_top)
    return threshold_newton(d, m, UNBOUNDED, most, slope, u_top, low, 0.0, theta)


@allocating
def threshold_sorted(d, m, most, slope, u_top):
    """θ by sorting: Blondel et al. (2014), Algorithm 2, the projection to a simplex.

    The paper's simplex {b >= 0, Σ b = C} includes class y, which has the rest of C. Without it no digits are
    lost: Σ b = slope (u_top + θ), and only if that is more than C, b is the projection of d to the simplex of
    the wrong classes.

    Parameters
    ----------
    d : ndarray of float64, shape (m + 8,) or larger
        u_j minus the largest of them in the first `m` >= 1 entries; the eight entries after them are
        overwritten.
    most : float
        Upper bound of the sum, positive.
    slope : float
        1 in the paper.
    u_top : float
        The largest u_j, positive.
    """
    falling = sorted_falling(d, m)
    total, n_free = 0.0, 0  # of the entries with b_j > 0
    theta = -u_top
    while n_free < m and falling[n_free] > theta:
        total += falling[n_free]
        n_free += 1
        theta = (total - slope * u_top) / (n_free + slope)
    if slope * (u_top + theta) > most:
        total, n_free = 0.0, 0
        theta = -most
        while n_free < m and falling[n_free] > theta:
            total += falling[n_free]
            n_free += 1
            theta = (total - most) / n_free
    return _polished(d, m, most, slope, u_top, theta)


@allocating
def threshold_pivot(d, m, C, u_top):
    """θ by partitions around pivots: Duchi et al. (2008), Figure 2, in expected linear time.

    Arguments are those of `threshold_sorted`; the simplex includes class y, whose entry is C - u_top. Pivots
    are functions of the step alone, so that runs repeat.
    """
    u = np.empty(m + 1)
    for r in range(m):
        u[r] = d[r]
    u[m] = C - u_top
    begin, end, step = 0, m + 1, 0
    total, n_free = 0.0, 0  # of the entries known to be above θ
    while begin < end:
        step += 1
        split, part = partition(u, begin, end, step)
        if total + part - (n_free + split - begin) * u[begin] < C:
            total += part
            n_free += split - begin
            begin = split
        else:
            begin, end = begin + 1, split
    return _polished(d, m, C, 1.0, u_top, (total - C) / n_free)


@kernel
def partition(u, begin, end, step):
    """Move a pivot to ``u[begin]``, then the entries that are not smaller; return their end and their sum."""
    at = begin + np.int64(mix(np.uint64(step) * GAMMA) % np.uint64(end - begin))
    u[begin], u[at] = u[at], u[begin]
    part, split = u[begin], begin + 1
    for r in range(begin + 1, end):
        if u[r] >= u[begin]:
            u[split], u[r] = u[r], u[split]
            part += u[split]
            split += 1
    return split, part


@allocating
def threshold_published(solver, d, m, C, u_top):
    """θ by one of the published solvers."""
    if solver == PIVOT:
        return threshold_pivot(d, m, C, u_top)
    return threshold_sorted(d, m, C, 1.0, u_top)


# -- steps -----------------------------------------------------------------------------------------


@allocating
def improve_on_simplex(y, norm2, C, problem, m, old_sum, scratch):
    """Write new duals into ``scratch.v[:m]``, by the inexact solver ``problem.solver``."""
    b, g = np.empty(m + 1), np.empty(m + 1)  # the own class is the last
    for r in range(m):
        b[r] = scratch.before[r]
        g[r] = 1.0 - (np.float64(scratch.scores[y]) - scratch.scores[scratch.ids[r]])
    b[m], g[m] = max(C - old_sum, 0.0), 0.0
    if problem.solver == BISECTION:
        bisect(b, g, norm2, C, problem.solver_tol)
    elif problem.solver == SMO:
        move_pairs(b, g, norm2, problem.solver_tol)
    else:
        target = np.zeros(m + 1)
        if problem.solver == FRANK_WOLFE:
            target[largest(g)] = C
        else:
            tilt(b, g, C, problem.temperature, target)
        move_towards(b, g, target, norm2, problem.solver == OEG)
    for r in range(m):
        scratch.v[r] = b[r]


@kernel
def largest(g):
    """The position of the largest entry, the first of equals."""
    best = 0
    for r in range(1, len(g)):
        if g[r] > g[best]:
            best = r
    return best


@allocating
def bisect(b, g, norm2, C, tol):
    """Project b + g/‖x‖² to the simplex until |Σ b - C| <= tol C: Blondel et al. (2014), Algorithm 3.

    The paper's bracket [0, max u] fails if the solution is negative; [max u - C, max u] holds always. The
    result is scaled to the simplex, without which the dual would be wrong by `tol`.
    """
    u = np.empty(len(b))
    for r in range(len(b)):
        u[r] = b[r] + g[r] / norm2
    high = u[largest(u)]
    low = high - C
    middle, total = low, np.inf
    for _ in range(100):
        if total > C:
            low = middle
        else:
            high = middle
        middle = 0.5 * (low + high)
        total = 0.0
        for r in range(len(u)):
            total += max(u[r] - middle, 0.0)
        if abs(total - C) <= tol * C:
            break
    if total > 0.0:  # else C is below the rounding of u
        for r in range(len(b)):
            b[r] = max(u[r] - middle, 0.0) * (C / total)


@kernel
def move_pairs(b, g, norm2, tol):
    """Sequential minimal optimization: the pair of the largest violation, until that is below `tol`."""
    for _ in range(_MOST_STEPS * len(b)):
        up, down = largest(g), -1
        for r in range(len(b)):
            if b[r] > 0.0 and (down < 0 or g[r] < g[down]):
                down = r
        if down < 0 or not g[up] - g[down] >= tol:
            break
        step = min((g[up] - g[down]) / (2.0 * norm2), b[down])
        b[up] += step
        b[down] -= step
        g[up] -= norm2 * step
        g[down] += norm2 * step


@kernel
def tilt(b, g, C, temperature, target):
    """Write the point C s of the simplex with s_j ∝ b_j exp(g_j / τ): Mohapatra et al. (2016), equation 9.

    The paper begins inside the simplex, with a pass that makes all b_j equal. Here a row's first step takes
    them as equal in this formula only.
    """
    is_first = b[-1] >= C
    for r in range(len(b)):
        share = 1.0 if is_first else max(b[r] / C, _LEAST_SHARE)
        target[r] = np.log(share) + g[r] / temperature
    top, total = target[largest(target)], 0.0
    for r in range(len(b)):
        target[r] = np.exp(target[r] - top)
        total += target[r]
    for r in range(len(b)):
        target[r] *= C / total


@kernel
def move_towards(b, g, target, norm2, full):
    """Move b towards another point of the simplex: all the way if `full`, else as far as the dual rises.

    Mohapatra et al. (2016), equation 10, with the step clipped to [0, 1].
    """
    gain, length = 0.0, 0.0
    for r in range(len(b)):
        direction = target[r] - b[r]
        gain += g[r] * direction
        length += direction * direction
    step = 1.0
    if not full and not gain >= norm2 * length:
        step = gain / (norm2 * length) if gain > 0.0 else 0.0
    for r in range(len(b)):
        b[r] += step * (target[r] - b[r])
