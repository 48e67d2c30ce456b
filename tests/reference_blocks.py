"""The block problem of one row in plain NumPy: by breakpoints, or Wright's function for the logistic loss."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import wrightomega


def by_breakpoints(v: Any, alpha: Any, beta: Any, upper: Any, total: Any) -> Any:
    """Minimiser of ½α‖b‖² + ½β(Σb)² - vᵀb over 0 <= b_j <= upper, Σb <= total.

    It is clip((v - γ)/α, 0, upper) with γ = βΣb or, if this Σb is more than `total`, with the γ for which it
    equals that. Both are roots of functions that are linear between the breakpoints of the clip, and fall: a
    negative β is small against α.

    Parameters
    ----------
    v : ndarray of float, or of Fraction for an answer without rounding
    alpha, beta, upper, total : numbers of the same kind; the last two may be infinite
    """

    def clipped(gamma: Any) -> Any:
        return np.minimum(np.maximum((v - gamma) / alpha, 0 * alpha), upper)

    ends = {*v, *(v_j - alpha * upper for v_j in v if upper != np.inf), 0 * alpha}
    points = sorted(ends)
    beyond = points[-1] - points[0] + alpha
    points = [points[0] - beyond, *points, points[-1] + beyond]

    def piece(falling: Any) -> tuple[Any, int, Any]:
        """Where the sign changes: γ, how many are free, their Σ v plus Σ α `upper` of those at `upper`."""
        r = max(1, next((r for r, point in enumerate(points) if falling(point) <= 0), len(points) - 1))
        middle = (points[r - 1] + points[r]) / 2
        free, n_upper = (v > middle) & (v - alpha * upper < middle), int((v - alpha * upper >= middle).sum())
        return middle, int(free.sum()), v[free].sum() + (alpha * upper * n_upper if n_upper else 0)

    _, n_free, weight = piece(lambda gamma: beta * clipped(gamma).sum() - gamma)
    b = clipped(beta * weight / (alpha + beta * n_free))
    if b.sum() > total:
        gamma, n_free, weight = piece(lambda gamma: clipped(gamma).sum() - total)
        b = clipped((weight - alpha * total) / n_free if n_free else gamma)  # all the same where none is free
    return b


def exact_block(v: list[Fraction], upper: Fraction, total: Fraction) -> list[Fraction]:
    """Minimiser of ½bᵀ(I + 11ᵀ)b - vᵀb over 0 <= b_j <= upper, Σb <= total: rational, without rounding."""
    return list(by_breakpoints(np.array(v, object), Fraction(1), Fraction(1), upper, total))


def walrus(v: np.ndarray, C: float) -> np.ndarray:
    """Minimiser of ½bᵀ(I + 11ᵀ)b - vᵀb over [0, C]: the block problem of Wang & Scott (2021)."""
    return by_breakpoints(v, 1.0, 1.0, C, np.inf)


def project_to_simplex(u: np.ndarray, z: float) -> np.ndarray:
    """Nearest point of {b >= 0, Σb = z}: Blondel et al. (2014), Algorithm 2, word for word."""
    mu = np.sort(u)[::-1]
    pi = (np.cumsum(mu) - z) / np.arange(1, len(u) + 1)
    rho = np.max(np.flatnonzero(mu - pi > 0))
    return np.maximum(u - pi[rho], 0)


def logistic_block(scores: np.ndarray, y: int, q: float, C: float, among: np.ndarray) -> np.ndarray:
    """C p for the wrong classes, of the p that minimises C Σ p log p + aᵀs + ½q‖a‖² with a = C (e_y - p).

    Where the gradient is the same for all classes, log p_j + qC p_j = s_j + qC [j = y] - θ, and the left side
    is solved by qC p_j = ω(s_j + qC [j = y] - θ + log qC) with Wright's ω. The sum of p falls in θ.

    Parameters
    ----------
    scores : ndarray, shape (k,)
        Without the row's own part.
    among : ndarray of bool, shape (k,)
        Classes that may have a dual; the others' are 0.
    """
    curvature = q * C
    part = among | (np.arange(len(scores)) == y)
    u = (scores + curvature * (np.arange(len(scores)) == y))[part]

    def probabilities(theta: float) -> np.ndarray:
        return wrightomega(u - theta + np.log(curvature)).real / curvature

    # With p_j <= 1 for all, and p_j >= 1 / k for one of them, θ is between these.
    low, high = u.max() - curvature - 1, u.max() + np.log(len(u)) + 1
    theta = brentq(lambda theta: probabilities(theta).sum() - 1, low, high, xtol=1e-300, rtol=1e-15)
    b = np.zeros(len(scores))
    b[part] = C * probabilities(theta)
    b[y] = 0
    return b
