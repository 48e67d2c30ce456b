"""The block solvers are exact: KKT conditions of many blocks, and the answers of other solvers on some."""

from __future__ import annotations

import math

import numpy as np
import pytest
import reference_blocks
from cases import few
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from streamsvm.kernels.jit import kernel
from streamsvm.losses.published.crammer_singer import threshold_pivot
from streamsvm.losses.published.crammer_singer import threshold_sorted as simplex_sorted
from streamsvm.losses.published.weston_watkins import threshold_sorted as box_sorted
from streamsvm.losses.threshold import UNBOUNDED
from streamsvm.losses.threshold import threshold_newton as inlined_newton

pytestmark = pytest.mark.engine

TOLERANCE = 1e-10
threshold_newton = kernel(inlined_newton.py_func)
KINDS = ("mixed", "ties", "all at C", "far below 0", "equal", "around C", "huge and tiny")


def random_block(rng: np.random.Generator, kind: str, most: int = 5000) -> tuple[np.ndarray, float]:
    """A linear term v, shape (k - 1,), and a bound C, over the range of sizes that occur in training."""
    m = int(np.exp(rng.uniform(0, np.log(most))))
    C = 10 ** rng.uniform(-6, 6)
    scale = 10 ** rng.uniform(-6, 6)
    v = scale * rng.normal(size=m)
    if kind == "ties":
        v = scale * rng.integers(-2, 3, size=m).astype(float)
    elif kind == "all at C":
        v = np.abs(v) + (m + 1) * C
    elif kind == "far below 0":
        v -= 1e8 * scale
    elif kind == "equal":
        v[:] = scale
    elif kind == "around C":
        v = C * rng.integers(0, 4, size=m) + C * rng.choice([0, 1e-12, 0.5], size=m)
    elif kind == "huge and tiny":
        v *= 10.0 ** rng.integers(-12, 13, size=m)
    return v, C


def with_room(v: np.ndarray) -> np.ndarray:
    """`v` in float64, followed by entries that a solver must not read."""
    return np.concatenate([v.astype(float), np.full(8, np.nan)])


def gamma_newton(v: np.ndarray, C: float, guess: float) -> float:
    return threshold_newton(with_room(v), len(v), C, UNBOUNDED, 1.0, 0.0, 0.0, C * len(v), guess)


def gamma_sorted(v: np.ndarray, C: float) -> float:
    return box_sorted(with_room(v), len(v), C, 1.0, 0.0)


def kkt_violation(b: np.ndarray, v: np.ndarray, C: float) -> float:
    """How far b is from optimal, relative to the terms of the gradient b_j + Σb - v_j that matter."""
    total = b.sum()
    gradient = b + total - v
    violation = np.where(b <= 0, -gradient, np.where(b >= C, gradient, np.abs(gradient))).max(initial=0.0)
    return max(violation, 0.0) / max(total, b.max(initial=0.0), np.finfo(float).tiny)


