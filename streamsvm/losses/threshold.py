"""Block problem of the hinge-like losses, which reduces to an equation in one scalar γ.

    min ½(1 + ρ)‖b‖² + ½κ(Σb)² - uᵀb    over 0 <= b_j <= U, Σb <= Z

has the solution b_j = clip(v_j - γ, 0, U), for v = u / (1 + ρ) and the γ for which

    S(γ) = Σ_j clip(v_j - γ, 0, U) = min(slope · γ, Z),    slope = (1 + ρ) / κ.

      clip(v_j - γ, 0, U)
    U |          ______     S falls and is linear between the breakpoints v_j and v_j - U. For κ > 0 the
      |         /           right side rises. For κ = -1/k it falls too, but faster, because S has at
    0 |________/_______ v   most k - 1 terms. So there is exactly one solution.
              γ   γ+U

If all v_j are large and nearly equal, v_j - γ is mostly rounding error. Callers then pass v_j - v_top as `v`
and v_top as `shift`, and get γ - v_top.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import (
    above,
    count_bits,
    lanes,
    load,
    maximum,
    minimum,
    not_below,
    store,
    sum_lanes,
    zeros,
)

UNBOUNDED = 1e300  # for U and Z; finite, so that products with 0 are 0


@inlined
def threshold_newton(v, m, upper, max_sum, slope, shift, low, high, guess):
    """Find γ with Σ clip(v_j - γ, 0, upper) = min(slope (shift + γ), max_sum), between `low` and `high`.

    Both sides are piecewise linear, so Newton's method finds the exact solution without sorting. Each step
    solves the linear piece at γ. A step that does not end strictly between the nearest points already
    evaluated is replaced by bisection, because γ could otherwise alternate between two kinks. `v` is float64,
    and has room for another vector after ``v[:m]``, which is overwritten. `guess` may be any number.
    """
    store(v, m, zeros() - np.inf)
    floor, ceiling = -np.inf, np.inf  # nearest points evaluated on either side of the solution
    gamma = min(max(guess, low), high)
    last_upper, last_free, last_capped = -1, -1, False
    for _ in range(200):  # bisection needs fewer, unless the bracket spans many orders of magnitude
        n_over, n_upper = 0, 0
        sums, j = zeros(), 0
        while j < m:
            excess = load(v, j) - gamma
            n_over += count_bits(above(excess, 0.0))
            n_upper += count_bits(not_below(excess, upper))
            sums = sums + minimum(maximum(excess, 0.0), upper)
            j += lanes(v)
        total = sum_lanes(sums)
        n_free = n_over - n_upper
        right_side = slope * (shift + gamma)
        capped = right_side > max_sum
        if capped:
            difference, fall = total - max_sum, np.float64(n_free)
        else:
            difference, fall = total - right_side, n_free + slope
        solution = gamma + difference / fall if fall != 0.0 else gamma + np.inf * difference
        if fall == 0.0 and abs(difference) <= 1e-15 * max_sum:
            return gamma  # up to rounding, entries at their bounds add up to `max_sum`
        if n_upper == last_upper and n_free == last_free and capped == last_capped:
            return solution  # this step only removed rounding error
        if solution == gamma or difference == 0.0:
            return gamma
        # Because S never rises, `total` bounds S at the solution, and so it also bounds the right side there.
        reached = min(max(total / slope - shift, low), high)
        if (difference > 0.0) == (slope > 0.0):
            floor, low = gamma, max(low, gamma)
        else:
            ceiling, high = gamma, min(high, gamma)
        if difference > 0.0:
            high = high if total >= max_sum else min(high, reached)
        else:
            low = max(low, reached)
        if floor < solution < ceiling:
            gamma = solution
            last_upper, last_free, last_capped = n_upper, n_free, capped
        else:
            middle = 0.5 * (low + high)
            if not floor < middle < ceiling:
                return middle  # floor and ceiling are adjacent floating-point numbers
            gamma = middle
            last_upper, last_free = -1, -1
    return gamma
