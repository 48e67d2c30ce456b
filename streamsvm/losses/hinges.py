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

from streamsvm.kernels.frame import linear_term
from streamsvm.kernels.jit import inlined
from streamsvm.losses.threshold import UNBOUNDED


class Hinge(NamedTuple):
    """A form of the hinge, as inlined functions."""

    value: Any  # (z, problem) -> φ(z)
    dual_term: Any  # (b, C, problem) -> what the dual b adds to the dual objective
    curvature: Any  # (C, problem) -> minus the second derivative of the dual term
    upper: Any  # (C,) -> U


@inlined
def _hinge(z, problem):
    return max(z, 0.0)


@inlined
def _none(C, problem):
    return 0.0


@inlined
def _cost(C):
    return C


@inlined
def _squared_hinge(z, problem):
    z = max(z, 0.0)
    return z * z


@inlined
def _squared_term(b, C, problem):
    return b - b * b / (4.0 * C)


@inlined
def _squared_curvature(C, problem):
    return 0.5 / C


@inlined
def _unbounded(C):
    return UNBOUNDED


@inlined
def _smooth_hinge(z, problem):
    z = max(z, 0.0)
    return z * z / (2.0 * problem.smooth) if z < problem.smooth else z - 0.5 * problem.smooth


@inlined
def _smooth_term(b, C, problem):
    return b - 0.5 * problem.smooth * b * b / C


@inlined
def _smooth_curvature(C, problem):
    return problem.smooth / C


HINGE = Hinge(_hinge, linear_term, _none, _cost)
SQUARED_HINGE = Hinge(_squared_hinge, _squared_term, _squared_curvature, _unbounded)
SMOOTH_HINGE = Hinge(_smooth_hinge, _smooth_term, _smooth_curvature, _cost)
