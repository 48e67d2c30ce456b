"""Crammer-Singer: the wrong class with the largest score adds to the loss, if it is inside the margin.

    min ½‖w‖² + C Σ_i φ(1 + max_{j≠y_i} w_jᵀx_i - w_yᵀx_i)    cs: φ(z) = max(z, 0);  cs2: φ(z) = max(z, 0)²

The papers' dual block α has sum zero, α_y <= C and α_j <= 0 elsewhere; b_j = -α_j for the wrong classes.
In the block problem of `streamsvm.losses.largest_slacks`

           κ                 U      Z    dual terms
    cs     1                 ∞      C    Σb
    cs2    1 + 1 / 2C‖x‖²    ∞      ∞    Σb - (Σb)²/4C
"""

from __future__ import annotations

from typing import Any

from streamsvm.kernels.frame import Kernels
from streamsvm.kernels.jit import inlined
from streamsvm.losses.hinges import SQUARED_HINGE
from streamsvm.losses.largest_slacks import find_newton, largest_slack, make_kernels_of_largest, sum_to_cost
from streamsvm.losses.threshold import UNBOUNDED


@inlined
def largest_hinge(row, n, problem, scratch):
    """Return the largest slack, if it is positive."""
    return max(largest_slack(row, n, scratch), 0.0)


@inlined
def _squared_loss(row, n, problem, scratch):
    largest = largest_hinge(row, n, problem, scratch)
    return largest * largest


@inlined
def _no_bounds(C, problem):
    return UNBOUNDED, UNBOUNDED


@inlined
def _squared_sum_term(total, C, problem):
    return -total * total / (4.0 * C)


def make(name: str, find_threshold: Any = find_newton) -> Kernels:
    """Make the kernels; `find_threshold` as `find_newton`."""
    return make_kernels_of_largest(name, largest_hinge, sum_to_cost, find_threshold=find_threshold)


def make_squared(name: str, find_threshold: Any = find_newton) -> Kernels:
    """Make the kernels with the squared loss."""
    return make_kernels_of_largest(
        name, _squared_loss, _no_bounds,
        find_threshold=find_threshold, curvature=SQUARED_HINGE.curvature, sum_term=_squared_sum_term,
    )  # fmt: skip


KERNELS = {"cs": make("cs"), "cs2": make_squared("cs2")}
