"""Crammer-Singer: the loss is the hinge of the largest slack.

    min ½‖w‖² + C Σ_i φ(1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)    cs: φ(z) = max(z, 0);  cs2: φ(z) = max(z, 0)²

In the papers, the duals α of a row sum to zero, with α_y <= C and α_j <= 0 for the wrong classes j. Here,
b_j = -α_j. The constants of the block problem (see `streamsvm.losses.largest_slacks`) are

           κ                 U      Z    dual terms
    cs     1                 ∞      C    Σb
    cs2    1 + 1 / 2C‖x‖²    ∞      ∞    Σb - (Σb)²/4C
"""

from __future__ import annotations

from typing import Any

from streamsvm.kernels.frame import Kernels
from streamsvm.kernels.jit import inlined
from streamsvm.losses.hinges import HINGE, SQUARED_HINGE, Hinge
from streamsvm.losses.largest_slacks import find_newton, largest_slack, make_kernels_of_largest
from streamsvm.losses.threshold import UNBOUNDED


def make(name: str, hinge: Hinge, find_threshold: Any = find_newton) -> Kernels:
    """Make the kernels for one hinge; `find_threshold` has the signature of `find_newton`."""
    value, curve, upper_of = hinge

    def loss_of(row, n, problem, scratch):
        return value(largest_slack(row, n, scratch), problem)

    return make_kernels_of_largest(
        name,
        inlined(loss_of, name=f"{name}_loss"),
        inlined(lambda C, problem: (UNBOUNDED, upper_of(C)), name=f"{name}_bounds"),
        find_threshold=find_threshold,
        sum_curve=curve,
    )


KERNELS = {"cs": make("cs", HINGE), "cs2": make("cs2", SQUARED_HINGE)}
