"""Plain NumPy versions of the mathematics, written from the papers' formulas and slow on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


def ww_block(
    scores: np.ndarray, b: np.ndarray, y: int, q: float, C: float, margin: float, among: np.ndarray
) -> np.ndarray:
    new, part = np.zeros_like(b), among & (np.arange(len(b)) != y)
    v = (1 - margin * (scores[y] - scores)) / (margin**2 * q) + b + b.sum()
    new[part] = walrus(v[part], C)
    return new


def cs_loss(scores: np.ndarray, y: int, margin: float = 1.0) -> float:
    return max(0.0, 1 + np.delete(scores, y).max() - scores[y])


def cs_block(
    scores: np.ndarray, b: np.ndarray, y: int, q: float, C: float, margin: float, among: np.ndarray
) -> np.ndarray:
    """Blondel et al. (2014), Lemma 1: of α = -b with α_y = Σb, by a projection to the simplex."""
    own = np.arange(len(b)) == y
    part = among | own
    alpha = -b
    alpha[y] = b.sum()
    cap, norm = np.where(own, C, 0.0), np.sqrt(q)
    beta = np.zeros_like(b)
    beta[part] = project_to_simplex((norm * (cap - alpha) + (scores + ~own) / norm)[part], C * norm)
    new = np.zeros_like(b)
    new[part & ~own] = -(cap - beta / norm)[part & ~own]
    return new


def pairwise(b: np.ndarray, y: int, margin: float) -> np.ndarray:
    """The row of A in W = XᵀA of duals b of wrong classes, each against the own class."""
    a = -margin * b
    a[y] += margin * b.sum()
    return a


def one_vs_rest() -> Loss:
    """Binary hinge losses of each class against the others: each dual has its own closed form."""

    def sign(k: int, y: int) -> np.ndarray:
        return np.where(np.arange(k) == y, 1.0, -1.0)

    def block(
        scores: np.ndarray, b: np.ndarray, y: int, q: float, C: float, margin: float, among: np.ndarray
    ) -> np.ndarray:
        return np.where(among, np.clip(b + (1 - sign(len(b), y) * scores) / q, 0, C), b)

    return Loss(
        value=lambda scores, y, margin: np.maximum(0, 1 - sign(len(scores), y) * scores).sum(),
        block=block,
        largest=np.max,
        own_dual=True,
        coefficients=lambda b, y, margin: sign(len(b), y) * b,
    )


@dataclass(frozen=True)
class Loss:
    """A loss in plain NumPy: what the kernels of the same name are compared with."""

    value: Callable[..., float]  # (scores, y, margin), without C
    block: Callable[..., np.ndarray]  # (scores, b, y, ‖x‖², C, margin, among): the duals that solve the block
    largest: Callable[[np.ndarray], float]  # (b,): feasible duals are >= 0, and this is at most C
    own_dual: bool = False
    coefficients: Callable[..., np.ndarray] = pairwise  # (b, y, margin)


LOSSES = {
    "ww": Loss(ww_loss, ww_block, np.max),
    "cs": Loss(cs_loss, cs_block, np.sum),
    "ovr": one_vs_rest(),
}


def primal(
    W: np.ndarray,
    X: np.ndarray,
    labels: np.ndarray,
    C: float | np.ndarray,
    loss: str,
    margin: float = 1.0,
) -> float:
    """½‖W‖² + Σ C_i loss_i over the rows that are not zero."""
    scores, cost = X @ W, np.broadcast_to(C, len(X))
    rows = np.flatnonzero((X != 0).any(axis=1))
    return 0.5 * (W**2).sum() + sum(cost[i] * LOSSES[loss].value(scores[i], labels[i], margin) for i in rows)


def weights(
    B: np.ndarray, X: np.ndarray, labels: np.ndarray, margin: float = 1.0, loss: str = "ww"
) -> np.ndarray:
    """W of shape (d, k) from duals B >= 0 of shape (n, k)."""
    A = [LOSSES[loss].coefficients(b, y, margin) for b, y in zip(B, labels, strict=True)]
    return X.T @ np.array(A)


def dual(B: np.ndarray, X: np.ndarray, labels: np.ndarray, margin: float = 1.0, loss: str = "ww") -> float:
    return B.sum() - 0.5 * (weights(B, X, labels, margin, loss) ** 2).sum()


def are_feasible(B: np.ndarray, labels: np.ndarray, C: float | np.ndarray, loss: str) -> bool:
    """Whether duals of shape (n, k) are in the feasible set, up to rounding."""
    cost = np.broadcast_to(C, len(B))
    own = B[np.arange(len(B)), labels]
    return (
        (B >= 0).all()
        and (LOSSES[loss].own_dual or not own.any())
        and all(LOSSES[loss].largest(b) <= c * (1 + 1e-12) for b, c in zip(B, cost, strict=True))
    )


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
    among = np.ones(len(b), bool) if among is None else among
    new = LOSSES[loss].block(x @ W, b, y, x @ x, C, margin, among)
    coefficients = LOSSES[loss].coefficients
    return W + np.outer(x, coefficients(new, y, margin) - coefficients(b, y, margin)), new
