"""Weston-Watkins: the loss is a sum of hinges, one for the slack of each wrong class.

    min ½‖w‖² + C Σ_i Σ_{j≠y_i} φ(1 - M (w_y - w_j)ᵀx_i)

With the hinge φ, M = 1 gives the formulation of Wang & Scott (2021), and M = 1/2 gives Shark's (Igel et al.
2008). φ may also be the squared or the smoothed hinge (see `streamsvm.losses.hinges`). The block problem of
row i over b in [0, U]^{k-1} is

    min ½ bᵀ((1 + ρ)I + κ11ᵀ) b - uᵀb,    u_j = (1 - M (s_y - s_j)) / (M²‖x‖²) + b_j + κΣb.

Here s are the scores of the row, the b in u are the old duals, and ρ is defined in `streamsvm.losses.hinges`.
For n true classes, κ is 1/n, and s_y is their mean score. The solution is b_j = clip(v_j - γ, 0, U) with
v = u / (1 + ρ) and the γ for which κΣ_j clip(v_j - γ, 0, U) = (1 + ρ) γ (see `streamsvm.losses.threshold`).
"""

from __future__ import annotations

from typing import Any

from streamsvm.kernels.duals import clip_duals
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import LANES, load_like, store, sum_lanes, zeros
from streamsvm.losses.hinges import HINGE, SMOOTH_HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.threshold import UNBOUNDED, threshold_newton


@inlined
def find_newton(v, m, upper, slope, guess):
    """Find γ with Σ clip(v_j - γ, 0, upper) = slope γ."""
    return threshold_newton(v, m, upper, UNBOUNDED, slope, 0.0, 0.0, upper * m / slope, guess)


def make(name: str, hinge: Hinge, find_threshold: Any = find_newton) -> Kernels:
    """Make the kernels for one hinge; `find_threshold` has the signature of `find_newton`."""
    value, curve, upper_of = hinge
    curvature = curve.curvature

    def write_v(row, n, inverse, shrink, problem, scratch):
        """Write v, with -infinity in lanes without a dual; return the loss."""
        zero = zeros()
        loss, coupled = zero, row.old_sum / row.n_own
        for r in range(n):
            c = scratch.vectors[r]
            slack = 1.0 - problem.margin * (row.own_score - load_like(scratch.scores, c, zero))
            v = (slack * inverse + (load_like(scratch.old, c, zero) + coupled)) * shrink
            store(scratch.v, r * LANES, v)
            loss = loss + value(slack, problem)
        return sum_lanes(loss)

    write_v = inlined(write_v, name=f"{name}_write_v")

    def solve(row, n, problem, pairs, scratch):
        """Solve by Wang & Scott (2021), Algorithm 1.

        If the block problem is solved for some classes, including all with an old dual, the solution γ' is at
        most the γ of all classes. Any other class gets a dual only if u_j > (1 + ρ)γ, and has a loss only if
        u_j > κΣb. The score limit is the score at which u_j = min((1 + ρ)γ', κΣb).
        """
        inverse = 1.0 / (problem.margin * problem.margin * row.norm2)
        growth, upper = 1.0 + curvature(row.C, problem) * inverse, upper_of(row.C)
        slope, m = growth * row.n_own, n * LANES
        loss = write_v(row, n, inverse, 1.0 / growth, problem, scratch)
        gamma = find_threshold(scratch.v, m, upper, slope, row.old_sum / slope)
        clip_duals(scratch.v, m, gamma, upper)
        u_limit = min(growth * gamma - row.old_sum / row.n_own, 0.0)
        return loss, row.own_score + (u_limit / inverse - 1.0) / problem.margin

    def measure(row, n, problem, pairs, scratch):
        return write_v(row, n, 1.0, 1.0, problem, scratch)

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        measure=inlined(measure, name=f"{name}_measure"),
        terms=curve.terms(name),
    )


KERNELS = {"ww": make("ww", HINGE), "ww2": make("ww2", SQUARED_HINGE), "wws": make("wws", SMOOTH_HINGE)}
