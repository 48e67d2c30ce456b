"""Lee-Lin-Wahba whose classes are split: the mean of the weights stands still while groups of classes meet.

The dual objective of `streamsvm.losses.lee_lin_wahba`, Σ terms - ½‖W̃‖² + ‖g‖²/2k, is coupled between the
classes by g alone, and ‖g‖²/2k is convex: its tangent at the present g is below it. With the tangent in its
place each class is a problem of its own, and what raises this lower bound raises the objective (Alber et al.
2017 wait for the mean as well). Its block problem has the solution, ρ being the curvature of φ divided by
‖x‖²:

    b_j = clip((b_j + (1 + s_j) / ‖x‖²) / (1 + ρ), 0, U)

The weights are kept as W itself, without a column of the sum: the learner subtracts the mean of all classes
where they have moved (see `streamsvm.kernels.centre`) before it next looks at them.
"""

from __future__ import annotations

from streamsvm.kernels.frame import Kernels, make_kernels
from streamsvm.kernels.jit import inlined
from streamsvm.kernels.row_steps import NOTHING
from streamsvm.kernels.simd import LANES, load_like, maximum, minimum, store, sum_lanes, zeros
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge


def _make(name: str, hinge: Hinge) -> Kernels:
    value, terms, curvature, upper_of = hinge

    def solve(row, n, problem, pairs, scratch):
        zero, inverse = zeros(), 1.0 / row.norm2
        loss, growth, upper = zero, 1.0 + curvature(row.C, problem) * inverse, upper_of(row.C)
        for r in range(n):
            c = scratch.vectors[r]
            slack = 1.0 + load_like(scratch.scores, c, zero)
            loss = loss + value(slack, problem)
            b = (load_like(scratch.old, c, zero) + slack * inverse) / growth
            store(scratch.v, r * LANES, minimum(upper, maximum(0.0, b)))
        return sum_lanes(loss), -1.0

    return make_kernels(
        name, solve=inlined(solve, name=f"{name}_solve"), terms=terms, opposite=NOTHING, inner_passes=False
    )


KERNELS = {"llw": _make("llw_by_classes", HINGE), "llw2": _make("llw2_by_classes", SQUARED_HINGE)}