@pytest.mark.parametrize("kind", few(KINDS, "huge and tiny"))
def test_kkt_conditions(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    worst = 0.0
    for _ in range(100_000 // len(KINDS) + 1):
        v, C = random_block(rng, kind)
        guess = rng.choice([0.0, C, np.abs(v).max(), C * len(v) * rng.random()])
        for gamma in (gamma_sorted(v, C), gamma_newton(v, C, guess)):
            worst = max(worst, kkt_violation(np.clip(v - gamma, 0, C), v, C))
    assert worst <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_a_general_solver(kind: str) -> None:
    """lsq_linear on the Cholesky factor: ½bᵀ(I + 11ᵀ)b - vᵀb = ½‖Lᵀb - L⁻¹v‖² + constant."""
    rng = np.random.default_rng(50 + KINDS.index(kind))
    for _ in range(20):
        v, C = random_block(rng, kind, most=12)
        scale = np.abs(v).max() or 1.0  # to the range of the general solver
        v, C = v / scale, C / scale
        factor = np.linalg.cholesky(np.eye(len(v)) + 1)
        answer = lsq_linear(factor.T, np.linalg.solve(factor, v), (0, C), method="bvls", tol=1e-14).x
        for gamma in (gamma_sorted(v, C), gamma_newton(v, C, 0.0)):
            np.testing.assert_allclose(np.clip(v - gamma, 0, C), answer, atol=1e-8 * max(1, C))
        np.testing.assert_allclose(reference_blocks.walrus(v, C), answer, atol=1e-8 * max(1, C))


ordinary = st.floats(-1e9, 1e9, allow_subnormal=False)


@settings(max_examples=300)
@given(st.lists(ordinary, min_size=1, max_size=30), st.floats(1e-6, 1e6), st.floats(0, 1e10))
def test_solvers_agree_on_anything(values: list[float], C: float, guess: float) -> None:
    v = np.array(values)
    expected = reference_blocks.walrus(v, C)
    for gamma in (gamma_sorted(v, C), gamma_newton(v, C, guess)):
        # The rounding of v itself limits the accuracy of any solver.
        np.testing.assert_allclose(
            np.clip(v - gamma, 0, C), expected, rtol=1e-9, atol=1e-14 * np.abs(v).max()
        )


def test_padding_and_own_class_as_zeros_change_nothing() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        v, C = random_block(rng, "mixed", most=40)
        padded = np.concatenate([v[:3], np.zeros(5), v[3:], np.zeros(8)])
        assert gamma_newton(padded, C, 0.0) == pytest.approx(gamma_newton(v, C, 0.0), rel=1e-13, abs=0)
        assert gamma_sorted(padded, C) == pytest.approx(gamma_sorted(v, C), rel=1e-13, abs=0)


# -- Crammer-Singer --------------------------------------------------------------------------------


def thresholds(v: np.ndarray, C: float, guess: float) -> list[tuple[np.ndarray, float, float]]:
    """For each solver: its arguments d and the largest v_j, and the threshold it finds."""
    top = float(v.max())
    d, m = v - top, len(v)
    if top <= 0:  # all duals are 0
        return [(d, top, 0.0)]
    low = -min(C, top / 2)
    found = [
        threshold_newton(with_room(d), m, UNBOUNDED, C, 1.0, top, low, 0.0, guess),
        simplex_sorted(with_room(d), m, C, 1.0, top),
        threshold_pivot(with_room(d), m, C, top),
    ]
    return [(d, top, theta) for theta in found]


@pytest.mark.parametrize("kind", few(KINDS, "huge and tiny"))
def test_crammer_singer_satisfies_the_kkt_conditions(kind: str) -> None:
    """With γ = top + θ, b_j = max(v_j - γ, 0) is optimal if and only if Σ b = min(γ, C)."""
    rng = np.random.default_rng(100 + KINDS.index(kind))
    for _ in range(5000):
        v, C = random_block(rng, kind)
        C *= 10.0 ** rng.integers(-14, 15)
        guess = -rng.choice([0.0, C, np.abs(v).max(), C * rng.random()])
        for d, top, theta in thresholds(v, C, guess):
            assert -C <= theta <= 0
            b = np.maximum(d - theta, 0)
            wanted = min(max(top, 0.0) + theta, C)  # γ: both terms are of the size of Σ b, or C is less
            assert math.fsum(b) == pytest.approx(wanted, rel=1e-12, abs=1e-14 * max(top, 0.0) * (wanted < C))


@pytest.mark.parametrize("kind", KINDS)
def test_crammer_singer_agrees_with_a_general_solver(kind: str) -> None:
    """With s = C - Σb >= 0 for slack: minimise over b, s >= 0 with a heavy penalty on the equation."""
    rng = np.random.default_rng(150 + KINDS.index(kind))
    for _ in range(20):
        v, C = random_block(rng, kind, most=12)
        scale = np.abs(v).max() or 1.0
        v, C = v / scale, min(C / scale, 2.0)  # Σ b is less than the largest v
        m, heavy = len(v), 1e4
        factor = np.linalg.cholesky(np.eye(m) + 1)
        matrix = np.vstack([np.column_stack([factor.T, np.zeros(m)]), heavy * np.ones(m + 1)])
        target = np.append(np.linalg.solve(factor, v), heavy * C)
        answer = lsq_linear(matrix, target, (0, np.inf), method="bvls", tol=1e-15).x[:m]
        for d, _, theta in thresholds(v, C, 0.0):
            np.testing.assert_allclose(np.maximum(d - theta, 0), answer, atol=1e-6)


def test_crammer_singer_projects_to_the_simplex_where_its_bound_holds() -> None:
    rng = np.random.default_rng(9)
    for _ in range(2000):
        v, z = random_block(rng, "mixed", most=200)
        v += 3 * np.abs(v).max() + 3 * z  # Σ b would exceed z
        expected = reference_blocks.project_to_simplex(v - v.max(), z)
        for d, _, theta in thresholds(v, z, 0.0):
            np.testing.assert_allclose(np.maximum(d - theta, 0), expected, rtol=1e-9, atol=1e-12 * z)
