"""The block problem of the hinge-like losses, which one scalar solves.

    min ½(1 + ρ)‖b‖² + ½κ(Σb)² - uᵀb    over 0 <= b_j <= U, Σb <= Z

is solved by b_j = clip(v_j - γ, 0, U), for v = u / (1 + ρ) and the γ at which

    S(γ) = Σ_j clip(v_j - γ, 0, U) = min(slope · γ, Z),    slope = (1 + ρ) / κ.

      clip(v_j - γ, 0, U)
    U |          ______     S falls and is linear between the breakpoints v_j and v_j - U. For κ > 0 the
      |         /           right side rises. For κ = -1/k it falls too, but faster: S has at most k - 1
    0 |________/_______ v   terms. So there is one crossing.
              γ   γ+U

Where all v_j are large and nearly equal, v_j - γ would be mostly rounding error. So both sides may be
shifted: the solvers then take v_j - v_top, and find γ - v_top.
"""

from __future__ import annotations

import numpy as np

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
from streamsvm.kernels.sorting import sorted_falling

UNBOUNDED = 1e300  # for U and Z: finite, so that products with 0 are 0


@inlined
def threshold_newton(v, m, upper, most, slope, shift, low, high, guess):
    """γ with Σ clip(v_j - γ, 0, upper) = min(slope (shift + γ), most), by Newton's method inside a bracket.

    Exact, without a sort. `v` is float64 and has room for a vector from ``v[m]``, which is overwritten. The
    solution lies between `low` and `high`; `guess` may be any number. Each sweep evaluates both sides at γ
    and solves the linear piece that contains γ. The solution is reached when the solution of a piece lies in
    that same piece. A step that does not land strictly between points already evaluated is replaced by
    bisection: otherwise two kinks could send γ back and forth between the same two points.
    """
    store(v, m, splat(-np.inf))
    zero, bound = splat(0.0), splat(np.float64(upper))
    floor, ceiling = -np.inf, np.inf  # the nearest points evaluated on either side of the solution
    gamma = min(max(guess, low), high)
    last_upper, last_free, last_capped = -1, -1, False
    for _ in range(200):  # bisection alone needs fewer, if the bracket is not of many orders of magnitude
        n_over, n_upper = 0, 0
        sums, threshold = zero, splat(gamma)
        j = 0
        while j < m:
            excess = subtract(load(v, j), threshold)
            n_over += count_bits(above(excess, zero))
            n_upper += count_bits(not_below(excess, bound))
            sums = add(sums, minimum(maximum(excess, zero), bound))
            j += lanes(v)
        total = sum_lanes(sums)
        n_free = n_over - n_upper
        wanted = slope * (shift + gamma)
        capped = wanted > most
        if capped:
            difference, fall = total - most, np.float64(n_free)
        else:
            difference, fall = total - wanted, n_free + slope
        solution = gamma + difference / fall if fall != 0.0 else gamma + np.inf * difference
        if fall == 0.0 and abs(difference) <= 1e-15 * most:
            return gamma  # all of the bound is used, up to rounding, by entries at theirs
        if n_upper == last_upper and n_free == last_free and capped == last_capped:
            return solution  # this step only removed rounding error
        if solution == gamma or difference == 0.0:
            return gamma
        # S at the solution is at most, or at least, what it is here: so is the right side.
        reached = min(max(total / slope - shift, low), high)
        if (difference > 0.0) == (slope > 0.0):
            floor, low = gamma, max(low, gamma)
        else:
            ceiling, high = gamma, min(high, gamma)
        if difference > 0.0:
            high = high if total >= most else min(high, reached)
        else:
            low = max(low, reached)
        if floor < solution < ceiling:
            gamma = solution
            last_upper, last_free, last_capped = n_upper, n_free, capped
        else:
            middle = 0.5 * (low + high)
            if not floor < middle < ceiling:
                return middle  # floor and ceiling are neighbours in floating point
            gamma = middle
            last_upper, last_free = -1, -1
    return gamma


