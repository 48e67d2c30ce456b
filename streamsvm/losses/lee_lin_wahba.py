"""Lee-Lin-Wahba: the loss is a sum of hinges, one for the score of each wrong class.

    min ½‖W‖² + C Σ_i Σ_{j≠y_i} φ(1 + w_jᵀx_i)    subject to Σ_c w_c = 0

with the hinge or the squared hinge φ (see `streamsvm.losses.hinges`). The duals b_ij in [0, U] of the wrong
classes define w̃_j = -Σ_i b_ij x_i, and W is W̃ minus its mean over the k classes. To keep updates sparse, W̃
is stored together with a shared column g = Σ_i x_i Σ_j b_ij = -Σ_c w̃_c:

    w_c = w̃_c + g / k,    s_c = w̃_cᵀx + gᵀx / k

Because g grows with the number of rows, the differences between classes would be lost to rounding in float32.
So the learner regularly centres W̃ and clears g, which changes no w_c (see `streamsvm.kernels.centre`).

The block problem of row i over b in [0, U]^{k-1},

    min ½ bᵀ((1 + ρ)I - 11ᵀ/k) b - uᵀb,    u_j = (1 + s_j) / ‖x‖² + b_j - Σb/k,

has the solution b_j = clip(v_j - γ, 0, U) with v = u / (1 + ρ) and the γ <= 0 for which
Σ_j b_j = -k (1 + ρ) γ (see `streamsvm.losses.threshold`). Here ρ is ρ' / ‖x‖² for the ρ' of the hinge. Each
positive dual lowers γ, which makes more duals positive. Hence most are positive and, with the hinge, equal C.

In the dual objective, Σ_i (terms of b_i) - ½‖W̃‖² + ‖g‖²/2k, g couples the classes. With splits by classes,
the convex term ‖g‖²/2k is replaced by its tangent, a lower bound. Each class then has a separate problem,
which `streamsvm.losses.one_vs_rest` solves, and steps that raise the bound also raise the objective. W is
stored without a shared column. Before the next visits, the learner centres the rows of W that have changed.

Algorithms 1 and 2 of Alber et al. (2017) take coordinate steps. Their gradient is that of the problem for -W.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.row_steps import SHARED_COLUMN
from streamsvm.kernels.simd import LANES, load_like, store, sum_lanes, zeros
from streamsvm.kernels.weights import weight_at
from streamsvm.losses import one_vs_rest
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton


@kernel
def norm2_of_centred(weights, average_scale, sparse_rows, problem, sums):
    """Like `sum_of_squares`, but with 1/k of the shared column added to the weights of each class."""
    k, total = problem.n_classes, sums[0]
    for f in range(weights.current.shape[0]):
        shared = weight_at(weights, f, k, average_scale) / k
        for c in range(k):
            w = weight_at(weights, f, c, average_scale) + shared
            total += w * w
    sums[0] = total


def _make(name: str, hinge: Hinge) -> Kernels:
    value, curve, upper_of = hinge
    curvature = curve.curvature

    def write_v(row, n, inverse, growth, problem, scratch):
        """Write v, with -infinity in lanes without a dual; return the loss."""
        zero, k = zeros(), problem.n_classes
        loss, shared, coupled = zero, row.shared / k, row.old_sum / k
        for r in range(n):
            c = scratch.vectors[r]
            slack = 1.0 + (load_like(scratch.scores, c, zero) + shared)
            v = (slack * inverse + (load_like(scratch.old, c, zero) - coupled)) / growth
            store(scratch.v, r * LANES, v)
            loss = loss + value(slack, problem)
        return sum_lanes(loss)

    write_v = inlined(write_v, name=f"{name}_write_v")

    def solve(row, n, problem, pairs, scratch):
        inverse, upper, m = 1.0 / row.norm2, upper_of(row.C), n * LANES
        growth = 1.0 + curvature(row.C, problem) * inverse  # 1 + ρ
        loss, slope = write_v(row, n, inverse, growth, problem, scratch), -problem.n_classes * growth
        low = upper * (problem.n_classes - 1) / slope
        gamma = threshold_newton(scratch.v, m, upper, UNBOUNDED, slope, 0.0, low, 0.0, row.old_sum / slope)
        clip_duals(scratch.v, m, gamma, upper)
        return loss, -np.inf

    def measure(row, n, problem, pairs, scratch):
        return write_v(row, n, 1.0, 1.0, problem, scratch)

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        measure=inlined(measure, name=f"{name}_measure"),
        terms=curve.terms(name),
        opposite=SHARED_COLUMN,
        norm2=norm2_of_centred,
        needs_all=True,
    )


KERNELS = {
    "llw": _make("llw", HINGE),
    "llw2": _make("llw2", SQUARED_HINGE),
    ("llw", "classes"): one_vs_rest.make("llw_by_classes", HINGE, own_dual=False),
    ("llw2", "classes"): one_vs_rest.make("llw2_by_classes", SQUARED_HINGE, own_dual=False),
}
