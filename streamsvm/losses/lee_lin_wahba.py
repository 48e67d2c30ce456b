"""Lee-Lin-Wahba: every wrong class whose own score is above -1 adds to the loss.

    min ½‖W‖² + C Σ_i Σ_{j≠y_i} φ(1 + w_jᵀx_i)    subject to Σ_c w_c = 0

with the hinge or the squared hinge φ (see `streamsvm.losses.hinges`). The duals b_ij in [0, U] of the wrong
classes make W̃ with w̃_j = -Σ_i b_ij x_i, and subtracting the mean over the k classes makes W. To keep updates
sparse the weights are stored as W̃ and one column more, g = Σ_i x_i Σ_j b_ij = -Σ_c w̃_c:

    w_c = w̃_c + g / k,    s_c = w̃_cᵀx + gᵀx / k

After some visits the learner subtracts the mean over the classes from W̃ and sets g to 0, which changes no
w_c (see `streamsvm.kernels.centre`): g grows with n, and would in float32 drown how the classes differ.

The block problem of row i over b in [0, U]^{k-1},

    min ½ bᵀ((1 + ρ)I - 11ᵀ/k) b - uᵀb,    u_j = (1 + s_j) / ‖x‖² + b_j - Σb/k,

in which ρ is the curvature of φ divided by ‖x‖², is solved by b_j = clip(v_j - γ, 0, U) with v = u / (1 + ρ)
and the one scalar γ <= 0 for which Σ_j b_j = -k (1 + ρ) γ (see `streamsvm.losses.threshold`). A class that
enters lowers γ, and so pulls others in: all wrong classes are candidates, and a row has many duals, most of
them at C.

Alber et al. (2017), Algorithms 1 and 2, make coordinate steps; their gradient has the sign of the problem in
-W.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.candidates import add_candidates_above, beats, mark_class
from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton


@inlined
def _own_step(y, problem, sum_of_steps, delta):
    """Only the column of the sum moves beside the wrong classes."""
    delta[problem.n_classes] = problem.sigma * sum_of_steps
    return 0.0


@kernel
def norm2_of_centred(weights, average_scale, sparse_rows, n_classes):
    """‖W‖² in float64, as `streamsvm.kernels.weights.sum_of_squares` with 1/k of the last column in each."""
    current, average_delta, dirty = weights.current, weights.average_delta, weights.dirty
    total = 0.0
    for f in range(current.shape[0]):
        if len(dirty) > 0 and dirty[f, 0] | dirty[f, 1] == 0:
            continue
        shared = np.float64(current[f, n_classes])
        if average_scale != 0:
            shared -= average_scale * np.float64(average_delta[f, n_classes])
        for c in range(n_classes):
            w = np.float64(current[f, c]) + shared / n_classes
            if average_scale != 0:
                w -= average_scale * np.float64(average_delta[f, c])
            total += w * w
    return total


def _make(name: str, hinge: Hinge, *, bits: bool) -> Kernels:
    value, curvature, upper_of = hinge.value, hinge.curvature, hinge.upper

    def solve(y, norm2, C, problem, pairs, own, n_old, old_sum, n_vectors, scratch):
        scores, ids, before, v, k = scratch.scores, scratch.ids, scratch.before, scratch.v, problem.n_classes
        n_vectors = mark_class(k, scratch, n_vectors)
        m, n_vectors = add_candidates_above(-np.inf, problem, scratch, n_old, n_vectors)
        inverse = 1.0 / norm2
        growth = 1.0 + curvature(C, problem) * inverse  # 1 + ρ
        shared, upper = np.float64(scores[k]) / k, upper_of(C)
        loss, is_wrong = 0.0, False
        for r in range(m):
            slack = 1.0 + (scores[ids[r]] + shared)
            v[r] = (slack * inverse + (before[r] - old_sum / k)) / growth
            loss += value(slack, problem)
            is_wrong |= beats(ids[r], y, scores)
        slope = -k * growth
        gamma = threshold_newton(v, m, upper, UNBOUNDED, slope, 0.0, upper * m / slope, 0.0, old_sum / slope)
        clip_duals(v, m, gamma, upper)
        return m, n_vectors, loss, is_wrong

    def add_losses(y, problem, pairs, own, n_vectors, scratch):
        scores, k = scratch.scores, problem.n_classes
        shared = np.float64(scores[k]) / k
        loss, is_wrong = 0.0, False
        for c in range(k):
            if c != y:
                loss += value(1.0 + (scores[c] + shared), problem)
                is_wrong |= beats(c, y, scores)
        return n_vectors, loss, is_wrong

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        solve_restricted=None,  # a visit over few of the classes would not be cheaper: nearly all have duals
        add_losses=inlined(add_losses, name=f"{name}_add_losses"),
        own_step=_own_step,
        dual_term=hinge.dual_term,
        norm2=norm2_of_centred,
        bits=bits,
    )


KERNELS = {"llw": _make("llw", HINGE, bits=True), "llw2": _make("llw2", SQUARED_HINGE, bits=False)}
