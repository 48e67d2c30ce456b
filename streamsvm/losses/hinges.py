"""The hinge, squared hinge and smoothed hinge φ(z) of a slack z, and the curvature of their duals.

A loss C φ(z) has a dual b in [0, U], which contributes b - ½ρ'b² to the dual objective. The subtracted part
is the `Curve` of the hinge. Its second derivative ρ', divided by M²‖x‖², is the ρ of the block problems.

                     φ(z)                         curve         ρ'       U
    hinge            max(z, 0)                    0             0        C
    squared hinge    max(z, 0)²                   b²/4C         1/2C     ∞
    smoothed hinge   z²/2ε up to ε, then z - ε/2  εb²/2C        ε/C      C

The loss of a row is either the sum C Σ_j φ(z_j) over the wrong classes, or C φ(z) for the largest slack z. In
the second case, b is the sum of the row's duals.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.row_steps import linear_terms, no_sum_term
from streamsvm.kernels.simd import maximum, minimum
from streamsvm.losses.threshold import UNBOUNDED


class Curve(NamedTuple):
    """Convex function of a dual, or of the sum of a row's duals, that the dual objective subtracts."""

    curvature: Any  # (C, problem) -> second derivative
    value: Any  # (b, C, problem) -> value to subtract

    def terms(self, name: str) -> Any:
        """Return the function that computes the term of a dual b, which is b minus the curve."""
        if self is STRAIGHT:
            return linear_terms
        value = self.value
        return inlined(lambda b, C, problem: b - value(b, C, problem), name=f"{name}_terms")

    def sum_term(self, name: str) -> Any:
        """Return the function that computes the term of a sum of duals, without its linear part."""
        if self is STRAIGHT:
            return no_sum_term
        value = self.value
        return inlined(lambda total, C, problem: -value(total, C, problem), name=f"{name}_sum_term")


class Hinge(NamedTuple):
    """One of the hinges φ; its inlined functions take numbers or vectors."""

    value: Any  # (z, problem) -> φ(z)
    curve: Curve
    upper: Any  # (C,) -> U


@inlined
def _squared_hinge(z, problem):
    z = maximum(0.0, z)
    return z * z


@inlined
def _smooth_hinge(z, problem):
    z = maximum(0.0, z)
    bent = minimum(problem.smooth, z)
    return bent * (z - 0.5 * bent) / problem.smooth


_cost = inlined(lambda C: C, name="cost")
STRAIGHT = Curve(
    inlined(lambda C, problem: 0.0 * C, name="no_curvature"),
    inlined(lambda b, C, problem: 0.0 * b, name="straight"),
)
HINGE = Hinge(inlined(lambda z, problem: maximum(0.0, z), name="hinge"), STRAIGHT, _cost)
SQUARED_HINGE = Hinge(
    _squared_hinge,
    Curve(
        inlined(lambda C, problem: 0.5 / C, name="squared_curvature"),
        inlined(lambda b, C, problem: b * b / (4.0 * C), name="squared_curve"),
    ),
    inlined(lambda C: UNBOUNDED + 0.0 * C, name="unbounded"),
)
SMOOTH_HINGE = Hinge(
    _smooth_hinge,
    Curve(
        inlined(lambda C, problem: problem.smooth / C, name="smooth_curvature"),
        inlined(lambda b, C, problem: 0.5 * problem.smooth * b * b / C, name="smooth_curve"),
    ),
    _cost,
)
