"""Weston-Watkins: every wrong class inside the margin adds to the loss.

    min ½‖w‖² + C Σ_i Σ_{j≠y_i} φ(1 - M (w_y - w_j)ᵀx_i)

With the hinge φ and M = 1 the formulation of Wang & Scott (2021), with M = 1/2 that of Shark (Igel et al.
2008); φ may be the squared or the smoothed hinge too (see `streamsvm.losses.hinges`).
The block problem of row i over b in [0, U]^{k-1},

    min ½ bᵀ((1 + ρ)I + κ11ᵀ) b - uᵀb,    u_j = (1 - M (s_y - s_j)) / (M²‖x‖²) + b_j + κΣb,

in which ρ is the curvature of φ divided by M²‖x‖², and κ is 1 over the number of the row's own classes (of
which s_y is the mean score), is solved by b_j = clip(v_j - γ, 0, U) with v = u / (1 + ρ) and the one scalar γ
for which κΣ_j clip(v_j - γ, 0, U) = (1 + ρ) γ (see `streamsvm.losses.threshold`).

With costs C(y, j) of its own each class has another U and ρ: b_j = clip((u_j - γ) / (1 + ρ_j), 0, U_j).
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import add_candidates_above, beats
from streamsvm.kernels.class_pairs import cost_of
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.losses.hinges import HINGE, SMOOTH_HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.shark import greedy_coordinates
from streamsvm.losses.threshold import threshold, threshold_of_each, threshold_sorted

_NEWTON, _SORTED, _SHARK = range(3)


@inlined
def _clip_each(pairs, gamma, m, scratch):
    """Replace u of the `m` candidates by clip((u - γ) / (1 + ρ), 0, U), each with its own ρ and U."""
    for r in range(m):
        step = (scratch.v[r] - gamma) / pairs.curvatures[r]
        scratch.v[r] = min(max(step, 0.0), pairs.uppers[r])


def _make(name: str, hinge: Hinge) -> Kernels:
    value, curvature, upper_of = hinge.value, hinge.curvature, hinge.upper

    def add_terms(y, inverse, shrink, problem, pairs, coupled, scratch, begin, end):
        """Write v of the candidates `begin` to `end`; return their loss, and whether one beats class `y`.

        `coupled` is what the duals of other classes add to u.
        """
        scores, ids, before, v = scratch.scores, scratch.ids, scratch.before, scratch.v
        own = np.float64(scores[y])
        loss, is_wrong = 0.0, False
        for r in range(begin, end):
            slack = 1.0 - problem.margin * (own - scores[ids[r]])
            v[r] = (slack * inverse + (before[r] + coupled)) * shrink
            cost = 1.0 if pairs is None else cost_of(y, ids[r], None, pairs)
            loss += cost * value(slack, problem)
            is_wrong |= beats(ids[r], y, scores)
        return loss, is_wrong

    add_terms = inlined(add_terms, name=f"{name}_add_terms")

    def threshold_with_costs(y, inverse, C, problem, pairs, m, guess, scratch):
        """γ in units of u, and the bounds and curvatures of the `m` candidates, whose u are written."""
        for r in range(m):
            cost = C * pairs.costs[y, scratch.ids[r]]
            pairs.uppers[r] = upper_of(cost) if cost > 0.0 else 0.0
            pairs.curvatures[r] = 1.0 + (curvature(cost, problem) * inverse if cost > 0.0 else 0.0)
        return threshold_of_each(scratch.v, pairs.curvatures, pairs.uppers, m, guess)

    threshold_with_costs = inlined(threshold_with_costs, name=f"{name}_threshold_with_costs")

    def solve_with_costs(y, norm2, C, problem, pairs, n_old, old_sum, n_vectors, scratch):
        """As `solve`, in units of u."""
        inverse = 1.0 / (problem.margin * problem.margin * norm2)
        loss, is_wrong = add_terms(y, inverse, 1.0, problem, pairs, old_sum, scratch, 0, n_old)
        gamma = threshold_with_costs(y, inverse, C, problem, pairs, n_old, old_sum, scratch)
        limit = scratch.scores[y] + (min(gamma - old_sum, 0.0) / inverse - 1.0) / problem.margin
        m, n_vectors = add_candidates_above(limit, problem, scratch, n_old, n_vectors)
        more_loss, more_wrong = add_terms(y, inverse, 1.0, problem, pairs, old_sum, scratch, n_old, m)
        gamma = threshold_with_costs(y, inverse, C, problem, pairs, m, gamma, scratch)
        _clip_each(pairs, gamma, m, scratch)
        return m, n_vectors, loss + more_loss, is_wrong | more_wrong

    solve_with_costs = inlined(solve_with_costs, name=f"{name}_solve_with_costs")

    def solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
        """Wang & Scott (2021), Algorithm 1, without the classes whose dual stays 0.

        A class with b_j = 0 keeps it unless u_j > (1 + ρ)γ, and γ is not below the solution γ' for the
        classes with b_j > 0 alone. So the candidates are the classes with b_j > 0, and those with a score
        above the point at which u_j = min((1 + ρ)γ', Σb): this bound admits every class with positive loss.
        """
        if pairs is not None and len(pairs.costs) > 0:
            return solve_with_costs(y, norm2, C, problem, pairs, n_old, old_sum, n_vectors, scratch)
        margin, v = problem.margin, scratch.v
        coupling = 1.0 if own is None else 1.0 / (own.end - own.begin)
        coupled = coupling * old_sum
        inverse = 1.0 / (margin * margin * norm2)
        slope = 1.0 + curvature(C, problem) * inverse
        shrink, upper = 1.0 / slope, upper_of(C)
        loss, is_wrong = add_terms(y, inverse, shrink, problem, pairs, coupled, scratch, 0, n_old)
        gamma, limit = 0.0, -np.inf
        if problem.solver == _NEWTON:
            gamma = threshold(v, n_old, upper, slope / coupling, coupled * shrink)
            fall = min(slope * gamma - coupled, 0.0)
            limit = scratch.scores[y] + (fall / inverse - 1.0) / margin
        m, n_vectors = add_candidates_above(limit, problem, scratch, n_old, n_vectors)
        more_loss, more_wrong = add_terms(y, inverse, shrink, problem, pairs, coupled, scratch, n_old, m)
        if problem.solver == _SORTED:
            gamma = threshold_sorted(v, m, upper, slope)
        elif problem.solver == _NEWTON and m > n_old:
            gamma = threshold(v, m, upper, slope / coupling, gamma)
        if problem.solver == _SHARK:
            greedy_coordinates(y, 1.0 / inverse, C, problem, m, scratch)
        else:
            clip_duals(v, m, gamma, upper)
        return m, n_vectors, loss + more_loss, is_wrong | more_wrong

    def solve_restricted(y, norm2, C, problem, pairs, own, m, old_sum, scratch):
        inverse = 1.0 / (problem.margin * problem.margin * norm2)
        if pairs is not None and len(pairs.costs) > 0:
            add_terms(y, inverse, 1.0, problem, pairs, old_sum, scratch, 0, m)
            gamma = threshold_with_costs(y, inverse, C, problem, pairs, m, old_sum, scratch)
            _clip_each(pairs, gamma, m, scratch)
            return
        coupling = 1.0 if own is None else 1.0 / (own.end - own.begin)
        slope, upper = 1.0 + curvature(C, problem) * inverse, upper_of(C)
        if problem.solver == _SHARK:
            greedy_coordinates(y, 1.0 / inverse, C, problem, m, scratch)
            return
        add_terms(y, inverse, 1.0 / slope, problem, pairs, coupling * old_sum, scratch, 0, m)
        if problem.solver == _SORTED:
            gamma = threshold_sorted(scratch.v, m, upper, slope)
        else:
            gamma = threshold(scratch.v, m, upper, slope / coupling, coupling * old_sum / slope)
        clip_duals(scratch.v, m, gamma, upper)

    def add_losses(y, problem, pairs, own, n_vectors, scratch):
        limit = scratch.scores[y] - 1.0 / problem.margin
        m, n_vectors = add_candidates_above(limit, problem, scratch, 0, n_vectors)
        loss, is_wrong = add_terms(y, 1.0, 1.0, problem, pairs, 0.0, scratch, 0, m)
        return n_vectors, loss, is_wrong

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        solve_restricted=inlined(solve_restricted, name=f"{name}_solve_restricted"),
        add_losses=inlined(add_losses, name=f"{name}_add_losses"),
        dual_term=hinge.dual_term,
    )


KERNELS = {
    "ww": _make("ww", HINGE),
    "ww2": _make("ww2", SQUARED_HINGE),
    "wws": _make("wws", SMOOTH_HINGE),
}
