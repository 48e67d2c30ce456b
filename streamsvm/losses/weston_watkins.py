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
from streamsvm.kernels.steps import (
    CLOCK,
    CORRECT,
    LOSS_SUM,
    add_rare_scores,
    allocating,
    beats,
    close_row,
    count_duals,
    fetch_ahead,
    fetch_ahead_again,
    has_room,
    has_space,
    inlined,
    is_idle,
    kernel,
    list_above,
    list_class,
    load_duals,
    move_weights,
    score_last,
    score_lines,
    score_row,
    set_duals,
    turn_to_average,
    unlist,
)

TITLE = "Weston-Watkins (Wang & Scott 2021)"
SOLVERS = ("newton", "sorted")
_NEWTON, _SORTED = range(2)
MARGINS = (1.0, 0.5)


@inlined
def gamma_newton(v, m, C, gamma):
    """γ for ``v[:m]`` by Newton's method inside a bracket, from the guess `gamma`: exact, without a sort.

    `v` is float64 and has room for a vector from ``v[m]``, which is overwritten. Each sweep
    evaluates S(γ) = Σ clip(v_j - γ, 0, C) and solves the linear piece that γ lies in. The solution
    is reached when a piece's solution lies in that same piece. S falls and γ rises, so γ and S(γ)
    always enclose the crossing. A step that does not land strictly between points already seen is
    replaced by bisection: two kinks could exchange the same two points for ever.
    """
    store(v, m, splat(-np.inf))
    zero, upper = splat(0.0), splat(np.float64(C))
    low, high = 0.0, C * m  # enclose the solution
    floor, ceiling = -1.0, 2.0 * high + 1.0  # points seen on either side of it
    gamma = min(max(gamma, low), high)
    last_upper, last_free = -1, -1
    for _ in range(200):  # bisection alone ends before
        n_over, n_upper = 0, 0
        sums = zero
        shift = splat(gamma)
        j = 0
        while j < m:
            excess = subtract(load(v, j), shift)
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
                return middle  # neighbours in floating point
            gamma = middle
            last_upper, last_free = -1, -1
    return gamma


