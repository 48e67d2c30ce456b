"""The hinge of one class, and its squared and smoothed forms, as functions of the slack z.

A loss that charges each class by itself, C Σ_j φ(z_j), has one dual b_j in [0, U] for each of them. The dual
objective has the term b_j - Cφ*(b_j / C), and its curvature adds ρ‖b‖²/2 to the block problem.

                     φ(z)                         dual term     curvature   U
    hinge            max(z, 0)                    b             0           C
    squared hinge    max(z, 0)²                   b - b²/4C     1/2C        ∞
    smoothed hinge   z²/2ε up to ε, then z - ε/2  b - εb²/2C    ε/C         C
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.row_steps import linear_terms
from streamsvm.kernels.simd import maximum, minimum
from streamsvm.losses.threshold import UNBOUNDED


class Hinge(NamedTuple):
    """A form of the hinge, as inlined functions of numbers or of vectors of them."""

    value: Any  # (z, problem) -> φ(z)
    terms: Any  # (b, C, problem) -> what the duals b add to the dual objective
    curvature: Any  # (C, problem) -> minus the second derivative of a dual's term
    upper: Any  # (C,) -> U


@inlined
def _hinge(z, problem):
    return maximum(0.0, z)


@inlined
def no_curvature(C, problem):
    return 0.0 * C


@inlined
def _cost(C):
    return C


@inlined
def _squared_hinge(z, problem):
    z = maximum(0.0, z)
    return z * z


@inlined
def _squared_terms(b, C, problem):
    return b - b * b / (4.0 * C)


@inlined
def _squared_curvature(C, problem):
    return 0.5 / C


@inlined
def _unbounded(C):
    return UNBOUNDED + 0.0 * C


@inlined
def _smooth_hinge(z, problem):
    z = maximum(0.0, z)
    bent = minimum(problem.smooth, z)
    return bent * (z - 0.5 * bent) / problem.smooth


@inlined
def _smooth_terms(b, C, problem):
    return b - 0.5 * problem.smooth * b * b / C


@inlined
def _smooth_curvature(C, problem):
    return problem.smooth / C


HINGE = Hinge(_hinge, linear_terms, no_curvature, _cost)
SQUARED_HINGE = Hinge(_squared_hinge, _squared_terms, _squared_curvature, _unbounded)
SMOOTH_HINGE = Hinge(_smooth_hinge, _smooth_terms, _smooth_curvature, _cost)