@inlined
def threshold(v, m, upper, slope, guess):
    """γ >= 0 with Σ clip(v_j - γ, 0, upper) = slope γ, for a positive slope.

    As `threshold_newton`. Most rows have one candidate or none, for which there is nothing to search.
    """
    if m == 0:
        return 0.0
    if m == 1:
        gamma = v[0] / (1.0 + slope)
        if v[0] <= 0.0:
            gamma = 0.0
        elif v[0] - gamma > upper:
            gamma = upper / slope
        return gamma
    return threshold_newton(v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m / slope, guess)


@inlined
def threshold_of_each(u, curvatures, uppers, m, guess):
    """γ >= 0 with Σ clip((u_j - γ) / curvature_j, 0, upper_j) = γ, by Newton's method inside a bracket.

    As `threshold_newton`, where each of the `m` entries has a curvature, at least 1, and an upper bound of
    its own: none of them negative.
    """
    low, high = 0.0, 0.0
    for r in range(m):
        high = max(high, u[r])  # where the left side is 0
    gamma = min(max(guess, low), high)
    last_over, last_upper = -1, -1
    for _ in range(200):
        n_over, n_upper, total, fall = 0, 0, 0.0, 1.0
        for r in range(m):
            excess, most = u[r] - gamma, curvatures[r] * uppers[r]
            if not excess <= 0.0:  # NaN too, so that damage stays visible
                n_over += 1
                if excess >= most:
                    n_upper += 1
                    total += uppers[r]
                else:
                    total += excess / curvatures[r]
                    fall += 1.0 / curvatures[r]
        difference = total - gamma
        solution = gamma + difference / fall
        if n_over == last_over and n_upper == last_upper:
            return solution  # of the piece that it lies in: this step only removed rounding error
        if solution == gamma:
            return gamma
        if difference > 0.0:
            low = gamma
        else:
            high = gamma
        last_over, last_upper = n_over, n_upper
        if not low < solution < high:
            solution, last_over = 0.5 * (low + high), -1
            if not low < solution < high:
                return solution  # low and high are neighbours in floating point
        gamma = solution
    return gamma


@allocating
def threshold_sorted(v, m, upper, slope):
    """γ with Σ clip(v_j - γ, 0, upper) = slope γ, by sorting: Wang & Scott (2021), Algorithm 2.

    Parameters
    ----------
    v : ndarray of float64, shape (m + 8,) or larger
        Linear term in the first `m` entries, of which those <= 0 are inactive; the eight entries after them
        are overwritten.
    upper : float
        Upper bound of each b_j.
    slope : float
        1 in the paper; positive.

    Notes
    -----
    The sweep goes down through the breakpoints v_j (b_j leaves 0) and v_j - upper (b_j reaches its bound),
    the latter first among equals. The candidate γ of an interval solves the problem as soon as it is not
    below the interval's lower end; the other conditions of Subroutine 5 hold by the order of the sweep.
    Testing only this one cannot miss the solution through rounding.
    """
    top, n_positive = np.empty(m), 0
    for r in range(m):
        if v[r] > 0:
            top[n_positive] = v[r]
            n_positive += 1
    top = sorted_falling(top, n_positive)
    n_upper = 0  # at the bound: top[:n_upper]
    n_free = 0  # inside (0, upper): the n_free entries that follow
    total = 0.0  # their sum
    while True:
        enter = n_upper + n_free
        next_enter = np.float64(top[enter]) if enter < n_positive else 0.0
        next_leave = top[n_upper] - upper if n_free > 0 else 0.0
        breakpoint = max(next_enter, next_leave, 0.0)
        if (upper * n_upper + total) / (n_free + slope) >= breakpoint:
            break
        if n_free > 0 and next_leave >= next_enter:
            total -= top[n_upper]
            n_upper += 1
            n_free -= 1
        else:
            total += top[enter]
            n_free += 1
    # Large terms may have cancelled in the running sum: usually one Newton step removes the rounding error.
    gamma = (upper * n_upper + total) / (n_free + slope)
    return threshold_newton(v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m / slope, gamma)