@allocating
def gamma_sorted(v, m, C):
    """γ by sorting and sweeping the breakpoints: Wang & Scott (2021), Algorithm 2.

    Parameters
    ----------
    v : ndarray of float64, shape (m + 8,) or larger
        Linear term in the first `m` entries, of which those <= 0 are inactive; the eight that follow
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
    # The running sum has cancelled large terms: one Newton step, in general, takes the rounding out.
    return gamma_newton(v, m, C, (C * n_upper + total) / (n_free + 1))


@inlined
def _add_terms(y, inverse, margin, old_sum, scratch, begin, end):
    """Write v of the candidates `begin` to `end`; return their loss, and whether one beats class `y`."""
    scores, ids, before, v = scratch.scores, scratch.ids, scratch.before, scratch.v
    own = np.float64(scores[y])
    loss, beaten = 0.0, False
    for r in range(begin, end):
        slack = 1.0 - margin * (own - scores[ids[r]])
        v[r] = slack * inverse + (before[r] + old_sum)
        loss += max(slack, 0.0)
        beaten |= beats(ids[r], y, scores)
    return loss, beaten


@inlined
def _solve(rows, i, y, n_classes, C, margin, solver, old, scratch, tally):
    """Solve row `i`'s block problem, given its scores; count its loss, and whether it was right.

    A class with b_j = 0 keeps it unless v_j > γ, and γ is not below the solution γ' for the classes
    with b_j > 0 alone. So v is looked at where b_j > 0, or the score is above the threshold at which
    v_j = min(γ', Σb); the latter bound lets every class in that has a loss. Returns the number of
    candidates, the number of vectors listed, γ, and the sum of the old duals.
    """
    n_old = np.int64(old.counts[i])
    n_lines = list_class(y, scratch, 0)
    old_sum, n_lines = load_duals(
        old.ids, old.ids_at[i], old.values, old.values_at[i], n_old, scratch, n_lines
    )
    inverse = 1.0 / (margin * margin * rows.norm2[i])
    loss, beaten = _add_terms(y, inverse, margin, old_sum, scratch, 0, n_old)
    gamma, threshold = 0.0, -np.inf
    if solver == _NEWTON:
        gamma = gamma_newton(scratch.v, n_old, C, old_sum)
        fall = min(gamma - old_sum, 0.0)
        threshold = scratch.scores[y] + (fall / inverse - 1.0) / margin
    m, n_lines = list_above(threshold, n_classes, scratch, n_old, n_lines)
    more_loss, more_beaten = _add_terms(y, inverse, margin, old_sum, scratch, n_old, m)
    if solver == _SORTED:
        gamma = gamma_sorted(scratch.v, m, C)
    elif m > n_old:
        gamma = gamma_newton(scratch.v, m, C, gamma)
    tally[LOSS_SUM] += loss + more_loss
    tally[CORRECT] += not (beaten | more_beaten)
    tally[CLOCK] += 1
    return m, n_lines, gamma, old_sum


@kernel
def visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, scratch, tally):
    """One exact block step for each row of ``order[begin:end]`` (see `streamsvm.losses`).

    Modifies weights, pool, scratch and tally. Wang & Scott (2021), Algorithm 1.
    """
    for t in range(begin, end):
        i = order[t]
        if not has_room(pool, n_classes) or not has_space(i, weights, n_classes):
            return t
        fetch_ahead(rows, old, order, t, end)
        if is_idle(rows, i, tally):
            continue
        y = np.int64(rows.labels[i])
        score_row(scratch.scores, rows, i, weights.now)
        add_rare_scores(scratch.scores, i, weights.rare, 1)
        m, n_lines, gamma, old_sum = _solve(rows, i, y, n_classes, C, margin, solver, old, scratch, tally)
        n_duals, shift, changed = set_duals(y, margin, gamma, C, scratch, m, pool, pool.used[0], False)
        if changed:
            move_weights(rows, i, weights, scratch, n_lines, tally)
        unlist(scratch, n_lines)
        count_duals(old_sum, shift, weights, tally)
        close_row(i, n_duals, pool)
    return end


@kernel
def revisit(rows, order, starts, weights, C, margin, pool, scratch, tally):
    """One block step for each of the pool's rows ``order``, over the classes of their duals alone.

    Modifies weights, pool, scratch and tally.
    """
    for t in range(len(order)):
        fetch_ahead_again(rows, pool, starts, order, t)
        i = np.int64(pool.rows[order[t]])
        y = np.int64(rows.labels[i])
        m = np.int64(pool.counts[order[t]])
        at = starts[order[t]]
        n_lines = list_class(y, scratch, 0)
        old_sum, n_lines = load_duals(pool.ids, at, pool.values, at, m, scratch, n_lines)
        score_lines(scratch.scores, rows, i, weights.now, scratch.lines, n_lines)
        add_rare_scores(scratch.scores, i, weights.rare, 1)
        inverse = 1.0 / (margin * margin * rows.norm2[i])
        _add_terms(y, inverse, margin, old_sum, scratch, 0, m)
        gamma = gamma_newton(scratch.v, m, C, old_sum)
        tally[CLOCK] += 1
        _, shift, changed = set_duals(y, margin, gamma, C, scratch, m, pool, at, True)
        if changed:
            move_weights(rows, i, weights, scratch, n_lines, tally)
        unlist(scratch, n_lines)
        count_duals(0.0, shift, weights, tally)


@kernel
def loss_rows(rows, weights, lagging, n_classes, margin, scratch, tallies):
    """Add the rows' losses, and those right, to `tallies`: by the last iterate, and by the average."""
    for i in range(len(rows.labels)):
        y = np.int64(rows.labels[i])
        for kind in range(len(tallies)):
            tally = tallies[kind]
            if is_idle(rows, i, tally):
                continue
            if kind == 0:
                score_last(rows, i, weights, scratch)
            else:
                turn_to_average(rows, i, weights, lagging, scratch)
            n_lines = list_class(y, scratch, 0)
            limit = scratch.scores[y] - 1.0 / margin
            m, n_lines = list_above(limit, n_classes, scratch, 0, n_lines)
            loss, beaten = _add_terms(y, 1.0, margin, 0.0, scratch, 0, m)
            tally[LOSS_SUM] += loss
            tally[CORRECT] += not beaten
            unlist(scratch, n_lines)
