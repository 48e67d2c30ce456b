"""The primal problem of every loss, stated with cvxpy and solved by Clarabel's interior point method."""

from __future__ import annotations

import cvxpy as cp
import numpy as np


def solve(
    loss: str,
    X: np.ndarray,
    labels: np.ndarray,
    k: int,
    C: float | np.ndarray,
    margin: float = 1.0,
    smooth: float = 0.5,
    top: int = 5,
    *,
    margins: np.ndarray | None = None,
    own_costs: np.ndarray | None = None,
) -> tuple[float, np.ndarray]:
    """The least ½‖W‖² + Σ C_i losses over all rows, and W, shape (d, k).

    Parameters
    ----------
    labels : ndarray, shape (n,) or (n, k)
        Codes, or the indicator of each row's own classes.
    C : float or ndarray of shape (n,)
    margins : ndarray of shape (k, k), optional
        Δ(y, j).
    own_costs : ndarray of shape (k,), optional
        What the losses of the row's own classes are multiplied by.
    """
    W = cp.Variable((X.shape[1], k))
    Y = np.eye(k)[labels] if labels.ndim == 1 else labels.astype(float)
    of_class = Y.argmax(axis=1)
    delta = np.ones(Y.shape) if margins is None else np.where(Y > 0, 1.0, margins[of_class])
    of_own = np.ones(k) if own_costs is None else own_costs
    factors = np.where(Y > 0, of_own, 1.0)
    weights = np.broadcast_to(C, len(X)).astype(float)
    value = losses(loss, X @ W, Y, margin, smooth, top, delta, weights[:, None] * factors)
    constraints = [cp.sum(W, axis=1) == 0] if loss in ("llw", "llw2") else []
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + value), constraints)
    tol = 1e-8 if loss == "logistic" else 1e-9  # what it reaches with exponential cones, and without
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol / 10, tol_gap_rel=tol, tol_feas=tol)
    assert problem.status == cp.OPTIMAL
    return problem.value, W.value


def losses(
    loss: str,
    S: cp.Expression,
    Y: np.ndarray,
    margin: float,
    smooth: float,
    top: int,
    delta: np.ndarray,
    weights: np.ndarray,
) -> cp.Expression:
    """Σ of the weighted losses of scores S of rows whose classes are those in Y; all of shape (n, k).

    The score of a row's own class is the mean of several. `weights` are of single classes where the loss
    charges each class by itself, and else the first one of a row is of the row.
    """
    k = Y.shape[1]
    shares = Y / np.maximum(Y.sum(axis=1, keepdims=True), 1)
    own = cp.reshape(cp.sum(cp.multiply(S, shares), axis=1), (len(Y), 1), order="C") @ np.ones((1, k))
    wrong = cp.pos(cp.multiply(1 - Y, delta - margin * (own - S)))  # 0 for the own class
    signed = cp.pos(delta - cp.multiply(2 * Y - 1, S))
    alone = cp.multiply(1 - Y, signed)
    of_rows = weights[:, 0]
    match loss:
        case "ww":
            return cp.sum(cp.multiply(weights, wrong))
        case "ww2":
            return cp.sum(cp.multiply(weights, cp.square(wrong)))
        case "wws":
            return cp.sum(cp.multiply(weights, cp.huber(wrong, smooth))) / (2 * smooth)
        case "cs":
            return of_rows @ cp.max(wrong, axis=1)
        case "cs2":
            return of_rows @ cp.square(cp.max(wrong, axis=1))
        case "top-m":
            m = min(top, k - 1)
            return sum(c * cp.sum_largest(row, m) for c, row in zip(of_rows, wrong, strict=True)) / m
        case "llw":
            return cp.sum(cp.multiply(weights, alone))
        case "llw2":
            return cp.sum(cp.multiply(weights, cp.square(alone)))
        case "ovr":
            return cp.sum(cp.multiply(weights, signed))
        case "ovr2":
            return cp.sum(cp.multiply(weights, cp.square(signed)))
        case "logistic":
            return of_rows @ (cp.log_sum_exp(S, axis=1) - cp.sum(cp.multiply(S, Y), axis=1))
        case "sparsemax":  # max_p (pᵀs - ½‖p‖²) = min_t (max_j t_j + ½‖s - t‖²)
            T = cp.Variable(Y.shape)
            nearest = cp.max(T, axis=1) + 0.5 * cp.sum(cp.square(S + delta - T), axis=1)
            return of_rows @ (nearest - own[:, 0] - 0.5)
    raise ValueError(loss)
