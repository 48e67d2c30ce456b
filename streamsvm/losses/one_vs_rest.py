"""One-vs-rest: k binary SVMs, each of which separates one class from all others.

    min ½‖W‖² + C Σ_i Σ_c φ(1 - σ_ic w_cᵀx_i),    σ_ic = 1 for the true class c of row i, else -1

with the hinge or the squared hinge φ (see `streamsvm.losses.hinges`). The dual b_ic in [0, U] of row i and
class c adds σ_ic b_ic x_i to w_c. The block problem separates into one problem per class, which is solved by
the step of Hsieh et al. (2008), Algorithm 1, with ρ = ρ' / ‖x‖² for the ρ' of `streamsvm.losses.hinges`:

    b_c = clip((b_c + (1 - σ_c s_c) / ‖x‖²) / (1 + ρ), 0, U)
"""

from __future__ import annotations

from streamsvm.kernels.class_pairs import cost_lanes
from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.row_steps import NOTHING
from streamsvm.kernels.scratch import own_bits
from streamsvm.kernels.simd import (
    LANES,
    above,
    load_like,
    maximum,
    minimum,
    not_below,
    select,
    store,
    sum_lanes,
    zeros,
)
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge


def make(name: str, hinge: Hinge, *, own_dual: bool) -> Kernels:
    """Make the kernels for one hinge; if `own_dual` is False, only the wrong classes of a row have duals."""
    value, curve, upper_of = hinge
    curvature = curve.curvature

    def solve(row, n, problem, pairs, scratch):
        zero, inverse = zeros(), 1.0 / row.norm2
        loss, growth, upper = zero, zero + (1.0 + curvature(row.C, problem) * inverse), zero + upper_of(row.C)
        for r in range(n):
            c = scratch.vectors[r]
            s = load_like(scratch.scores, c, zero)
            if own_dual:
                own = own_bits(row.y, c, row.own)
                own &= not_below(load_like(scratch.hidden, c, zero), 0.0)  # the true class may be hidden
                s = select(own, zero - s, s)
            slack = 1.0 + s
            losses = value(slack, problem)
            if pairs is not None:
                cost = cost_lanes(row, c, pairs, zero)
                counts, losses = above(cost, 0.0), losses * cost
                growth = 1.0 + select(counts, curvature(row.C * cost, problem) * inverse, 0.0)
                upper = select(counts, upper_of(row.C * cost), 0.0)
            loss = loss + losses
            b = (load_like(scratch.old, c, zero) + slack * inverse) / growth
            store(scratch.v, r * LANES, minimum(upper, maximum(0.0, b)))
        return sum_lanes(loss), -1.0

    return make_kernels(
        name,
        solve=inlined(solve, name=f"{name}_solve"),
        terms=curve.terms(name),
        own_dual=own_dual,
        opposite=NOTHING,
    )


KERNELS = {"ovr": make("ovr", HINGE, own_dual=True), "ovr2": make("ovr2", SQUARED_HINGE, own_dual=True)}
