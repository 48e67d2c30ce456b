"""Weston-Watkins: every wrong class that comes within the margin costs.

    min ½‖w‖² + C Σ_i Σ_{j≠y_i} max(0, 1 - M (w_y - w_j)ᵀx_i)

With M = 1 the formulation of Wang & Scott (2021), with M = 1/2 that of Shark (Igel et al. 2008).
The block problem of row i over b in [0, C]^{k-1},

    min ½ bᵀ(I + 11ᵀ) b - vᵀb,    v_j = (1 - M (s_y - s_j)) / (M²‖x‖²) + b_j + Σb,

is solved by b_j = clip(v_j - γ, 0, C) with the one scalar γ = Σ_j clip(v_j - γ, 0, C) >= 0.

      clip(v_j - γ, 0, C)
    C |          ______     Both solvers look for the crossing of the falling, piecewise linear
      |         /           Σ_j clip(v_j - γ, 0, C) with the rising γ. An entry v_j <= 0 never
    0 |________/_______ v   contributes, so the row's own class and the padding are entries 0.
              γ   γ+C
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels import DUAL_SUM, LOSS_SUM, has_room, kernel, load_duals, meet_row, settle_row

TITLE = "Weston-Watkins (Wang & Scott 2021)"
SOLVERS = ("newton", "sorted")
MARGINS = (1.0, 0.5)


@kernel
def gamma_newton(v, C, gamma):
    """γ by Newton's method inside a bracket, from the guess `gamma`: exact, without a sort.

    Each sweep evaluates S(γ) = Σ clip(v_j - γ, 0, C) and solves the linear piece that γ lies in.
    The solution is reached when a piece's solution lies in that same piece. S falls and γ rises,
    so γ and S(γ) always enclose the crossing. A step that does not land strictly between points
    already seen is replaced by bisection: two kinks could exchange the same two points for ever.
    """
    low, high = 0.0, C * len(v)  # enclose the solution
    below, above = -1.0, 2.0 * high + 1.0  # points seen on either side of it
    gamma = min(max(gamma, low), high)
    last_upper, last_free = -1, -1
    for _ in range(200):  # bisection alone ends before
        n_upper = 0
        n_free = 0
        total = 0.0
        for j in range(len(v)):
            excess = v[j] - gamma
            n_upper += excess >= C
            n_free += (excess > 0) & (excess < C)
            total += min(max(excess, 0.0), C)
        solution = gamma + (total - gamma) / (n_free + 1)
        if n_upper == last_upper and n_free == last_free:
            return solution
        if total > gamma:
            below = gamma
            low, high = max(low, gamma), min(high, total)
        else:
            above = gamma
            low, high = max(low, total), min(high, gamma)
        if solution == gamma:
            return solution
        if below < solution < above:
            gamma = solution
            last_upper, last_free = n_upper, n_free
        else:
            middle = 0.5 * (low + high)
            if not below < middle < above:
                return middle  # neighbours in floating point
            gamma = middle
            last_upper, last_free = -1, -1
    return gamma


@kernel
def gamma_sorted(v, C):
    """γ by sorting and sweeping the breakpoints: Wang & Scott (2021), Algorithm 2.

    Parameters
    ----------
    v : ndarray of float, shape (m,)
        Linear term; entries <= 0 are inactive.
    C : float
        Upper bound of each b_j.

    Notes
    -----
    The sweep goes down through the breakpoints v_j (b_j leaves 0) and v_j - C (b_j reaches C), the
    latter first among equals. The candidate γ of an interval solves the problem as soon as it is
    not below the interval's lower end; the other conditions of Subroutine 5 hold by the order of
    the sweep. Testing only this one cannot miss the solution through rounding.
    """
    top = np.sort(v[v > 0])[::-1]
    m = len(top)
    n_upper = 0  # at C: top[:n_upper]
    n_free = 0  # inside (0, C): the n_free entries that follow
    total = 0.0  # their sum
    while True:
        enter = n_upper + n_free
        next_enter = np.float64(top[enter]) if enter < m else 0.0
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
    # The running sum has cancelled large terms: one Newton step, in general, takes the rounding out.
    return gamma_newton(v, C, (C * n_upper + total) / (n_free + 1))


@kernel
def visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, keep, scratch, tally):
    """One exact block step for each row of ``order[begin:end]`` (see `streamsvm.losses`).

    Modifies weights, pool, scratch and tally. Wang & Scott (2021), Algorithm 1.
    """
    scores, v, beta = scratch.scores, scratch.v, scratch.beta
    for t in range(begin, end):
        i = order[t]
        y = rows.labels[i]
        if keep and not has_room(pool, n_classes):
            return t
        if not meet_row(scores, rows, i, weights, n_classes, tally):
            continue
        own = np.float64(scores[y])
        old_sum = load_duals(old, i, beta)
        inverse = 1.0 / (margin * margin * rows.norm2[i])
        loss = 0.0
        for j in range(n_classes):
            slack = 1.0 - margin * (own - scores[j])
            loss += max(slack, 0.0)
            v[j] = slack * inverse + (beta[j] + old_sum)
        tally[LOSS_SUM] += loss - 1.0  # class y itself has slack 1
        v[y] = 0
        v[n_classes:] = 0
        gamma = gamma_newton(v, C, old_sum) if solver == 0 else gamma_sorted(v, C)
        for j in range(n_classes):
            v[j] = min(max(v[j] - gamma, 0.0), C)
        tally[DUAL_SUM] += settle_row(rows, i, y, weights, margin, scratch, pool, keep)
    return end


@kernel
def loss_rows(rows, weights, n_classes, margin, scratch, tally):
    """Add the rows' losses and correct predictions to `tally`; rows of norm 0 are left out."""
    scores = scratch.scores
    for i in range(len(rows.labels)):
        y = rows.labels[i]
        if not meet_row(scores, rows, i, weights, n_classes, tally):
            continue
        own = np.float64(scores[y])
        loss = 0.0
        for j in range(n_classes):
            loss += max(1.0 - margin * (own - scores[j]), 0.0)
        tally[LOSS_SUM] += loss - 1.0
