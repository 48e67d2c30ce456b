"""The block solvers are exact: KKT conditions on many blocks, and other solvers' answers on some."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from streamsvm.losses.crammer_singer import threshold_sorted
from streamsvm.losses.weston_watkins import gamma_newton as compiled_newton
from streamsvm.losses.weston_watkins import gamma_sorted as compiled_sorted

TOLERANCE = 1e-10
KINDS = ("mixed", "ties", "all at C", "far below 0", "equal", "around C", "huge and tiny")


def random_block(rng: np.random.Generator, kind: str, most: int = 5000) -> tuple[np.ndarray, float]:
    """A linear term v, shape (k - 1,), and a bound C, over the range of sizes that training meets."""
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
    """`v` in float64, followed by what a solver must not read."""
    return np.concatenate([v.astype(float), np.full(8, np.nan)])


def gamma_newton(v: np.ndarray, C: float, guess: float) -> float:
    return compiled_newton(with_room(v), len(v), C, guess)


def gamma_sorted(v: np.ndarray, C: float) -> float:
    return compiled_sorted(with_room(v), len(v), C)


def kkt_violation(b: np.ndarray, v: np.ndarray, C: float) -> float:
    """How far b is from optimal, relative to the terms of the gradient b_j + Σb - v_j that matter."""
    total = b.sum()
    gradient = b + total - v
    violation = np.where(b <= 0, -gradient, np.where(b >= C, gradient, np.abs(gradient))).max(initial=0.0)
    return max(violation, 0.0) / max(total, b.max(initial=0.0), np.finfo(float).tiny)


@pytest.mark.parametrize("kind", KINDS)
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
        scale = np.abs(v).max() or 1.0  # to where the general solver is at home
        v, C = v / scale, C / scale
        factor = np.linalg.cholesky(np.eye(len(v)) + 1)
        answer = lsq_linear(factor.T, np.linalg.solve(factor, v), (0, C), method="bvls", tol=1e-14).x
        for gamma in (gamma_sorted(v, C), gamma_newton(v, C, 0.0)):
            np.testing.assert_allclose(np.clip(v - gamma, 0, C), answer, atol=1e-8 * max(1, C))
        np.testing.assert_allclose(reference.walrus(v, C), answer, atol=1e-8 * max(1, C))


ordinary = st.floats(-1e9, 1e9, allow_subnormal=False)


@settings(max_examples=300, deadline=None)
@given(st.lists(ordinary, min_size=1, max_size=30), st.floats(1e-6, 1e6), st.floats(0, 1e10))
def test_solvers_agree_on_anything(values: list[float], C: float, guess: float) -> None:
    v = np.array(values)
    expected = reference.walrus(v, C)
    for gamma in (gamma_sorted(v, C), gamma_newton(v, C, guess)):
        # Rounding of v itself limits what any solver can say.
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


def test_projection_to_the_simplex() -> None:
    rng = np.random.default_rng(9)
    for _ in range(2000):
        u, z = random_block(rng, "mixed", most=200)
        b = np.maximum(u - threshold_sorted(u, len(u), z), 0)
        np.testing.assert_allclose(
            b, reference.project_to_simplex(u, z), rtol=1e-9, atol=1e-12 * np.abs(u).max()
        )
        # Optimality: moving mass from any class that has some towards any other cannot help.
        assert b.sum() == pytest.approx(z, rel=1e-9, abs=1e-12 * np.abs(u).max())
        pull = u - b
        assert pull[b > 0].min() >= pull.max() - 1e-9 * max(np.abs(u).max(), z)
