"""One-vs-rest: k binary SVMs, each of one class against all others.

    min ½‖W‖² + C Σ_i Σ_c φ(1 - σ_ic w_cᵀx_i),    σ_ic = 1 for the row's own class, -1 for the others

with the hinge or the squared hinge φ (see `streamsvm.losses.hinges`). The dual b_ic in [0, U] of a row and a
class, the own class included, adds σ_ic b_ic x_i to w_c. The block problem of row i separates by class, and
its solution is the step of Hsieh et al. (2008), Algorithm 1, in which ρ is the curvature of φ divided by
‖x‖²:

    b_c = clip((b_c + (1 - σ_c s_c) / ‖x‖²) / (1 + ρ), 0, U)
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import add_candidate, add_candidates_above, beats
from streamsvm.kernels.class_pairs import cost_of
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.label_sets import is_own
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge


@inlined
def _add_candidates_of_set(own, problem, n_old, n_vectors, scratch):
    """As `_add_candidates`, for a row with several labels."""
    m = n_old
    for p in range(own.begin, own.end):
        c, has_dual = np.int64(own.codes[p]), False
        for r in range(n_old):
            has_dual |= scratch.ids[r] == c
        if not has_dual and not scratch.scores[c] >= 1.0:
            n_vectors = add_candidate(c, 0.0, scratch, m, n_vectors)
            m += 1
    return add_candidates_above(-1.0, problem, scratch, m, n_vectors)


@inlined
def _add_candidates(y, problem, own, n_old, n_vectors, scratch):
    """Add the classes with positive loss, and those that beat class `y`, to the old duals' classes."""
    if own is not None:
        return _add_candidates_of_set(own, problem, n_old, n_vectors, scratch)
    m, score, has_own = n_old, scratch.scores[y], False
    for r in range(n_old):
        has_own |= scratch.ids[r] == y
    if not has_own and not score >= 1.0:  # NaN too, so that damage stays visible
        n_vectors = add_candidate(y, 0.0, scratch, m, n_vectors)
        m += 1
    return add_candidates_above(min(score, -1.0), problem, scratch, m, n_vectors)


@inlined
def _own_step(y, problem, sum_of_steps, delta):
    """The own class's weights move by its own dual, with the opposite sign of the other classes."""
    return -delta[y]


def _make(name: str, hinge: Hinge) -> Kernels:
    value, curvature, upper = hinge.value, hinge.curvature, hinge.upper

    def add_terms(y, inverse, C, problem, pairs, own, scratch, m):
        """Write the unclipped duals of the `m` candidates; return their loss, and whether one beats `y`."""
        scores, ids = scratch.scores, scratch.ids
        shrink = 1.0 / (1.0 + curvature(C, problem) * inverse)
        loss, is_wrong = 0.0, False
        for r in range(m):
            has_label = ids[r] == y if own is None else is_own(ids[r], own)
            sign = 1.0 if has_label else -1.0
            slack, cost = 1.0 - sign * scores[ids[r]], 1.0
            if pairs is not None:
                cost = cost_of(y, ids[r], own, pairs)
                shrink = 1.0 / (1.0 + curvature(C * cost, problem) * inverse) if cost > 0.0 else 0.0
            scratch.v[r] = (scratch.before[r] + slack * inverse) * shrink
            loss += cost * value(slack, problem)
            is_wrong |= beats(ids[r], y, scores)
        return loss, is_wrong

    add_terms = inlined(add_terms, name=f"{name}_add_terms")

    def solve_restricted(y, norm2, C, problem, pairs, own, m, old_sum, scratch):
        loss, is_wrong = add_terms(y, 1.0 / norm2, C, problem, pairs, own, scratch, m)
        if pairs is None:
            clip_duals(scratch.v, m, 0.0, upper(C))
        else:
            for r in range(m):
                most = upper(C * cost_of(y, scratch.ids[r], own, pairs))
                scratch.v[r] = min(max(scratch.v[r], 0.0), most)
        return loss, is_wrong

    solve_restricted = inlined(solve_restricted, name=f"{name}_solve_restricted")

    def solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
        m, n_vectors = _add_candidates(y, problem, own, n_old, n_vectors, scratch)
        loss, is_wrong = solve_restricted(y, norm2, C, problem, pairs, own, m, old_sum, scratch)
        return m, n_vectors, loss, is_wrong

    def add_losses(y, problem, pairs, own, n_vectors, scratch):
        m, n_vectors = _add_candidates(y, problem, own, 0, n_vectors, scratch)
        loss, is_wrong = add_terms(y, 1.0, 1.0, problem, pairs, own, scratch, m)
        return n_vectors, loss, is_wrong

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        solve_restricted=solve_restricted,
        add_losses=inlined(add_losses, name=f"{name}_add_losses"),
        own_step=_own_step,
        own_dual=True,
        dual_term=hinge.dual_term,
    )


KERNELS = {"ovr": _make("ovr", HINGE), "ovr2": _make("ovr2", SQUARED_HINGE)}
