"""The primal problem of every loss, stated with cvxpy and solved by Clarabel's interior point method."""

from __future__ import annotations

import cvxpy as cp
import numpy as np


def solve(
    loss: str,
    X: np.ndarray,
    labels: np.ndarray,
    k: int,
    C: float,
    margin: float = 1.0,
    smooth: float = 0.5,
    top: int = 5,
) -> tuple[float, np.ndarray]:
    """The least ½‖W‖² + C Σ losses over all rows, and W, shape (d, k)."""
    W = cp.Variable((X.shape[1], k))
    value = losses(loss, X @ W, np.eye(k)[labels], margin, smooth, top)
    constraints = [cp.sum(W, axis=1) == 0] if loss in ("llw", "llw2") else []
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W) + C * value), constraints)
    tol = 1e-8 if loss == "logistic" else 1e-9  # what it reaches with exponential cones, and without
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol / 10, tol_gap_rel=tol, tol_feas=tol)
    assert problem.status == cp.OPTIMAL
    return problem.value, W.value


def losses(
    loss: str, S: cp.Expression, Y: np.ndarray, margin: float, smooth: float, top: int
) -> cp.Expression:
    """Σ of the losses of scores S, shape (n, k), of rows whose classes are the ones in Y, shape (n, k)."""
    k = Y.shape[1]
    own = cp.reshape(cp.sum(cp.multiply(S, Y), axis=1), (len(Y), 1), order="C") @ np.ones((1, k))
    wrong = cp.pos(cp.multiply(1 - Y, 1 - margin * (own - S)))  # 0 for the own class
    signed = cp.pos(1 - cp.multiply(2 * Y - 1, S))
    alone = cp.multiply(1 - Y, signed)
    match loss:
        case "ww":
            return cp.sum(wrong)
        case "ww2":
            return cp.sum_squares(wrong)
        case "wws":
            return cp.sum(cp.huber(wrong, smooth)) / (2 * smooth)
        case "cs":
            return cp.sum(cp.max(wrong, axis=1))
        case "cs2":
            return cp.sum_squares(cp.max(wrong, axis=1))
        case "top-m":
            m = min(top, k - 1)
            return sum(cp.sum_largest(row, m) for row in wrong) / m
        case "llw":
            return cp.sum(alone)
        case "llw2":
            return cp.sum_squares(alone)
        case "ovr":
            return cp.sum(signed)
        case "ovr2":
            return cp.sum_squares(signed)
        case "logistic":
            return cp.sum(cp.log_sum_exp(S, axis=1)) - cp.sum(cp.multiply(S, Y))
    raise ValueError(loss)
