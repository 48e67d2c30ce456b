"""Crammer-Singer: the strongest wrong class costs, if it comes within the margin.

    min ½‖w‖² + C Σ_i max(0, 1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)

The papers' dual block α has sum zero, α_y <= C and α_j <= 0 elsewhere. With b_j = -α_j for the
wrong classes and b_y = C - α_y, b lies on the simplex {b >= 0, Σ b = C}, and Blondel et al. (2014),
Lemma 1, makes the block problem the Euclidean projection onto it of

    u_j = b_j + (s_j + [j ≠ y]) / ‖x‖².

Only the wrong classes' b_j are stored: b_y is what they leave of C.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels import (
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
SOLVERS = ("sorted",)
MARGINS = (1.0,)


@allocating
def threshold_sorted(u, m, z):
    """θ with Σ max(u_j - θ, 0) = z, by sorting: Blondel et al. (2014), Algorithm 2.

    Parameters
    ----------
    u : ndarray of float, shape (m,) or larger
        Only the first `m` entries count.
    z : float
        Size of the simplex, positive.
    """
    top = np.sort(u[:m])[::-1]
    total = 0.0
    threshold = np.float64(top[0]) - z
    for r in range(len(top)):
        total += top[r]
        candidate = (total - z) / (r + 1)
        if not top[r] > candidate:
            break
        threshold = candidate
    return threshold


@inlined
def _add_terms(y, inverse, scratch, begin, end):
    """Write u of the candidates `begin` to `end`; return their loss, and whether one beats class `y`."""
    scores, ids = scratch.scores, scratch.ids
    own = np.float64(scores[y])
    loss, beaten = 0.0, False
    for r in range(begin, end):
        scratch.v[r] = scratch.before[r] + (1.0 + scores[ids[r]]) * inverse
        loss = max(loss, 1.0 + scores[ids[r]] - own)
        beaten |= beats(ids[r], y, scores)
    return loss, beaten


@inlined
def _threshold(y, inverse, rest, scratch, m, C):
    """θ for the candidates and class `y`, to which their duals leave `rest` of C."""
    scratch.v[m] = rest + scratch.scores[y] * inverse
    return threshold_sorted(scratch.v, m + 1, C)


@kernel
def visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, scratch, tally):
    """One exact block step for each row of ``order[begin:end]`` (see `streamsvm.losses`).

    Modifies weights, pool, scratch and tally. Blondel et al. (2014), Algorithm 1.

    A class with b_j = 0 keeps it unless u_j > θ, and θ is not below the threshold θ' for class y and
    the classes with b_j > 0 alone. So u is looked at where b_j > 0, or the score is above the point
    at which u_j = θ'; every class that comes within the margin is let in too, for its loss.
    """
    for t in range(begin, end):
        i = order[t]
        if not has_room(pool, n_classes) or not has_space(i, weights, n_classes):
            return t
        fetch_ahead(rows, old, order, t, end)
        if is_idle(rows, i, tally):
            continue
        y = np.int64(rows.labels[i])
        m = np.int64(old.counts[i])
        n_lines = list_class(y, scratch, 0)
        old_sum, n_lines = load_duals(
            old.ids, old.ids_at[i], old.values, old.values_at[i], m, scratch, n_lines
        )
        score_row(scratch.scores, rows, i, weights.now)
        add_rare_scores(scratch.scores, i, weights.rare, 1)
        inverse = 1.0 / rows.norm2[i]
        loss, beaten = _add_terms(y, inverse, scratch, 0, m)
        threshold = _threshold(y, inverse, C - old_sum, scratch, m, C)
        n_old = m
        limit = min(threshold / inverse, np.float64(scratch.scores[y])) - 1.0
        m, n_lines = list_above(limit, n_classes, scratch, m, n_lines)
        if m > n_old:
            more_loss, more_beaten = _add_terms(y, inverse, scratch, n_old, m)
            loss, beaten = max(loss, more_loss), beaten | more_beaten
            threshold = _threshold(y, inverse, C - old_sum, scratch, m, C)
        tally[LOSS_SUM] += loss
        tally[CORRECT] += not beaten
        tally[CLOCK] += 1
        n_duals, shift, changed = set_duals(y, margin, threshold, C, scratch, m, pool, pool.used[0], False)
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
        inverse = 1.0 / rows.norm2[i]
        _add_terms(y, inverse, scratch, 0, m)
        threshold = _threshold(y, inverse, C - old_sum, scratch, m, C)
        tally[CLOCK] += 1
        _, shift, changed = set_duals(y, margin, threshold, C, scratch, m, pool, at, True)
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
            loss, beaten = _add_terms(y, 1.0, scratch, 0, m)
            tally[LOSS_SUM] += loss
            tally[CORRECT] += not beaten
            unlist(scratch, n_lines)
