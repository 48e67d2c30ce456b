"""Crammer-Singer: the wrong class with the largest score adds to the loss, if it is inside the margin.

    min ½‖w‖² + C Σ_i max(0, 1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)

The papers' dual block α has sum zero, α_y <= C and α_j <= 0 elsewhere; b_j = -α_j for the wrong classes.
The block problem of row i over b >= 0, Σ b <= C,

    min ½ bᵀ(I + 11ᵀ) b - vᵀb,    v_j = (1 - (s_y - s_j)) / ‖x‖² + b_j + Σb,

is solved by b_j = max(v_j - γ, 0) with the one scalar γ for which Σ_j max(v_j - γ, 0) = min(γ, C).

If C‖x‖² is small, all v_j are near 1/‖x‖², which is many times C, and v_j - γ would be mostly rounding
error. So with p, the candidate of the largest v, the solvers work on

    d_j = v_j - v_p = (b_j - b_p) + (s_j - s_p) / ‖x‖² <= 0

and find θ = γ - v_p: then b_j = max(d_j - θ, 0), of which the largest is b_p = -θ, and Σ b = min(v_p + θ, C).
If C‖x‖² is large, C enters nothing else.
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
    splat,
    store,
    subtract,
    sum_lanes,
)

_NEWTON, _SORTED = range(2)


@inlined
def threshold_newton(d, m, v_top, C, theta):
    """θ with Σ max(d_j - θ, 0) = min(v_top + θ, C) by Newton's method, from the guess `theta`.

    `d` is float64, its first `m` >= 1 entries are <= 0, and one of them is 0; it has room for a vector from
    ``d[m]``, which is overwritten. The left side falls, the right one rises, and their difference is
    convex: a Newton step from anywhere ends at the solution or below it, and from there on steps rise. A step
    solves the linear piece that contains θ, and the solution is reached when it lies in that same piece.
    """
    if not v_top > 0.0:
        return -max(v_top, 0.0)  # 0 or NaN
    store(d, m, splat(-np.inf))
    zero = splat(0.0)
    lowest = -min(C, 0.5 * v_top)  # below the solution, for the left side is at least -θ
    theta = theta if lowest < theta < 0.0 else lowest
    last_free, last_capped = -1, False
    for _ in range(m + 3):  # from the second on, each step passes an entry or the bound C
        n_free = 0
        sums, threshold = zero, splat(theta)
        j = 0
        while j < m:
            b = subtract(load(d, j), threshold)
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
            break  # this step only removed rounding error
        last_free, last_capped = n_free, capped
    return theta


@allocating
def threshold_sorted(d, m, v_top, C):
    """The same θ by sorting: Blondel et al. (2014), Algorithm 2, the projection to a simplex.

    The paper's simplex {b >= 0, Σ b = C} includes class y, which has the rest of C. Without it no digits are
    lost: Σ b = v_top + θ, and only if that is more than C, b is the projection of d to the simplex of the
    wrong classes.

    Parameters
    ----------
    d : ndarray of float64, shape (m + 8,) or larger
        v_j minus the largest of them in the first `m` >= 1 entries; the eight entries after them are
        overwritten.
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
    # Large terms may have cancelled in the running sum: one Newton step removes the rounding error.
    return threshold_newton(d, m, v_top, C, theta)


@inlined
def _loss(y, scratch, m):
    """The loss of the `m` candidates, and whether one of them beats class `y`."""
    scores, ids = scratch.scores, scratch.ids
    own = np.float64(scores[y])
    loss, is_wrong = 0.0, False
    for r in range(m):
        loss = max(loss, 1.0 - (own - scores[ids[r]]))
        is_wrong |= beats(ids[r], y, scores)
    return loss, is_wrong


@inlined
def _threshold(y, inverse, C, solver, m, old_sum, scratch):
    """Write d of the `m` candidates, and solve their block problem.

    Returns θ, and the score above which a class that is not a candidate has v_j > γ.
    """
    scores, ids, before, d = scratch.scores, scratch.ids, scratch.before, scratch.v
    own = np.float64(scores[y])
    if m == 0:  # γ = 0, because there are no old duals
        return 0.0, own - 1.0
    top, largest = 0, -np.inf
    for r in range(m):
        d[r] = before[r] + (scores[ids[r]] - own) * inverse
        if d[r] > largest:
            top, largest = r, d[r]
    score, dual = np.float64(scores[ids[top]]), before[top]
    for r in range(m):
        # The solvers need entries <= 0 in spite of rounding; NaN stays visible.
        d[r] = min((before[r] - dual) + (scores[ids[r]] - score) * inverse, 0.0)
    v_top = (1.0 - (own - score)) * inverse + (dual + old_sum)
    theta = -dual
    if solver == _NEWTON:
        theta = threshold_newton(d, m, v_top, C, theta)
    elif solver == _SORTED:
        theta = threshold_sorted(d, m, v_top, C)
    return theta, score + (dual + theta) / inverse


@inlined
def _solve(y, norm2, C, problem, n_old, old_sum, n_vectors, scratch):
    """Blondel et al. (2014), Algorithm 1, without the classes whose dual stays 0.

    A class with b_j = 0 keeps it unless v_j > γ, and γ is not below the solution γ' for the classes with
    b_j > 0 alone: more classes raise Σ max(v_j - γ, 0). So the candidates are the classes with b_j > 0, those
    with a score above the point at which v_j = γ', and, for the loss, all classes inside the margin.
    """
    inverse = 1.0 / norm2
    theta, limit = _threshold(y, inverse, C, problem.solver, n_old, old_sum, scratch)
    limit = min(limit, scratch.scores[y] - 1.0)
    m, n_vectors = add_candidates_above(limit, problem.n_classes, scratch, n_old, n_vectors)
    if m > n_old:
        theta, _ = _threshold(y, inverse, C, problem.solver, m, old_sum, scratch)
    loss, is_wrong = _loss(y, scratch, m)
    clip_duals(scratch.v, m, theta, C)
    return m, n_vectors, loss, is_wrong


@inlined
def _solve_restricted(y, norm2, C, problem, m, old_sum, scratch):
    theta, _ = _threshold(y, 1.0 / norm2, C, _NEWTON, m, old_sum, scratch)
    clip_duals(scratch.v, m, theta, C)


@inlined
def _add_losses(y, problem, n_vectors, scratch):
    m, n_vectors = add_candidates_above(scratch.scores[y] - 1.0, problem.n_classes, scratch, 0, n_vectors)
    loss, is_wrong = _loss(y, scratch, m)
    return n_vectors, loss, is_wrong


KERNELS = make_kernels("cs", solve=_solve, solve_restricted=_solve_restricted, add_losses=_add_losses)
