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

from streamsvm.kernels import DUAL_SUM, LOSS_SUM, has_room, kernel, load_duals, meet_row, settle_row

TITLE = "Crammer-Singer (Blondel, Fujino & Ueda 2014)"
SOLVERS = ("sorted",)
MARGINS = (1.0,)


@kernel
def threshold_sorted(u, z):
    """θ with Σ max(u_j - θ, 0) = z, by sorting: Blondel et al. (2014), Algorithm 2.

    Parameters
    ----------
    u : ndarray of float, shape (k,)
    z : float
        Size of the simplex, positive.
    """
    top = np.sort(u)[::-1]
    total = 0.0
    threshold = np.float64(top[0]) - z
    for r in range(len(top)):
        total += top[r]
        candidate = (total - z) / (r + 1)
        if not top[r] > candidate:
            break
        threshold = candidate
    return threshold


@kernel
def visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, keep, scratch, tally):
    """One exact block step for each row of ``order[begin:end]`` (see `streamsvm.losses`).

    Modifies weights, pool, scratch and tally. Blondel et al. (2014), Algorithm 1.
    """
    scores, v, beta = scratch.scores, scratch.v, scratch.beta
    for t in range(begin, end):
        i = order[t]
        y = rows.labels[i]
        if keep and not has_room(pool, n_classes):
            return t
        if not meet_row(scores, rows, i, weights, n_classes, tally):
            continue
        tally[LOSS_SUM] += _loss(scores, y, n_classes)
        old_sum = load_duals(old, i, beta)
        inverse = 1.0 / rows.norm2[i]
        for j in range(n_classes):
            v[j] = beta[j] + (1.0 + scores[j]) * inverse
        v[y] = (C - old_sum) + scores[y] * inverse
        threshold = threshold_sorted(v[:n_classes], C)
        for j in range(n_classes):
            v[j] = max(v[j] - threshold, 0.0)
        v[y] = 0
        v[n_classes:] = 0
        tally[DUAL_SUM] += settle_row(rows, i, y, weights, margin, scratch, pool, keep)
    return end


@kernel
def _loss(scores, y, n_classes):
    worst = 0.0
    own = np.float64(scores[y])
    for j in range(n_classes):
        if j != y:
            worst = max(worst, 1.0 + scores[j] - own)
    return worst


@kernel
def loss_rows(rows, weights, n_classes, margin, scratch, tally):
    """Add the rows' losses and correct predictions to `tally`; rows of norm 0 are left out."""
    scores = scratch.scores
    for i in range(len(rows.labels)):
        y = rows.labels[i]
        if not meet_row(scores, rows, i, weights, n_classes, tally):
            continue
        tally[LOSS_SUM] += _loss(scores, y, n_classes)
