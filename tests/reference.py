"""Plain NumPy versions of the mathematics, written from the papers' formulas and slow on purpose."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def walrus(v: np.ndarray, C: float) -> np.ndarray:
    """Minimiser of ½bᵀ(I + 11ᵀ)b - vᵀb over [0, C]: every breakpoint of γ tried in turn.

    The optimum is clip(v - γ, 0, C) where γ equals its sum; that sum is linear between breakpoints.
    """
    total = lambda gamma: np.clip(v - gamma, 0, C).sum()  # noqa: E731
    points = np.unique(np.concatenate([[0.0], v, v - C]))
    points = points[points >= 0]
    below = points[[total(g) >= g for g in points]]
    low = below.max() if len(below) else 0.0
    above = points[points > low]
    probe = (low + above.min()) / 2 if len(above) else low + 1.0
    upper, free = v - probe >= C, (v - probe > 0) & (v - probe < C)
    gamma = (C * upper.sum() + v[free].sum()) / (1 + free.sum())
    return np.clip(v - gamma, 0, C)


def exact_block(v: list[Fraction], upper: Fraction, total: Fraction) -> list[Fraction]:
    """Minimiser of ½bᵀ(I + 11ᵀ)b - vᵀb over 0 <= b_j <= upper, Σb <= total: rational, without rounding.

    It is clip(v - γ, 0, upper) for the γ at which the sum is min(γ, total). The difference of the two is
    linear between breakpoints, and falls.
    """

    def clipped(gamma: Fraction) -> list[Fraction]:
        return [min(max(v_j - gamma, Fraction(0)), upper) for v_j in v]

    def excess(gamma: Fraction) -> Fraction:
        return sum(clipped(gamma), Fraction(0)) - min(gamma, total)

    points = {Fraction(0), total, *v, *(v_j - upper for v_j in v)}
    points = sorted(point for point in points if point >= 0)
    points.append(points[-1] + 1)
    after = next(r for r in range(len(points)) if excess(points[r]) <= 0)
    if excess(points[after]) == 0:
        return clipped(points[after])
    low, high = points[after - 1], points[after]
    return clipped(low + (high - low) * excess(low) / (excess(low) - excess(high)))


def project_to_simplex(u: np.ndarray, z: float) -> np.ndarray:
    """Nearest point of {b >= 0, Σb = z}: Blondel et al. (2014), Algorithm 2, word for word."""
    mu = np.sort(u)[::-1]
    pi = (np.cumsum(mu) - z) / np.arange(1, len(u) + 1)
    rho = np.max(np.flatnonzero(mu - pi > 0))
    return np.maximum(u - pi[rho], 0)


def ww_loss(scores: np.ndarray, y: int, margin: float = 1.0) -> float:
    slack = np.maximum(0, 1 - margin * (scores[y] - scores))
    return slack.sum() - slack[y]


def cs_loss(scores: np.ndarray, y: int, margin: float = 1.0) -> float:
    return max(0.0, 1 + np.delete(scores, y).max() - scores[y])


def primal(
    W: np.ndarray, X: np.ndarray, labels: np.ndarray, C: float, loss: str, margin: float = 1.0
) -> float:
    """½‖W‖² + C Σ loss over the rows that are not zero."""
    each = {"ww": ww_loss, "cs": cs_loss}[loss]
    scores = X @ W
    rows = np.flatnonzero((X != 0).any(axis=1))
    return 0.5 * (W**2).sum() + C * sum(each(scores[i], labels[i], margin) for i in rows)


def weights(B: np.ndarray, X: np.ndarray, labels: np.ndarray, margin: float = 1.0) -> np.ndarray:
    """W of shape (d, k) from duals B >= 0 of shape (n, k), zero in each row's own class."""
    A = -margin * B
    A[np.arange(len(labels)), labels] = margin * B.sum(axis=1)
    return X.T @ A


def dual(B: np.ndarray, X: np.ndarray, labels: np.ndarray, margin: float = 1.0) -> float:
    return B.sum() - 0.5 * (weights(B, X, labels, margin) ** 2).sum()


def one_visit(
    W: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    y: int,
    C: float,
    loss: str,
    margin: float = 1.0,
    among: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """W and b after one exact block step on row (x, y), over the classes `among` if it is given."""
    scores, q = x @ W, x @ x
    others = np.arange(len(b)) != y
    if among is not None:
        others &= among
    new = np.zeros_like(b)
    if loss == "ww":
        v = (1 - margin * (scores[y] - scores)) / (margin**2 * q) + b + b.sum()
        new[others] = walrus(v[others], C)
    else:
        alpha = -b
        alpha[y] = b.sum()
        part = others | (np.arange(len(b)) == y)
        cap = np.where(others, 0.0, C)
        norm = np.sqrt(q)
        point = norm * (cap - alpha) + (scores + others) / norm
        beta = np.zeros_like(b)
        beta[part] = project_to_simplex(point[part], C * norm)
        new[others] = -(cap - beta / norm)[others]  # -α of Lemma 1
    step = -margin * (new - b)
    step[y] = margin * (new - b).sum()
    return W + np.outer(x, step), new
