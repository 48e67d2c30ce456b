"""Crammer-Singer: the strongest wrong class costs, if it comes within the margin.

    min ½‖w‖² + C Σ_i max(0, 1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)

The papers' dual block α has sum zero, α_y <= C and α_j <= 0 elsewhere; b_j = -α_j for the wrong classes.
The block problem of row i over b >= 0, Σ b <= C,

    min ½ bᵀ(I + 11ᵀ) b - vᵀb,    v_j = (1 - (s_y - s_j)) / ‖x‖² + b_j + Σb,

is solved by b_j = max(v_j - γ, 0) with the one scalar γ for which Σ_j max(v_j - γ, 0) = min(γ, C).

Where C‖x‖² is small, all v_j are near 1/‖x‖², which is many times C, and v_j - γ would be rounding. So
with p, the candidate of the largest v, the solvers see

    d_j = v_j - v_p = (b_j - b_p) + (s_j - s_p) / ‖x‖² <= 0

and look for θ = γ - v_p: then b_j = max(d_j - θ, 0), of which the largest is b_p = -θ, and
Σ b = min(v_p + θ, C). Where C‖x‖² is large, C enters nothing else.
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

TITLE = "Crammer-Singer (Blondel, Fujino & Ueda 2014)"
SOLVERS = ("newton", "sorted")
_NEWTON, _SORTED = range(2)
MARGINS = (1.0,)


@inlined
def threshold_newton(d, m, v_top, C, theta):
    """θ with Σ max(d_j - θ, 0) = min(v_top + θ, C) by Newton's method, from the guess `theta`.

    `d` is float64, its first `m` >= 1 entries are <= 0, and one of them is 0; it has room for a vector from
    ``d[m]``, which is overwritten. The left side falls, the right one rises, and their difference is
    convex: a Newton step from anywhere ends at the solution or below, and from there on steps rise. A step
    solves the linear piece that θ lies in, and the solution is reached when it lies in that same piece.
    """
    if not v_top > 0.0:
        return -max(v_top, 0.0)  # 0, or what is not a number
    store(d, m, splat(-np.inf))
    zero = splat(0.0)
    lowest = -min(C, 0.5 * v_top)  # below the solution, for the left side is at least -θ
    theta = theta if lowest < theta < 0.0 else lowest
    last_free, last_capped = -1, False
    for _ in range(m + 3):  # from the second on, each step leaves an entry, or the bound C, behind
        n_free = 0
        sums, shift = zero, splat(theta)
        j = 0
        while j < m:
            b = subtract(load(d, j), shift)
            n_free += count_bits(above(b, zero))
            sums = add(sums, maximum(b, zero))
            j += lanes(d)
        total = sum_lanes(sums)
        capped = v_top + theta > C
        if capped:
            theta += (total - C) / n_free
        else:
            theta += (total - (v_top + theta)) / (n_free + 1)
        theta = max(theta, lowest)
        if n_free == last_free and capped == last_capped:
            break  # this step took the rounding out, no more
        last_free, last_capped = n_free, capped
    return theta


@allocating
def threshold_sorted(d, m, v_top, C):
    """The same θ by sorting: Blondel et al. (2014), Algorithm 2, the projection to a simplex.

    Theirs is {b >= 0, Σ b = C} with class y, which has what the others leave of C. Without it, which
    loses no digits, Σ b = v_top + θ; only where that is more than C, b is the projection of d to the simplex
    of the wrong classes.

    Parameters
    ----------
    d : ndarray of float64, shape (m + 8,) or larger
        v_j less the largest of them in the first `m` >= 1 entries; the eight that follow are overwritten.
    v_top : float
        The largest v_j.
    C : float
        Upper bound of the sum, positive.
    """
    if not v_top > 0.0:
        return -max(v_top, 0.0)
    falling = np.sort(d[:m])[::-1]
    total, n_free = 0.0, 0  # of the entries with b_j > 0
    theta = -v_top
    while n_free < m and falling[n_free] > theta:
        total += falling[n_free]
        n_free += 1
        theta = (total - v_top) / (n_free + 1)
    if v_top + theta > C:
        total, n_free = 0.0, 0
        theta = -C
        while n_free < m and falling[n_free] > theta:
            total += falling[n_free]
            n_free += 1
            theta = (total - C) / n_free
    # The running sum may have cancelled large terms: one Newton step takes the rounding out.
    return threshold_newton(d, m, v_top, C, theta)


@inlined
def _add_losses(y, scratch, begin, end):
    """The loss of the candidates `begin` to `end`, and whether one of them beats class `y`."""
    scores, ids = scratch.scores, scratch.ids
    own = np.float64(scores[y])
    loss, beaten = 0.0, False
    for r in range(begin, end):
        loss = max(loss, 1.0 - (own - scores[ids[r]]))
        beaten |= beats(ids[r], y, scores)
    return loss, beaten


@inlined
def _solve(y, inverse, old_sum, solver, scratch, m, C):
    """Write the differences of the `m` candidates, and solve their block problem.

    Returns θ, and the score above which a class that is no candidate has v_j > γ.
    """
    scores, ids, before, d = scratch.scores, scratch.ids, scratch.before, scratch.v
    own = np.float64(scores[y])
    if m == 0:  # so γ = 0, and no duals are left of the last visit
        return 0.0, own - 1.0
    top, largest = 0, -np.inf
    for r in range(m):
        d[r] = before[r] + (scores[ids[r]] - own) * inverse
        if d[r] > largest:
            top, largest = r, d[r]
    score, dual = np.float64(scores[ids[top]]), before[top]
    for r in range(m):
        # Not above 0 by rounding either, for the solvers; not a number stays visible.
        d[r] = min((before[r] - dual) + (scores[ids[r]] - score) * inverse, 0.0)
    v_top = (1.0 - (own - score)) * inverse + (dual + old_sum)
    theta = -dual
    if solver == _NEWTON:
        theta = threshold_newton(d, m, v_top, C, theta)
    elif solver == _SORTED:
        theta = threshold_sorted(d, m, v_top, C)
    return theta, score + (dual + theta) / inverse


@kernel
def visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, scratch, tally):
    """One exact block step for each row of ``order[begin:end]`` (see `streamsvm.losses`).

    Modifies weights, pool, scratch and tally. Blondel et al. (2014), Algorithm 1.

    A class with b_j = 0 keeps it unless v_j > γ, and γ is not below the solution γ' for the classes
    with b_j > 0 alone: more classes raise Σ max(v_j - γ, 0). So v is looked at where b_j > 0, or the
    score is above the point at which v_j = γ'; every class that comes within the margin is let in too,
    for its loss.
    """
    for t in range(begin, end):
        i = order[t]
        if not has_room(pool, n_classes) or not has_space(i, weights, n_classes):
            return t
        fetch_ahead(rows, old, order, t, end)
        if is_idle(rows, i, tally):
            continue
        y = np.int64(rows.labels[i])
        n_old = np.int64(old.counts[i])
        n_lines = list_class(y, scratch, 0)
        old_sum, n_lines = load_duals(
            old.ids, old.ids_at[i], old.values, old.values_at[i], n_old, scratch, n_lines
        )
        score_row(scratch.scores, rows, i, weights.now)
        add_rare_scores(scratch.scores, i, weights.rare, 1)
        inverse = 1.0 / rows.norm2[i]
        theta, limit = _solve(y, inverse, old_sum, solver, scratch, n_old, C)
        limit = min(limit, scratch.scores[y] - 1.0)
        m, n_lines = list_above(limit, n_classes, scratch, n_old, n_lines)
        if m > n_old:
            theta, _ = _solve(y, inverse, old_sum, solver, scratch, m, C)
        loss, beaten = _add_losses(y, scratch, 0, m)
        tally[LOSS_SUM] += loss
        tally[CORRECT] += not beaten
        tally[CLOCK] += 1
        n_duals, shift, changed = set_duals(y, margin, theta, C, scratch, m, pool, pool.used[0], False)
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
        theta, _ = _solve(y, 1.0 / rows.norm2[i], old_sum, _NEWTON, scratch, m, C)
        tally[CLOCK] += 1
        _, shift, changed = set_duals(y, margin, theta, C, scratch, m, pool, at, True)
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
            m, n_lines = list_above(scratch.scores[y] - 1.0, n_classes, scratch, 0, n_lines)
            loss, beaten = _add_losses(y, scratch, 0, m)
            tally[LOSS_SUM] += loss
            tally[CORRECT] += not beaten
            unlist(scratch, n_lines)
