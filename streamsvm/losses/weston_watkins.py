"""Weston-Watkins: every wrong class inside the margin adds to the loss.

    min ½‖w‖² + C Σ_i Σ_{j≠y_i} max(0, 1 - M (w_y - w_j)ᵀx_i)

With M = 1 the formulation of Wang & Scott (2021), with M = 1/2 that of Shark (Igel et al. 2008).
The block problem of row i over b in [0, C]^{k-1},

    min ½ bᵀ(I + 11ᵀ) b - vᵀb,    v_j = (1 - M (s_y - s_j)) / (M²‖x‖²) + b_j + Σb,

is solved by b_j = clip(v_j - γ, 0, C) with the one scalar γ = Σ_j clip(v_j - γ, 0, C) >= 0.

      clip(v_j - γ, 0, C)
    C |          ______     Both solvers look for the crossing of the falling, piecewise linear
      |         /           Σ_j clip(v_j - γ, 0, C) with the rising γ. An entry v_j <= 0 never
    0 |________/_______ v   contributes.
              γ   γ+C
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import add_candidates_above, beats
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import make_kernels
from streamsvm.kernels.jit import allocating, inlined
from streamsvm.kernels.simd import (
    above,
    add,
    count_bits,
    lanes,
    load,
    maximum,
    minimum,
    not_below,
    splat,
    store,
    subtract,
    sum_lanes,
)

_NEWTON, _SORTED = range(2)


@inlined
def gamma_newton(v, m, C, gamma):
    """γ for ``v[:m]`` by Newton's method inside a bracket, from the guess `gamma`: exact, without a sort.

    `v` is float64 and has room for a vector from ``v[m]``, which is overwritten. Each sweep evaluates
    S(γ) = Σ clip(v_j - γ, 0, C) and solves the linear piece that contains γ. The solution is reached when
    the solution of a piece lies in that same piece. S falls and γ rises, so γ and S(γ) always enclose the
    crossing. A step that does not land strictly between points already evaluated is replaced by bisection:
    otherwise two kinks could send γ back and forth between the same two points.
    """
    store(v, m, splat(-np.inf))
    zero, upper = splat(0.0), splat(np.float64(C))
    low, high = 0.0, C * m  # enclose the solution
    floor, ceiling = -1.0, 2.0 * high + 1.0  # the nearest points evaluated on either side of it
    gamma = min(max(gamma, low), high)
    last_upper, last_free = -1, -1
    for _ in range(200):  # bisection alone needs fewer
        n_over, n_upper = 0, 0
        sums = zero
        threshold = splat(gamma)
        j = 0
        while j < m:
            excess = subtract(load(v, j), threshold)
            n_over += count_bits(above(excess, zero))
            n_upper += count_bits(not_below(excess, upper))
            sums = add(sums, minimum(maximum(excess, zero), upper))
            j += lanes(v)
        total = sum_lanes(sums)
        n_free = n_over - n_upper
        solution = gamma + (total - gamma) / (n_free + 1)
        if n_upper == last_upper and n_free == last_free:
            return solution
        if total > gamma:
            floor = gamma
            low, high = max(low, gamma), min(high, total)
        else:
            ceiling = gamma
            low, high = max(low, total), min(high, gamma)
        if solution == gamma:
            return solution
        if floor < solution < ceiling:
            gamma = solution
            last_upper, last_free = n_upper, n_free
        else:
            middle = 0.5 * (low + high)
            if not floor < middle < ceiling:
                return middle  # floor and ceiling are neighbours in floating point
            gamma = middle
            last_upper, last_free = -1, -1
    return gamma


@allocating
def gamma_sorted(v, m, C):
    """γ by sorting and sweeping the breakpoints: Wang & Scott (2021), Algorithm 2.

    Parameters
    ----------
    v : ndarray of float64, shape (m + 8,) or larger
        Linear term in the first `m` entries, of which those <= 0 are inactive; the eight entries after them
        are overwritten.
    C : float
        Upper bound of each b_j.

    Notes
    -----
    The sweep goes down through the breakpoints v_j (b_j leaves 0) and v_j - C (b_j reaches C), the
    latter first among equals. The candidate γ of an interval solves the problem as soon as it is
    not below the interval's lower end; the other conditions of Subroutine 5 hold by the order of
    the sweep. Testing only this one cannot miss the solution through rounding.
    """
    top = np.sort(v[:m][v[:m] > 0])[::-1]
    n_positive = len(top)
    n_upper = 0  # at C: top[:n_upper]
    n_free = 0  # inside (0, C): the n_free entries that follow
    total = 0.0  # their sum
    while True:
        enter = n_upper + n_free
        next_enter = np.float64(top[enter]) if enter < n_positive else 0.0
        next_leave = top[n_upper] - C if n_free > 0 else 0.0
        breakpoint = max(next_enter, next_leave, 0.0)
        if (C * n_upper + total) / (n_free + 1) >= breakpoint:
            break
        if n_free > 0 and next_leave >= next_enter:
            total -= top[n_upper]
            n_upper += 1
            n_free -= 1
        else:
            total += top[enter]
            n_free += 1
    # Large terms may have cancelled in the running sum: usually one Newton step removes the rounding error.
    return gamma_newton(v, m, C, (C * n_upper + total) / (n_free + 1))


@inlined
def _add_terms(y, inverse, margin, old_sum, scratch, begin, end):
    """Write v of the candidates `begin` to `end`; return their loss, and whether one beats class `y`."""
    scores, ids, before, v = scratch.scores, scratch.ids, scratch.before, scratch.v
    own = np.float64(scores[y])
    loss, is_wrong = 0.0, False
    for r in range(begin, end):
        slack = 1.0 - margin * (own - scores[ids[r]])
        v[r] = slack * inverse + (before[r] + old_sum)
        loss += max(slack, 0.0)
        is_wrong |= beats(ids[r], y, scores)
    return loss, is_wrong


@inlined
def _solve(y, norm2, C, problem, n_old, old_sum, n_vectors, scratch):
    """Wang & Scott (2021), Algorithm 1, without the classes whose dual stays 0.

    A class with b_j = 0 keeps it unless v_j > γ, and γ is not below the solution γ' for the classes with
    b_j > 0 alone. So the candidates are the classes with b_j > 0, and those with a score above the threshold
    at which v_j = min(γ', Σb): this bound admits every class with positive loss.
    """
    margin = problem.margin
    inverse = 1.0 / (margin * margin * norm2)
    loss, is_wrong = _add_terms(y, inverse, margin, old_sum, scratch, 0, n_old)
    gamma, threshold = 0.0, -np.inf
    if problem.solver == _NEWTON:
        gamma = gamma_newton(scratch.v, n_old, C, old_sum)
        fall = min(gamma - old_sum, 0.0)
        threshold = scratch.scores[y] + (fall / inverse - 1.0) / margin
    m, n_vectors = add_candidates_above(threshold, problem.n_classes, scratch, n_old, n_vectors)
    more_loss, more_wrong = _add_terms(y, inverse, margin, old_sum, scratch, n_old, m)
    if problem.solver == _SORTED:
        gamma = gamma_sorted(scratch.v, m, C)
    elif m > n_old:
        gamma = gamma_newton(scratch.v, m, C, gamma)
    clip_duals(scratch.v, m, gamma, C)
    return m, n_vectors, loss + more_loss, is_wrong | more_wrong


@inlined
def _solve_restricted(y, norm2, C, problem, m, old_sum, scratch):
    _add_terms(y, 1.0 / (problem.margin * problem.margin * norm2), problem.margin, old_sum, scratch, 0, m)
    clip_duals(scratch.v, m, gamma_newton(scratch.v, m, C, old_sum), C)


@inlined
def _add_losses(y, problem, n_vectors, scratch):
    limit = scratch.scores[y] - 1.0 / problem.margin
    m, n_vectors = add_candidates_above(limit, problem.n_classes, scratch, 0, n_vectors)
    loss, is_wrong = _add_terms(y, 1.0, problem.margin, 0.0, scratch, 0, m)
    return n_vectors, loss, is_wrong


KERNELS = make_kernels("ww", solve=_solve, solve_restricted=_solve_restricted, add_losses=_add_losses)
