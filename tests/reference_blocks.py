"""The block problem of one row in plain NumPy: by breakpoints, or Wright's function for the logistic loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import wrightomega


def by_breakpoints(v: Any, alpha: Any, beta: Any, upper: Any, total: Any) -> Any:
    """Minimiser of ½Σ α_j b_j² + ½β(Σb)² - vᵀb over 0 <= b_j <= upper_j, Σb <= total.

    It is clip((v - γ) / α, 0, upper) with γ = βΣb or, if this Σb is more than `total`, with the γ for which
    it equals that.

    Parameters
    ----------
    v : ndarray of float, or of Fraction for an answer without rounding
    alpha, upper : numbers of the same kind, or an array of one for each entry; `upper` may be infinite
    beta, total : numbers of the same kind; a negative β is small against α, and `total` may be infinite
    """
    if len(v) == 0:
        return v
    alpha, upper = np.broadcast_to(alpha, v.shape), np.broadcast_to(upper, v.shape)
    b = clipped_at_root(v, alpha, upper, beta, 1, 0)
    if b.sum() > total:  # now only differences matter
        b = clipped_at_root(v - v.max(), alpha, upper, 1, 0, total)
    return b


def clipped_at_root(v: Any, alpha: Any, upper: Any, a: Any, c: int, wanted: Any) -> Any:
    """b = clip((v - γ) / α, 0, upper) with the γ for which a Σb - cγ = `wanted`.

    The left side falls, and is linear between the breakpoints of the clip. So these are bisected, and the
    linear piece is solved.
    """

    def clipped(gamma: Any) -> Any:
        return np.minimum(np.maximum((v - gamma) / alpha, 0 * alpha), upper)

    def surplus(gamma: Any) -> Any:
        return a * clipped(gamma).sum() - c * gamma - wanted

    at_upper = v - alpha * upper  # where, as γ rises, an entry leaves its bound
    points = sorted({0 * v[0], *v, *at_upper[upper != np.inf]})
    beyond = points[-1] - points[0] + alpha[0]
    points = [points[0] - beyond, *points, points[-1] + beyond]
    low, high = 0, len(points) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if surplus(points[middle]) > 0 else (low, middle)
    between = (points[low] + points[high]) / 2
    slope = a * (1 / alpha[(v > between) & (at_upper < between)]).sum() + c
    return clipped(points[high] + (surplus(points[high]) / slope if slope else 0))


def project_to_simplex(u: np.ndarray, z: float) -> np.ndarray:
    """Nearest point of {b >= 0, Σb = z}: Blondel et al. (2014), Algorithm 2, word for word."""
    mu = np.sort(u)[::-1]
    pi = (np.cumsum(mu) - z) / np.arange(1, len(u) + 1)
    rho = np.max(np.flatnonzero(mu - pi > 0))
    return np.maximum(u - pi[rho], 0)


def logistic_block(scores: np.ndarray, y: int, q: Any, C: Any, among: np.ndarray) -> np.ndarray:
    """C p for the wrong classes, of the p that minimises C Σ p log p + aᵀs + ½q‖a‖² with a = C (e_y - p).

    Where the gradient is the same for all classes, log p_j + qC p_j = s_j + qC [j = y] - θ. The left side is
    solved by qC p_j = ω(s_j + qC [j = y] - θ + log qC) with Wright's ω, and the sum of p falls in θ, which is
    bisected in extended precision.

    Parameters
    ----------
    scores : ndarray, shape (k,)
        Without the row's own part.
    among : ndarray of bool, shape (k,)
        Classes that may have a dual; the others' are 0.
    """
    curvature = np.longdouble(q) * C
    part = among | (np.arange(len(scores)) == y)
    z = (scores - scores[y] + curvature * (np.arange(len(scores)) == y))[part]

    def probabilities(theta: Any) -> np.ndarray:
        x = z - theta + np.log(curvature)
        omega = wrightomega(x.astype(float)).astype(np.longdouble)
        for _ in range(2):  # Newton's steps to the digits that SciPy does not have
            omega -= omega * (omega + np.log(np.maximum(omega, 1e-320)) - x) / (1 + omega) * (omega > 1e-300)
        return omega / curvature

    # With p_j <= 1 for all, and p_j >= 1 / k for one of them, θ is between these.
    low, high = z.max() - curvature - 1, z.max() + np.log(len(z)) + 1
    while low < (theta := (low + high) / 2) < high:
        low, high = (theta, high) if probabilities(theta).sum() > 1 else (low, theta)
    p = probabilities(high)
    b = np.zeros(len(scores), np.longdouble)
    b[part] = C * (p / p.sum())
    b[y] = 0
    return b
