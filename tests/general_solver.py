"""The primal problem of every loss, solved by Clarabel's interior point method through cvxpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import reference


def solve(
    loss: str,
    X: np.ndarray,
    labels: np.ndarray,
    k: int,
    C: float | np.ndarray,
    margin: float = 1.0,
    *,
    margins: np.ndarray | None = None,
    own_costs: np.ndarray | None = None,
    origin: np.ndarray | float = 0.0,
    **parameters: Any,
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
    origin : ndarray of shape (d, k), optional
        W₀, if the distance from it is squared in place of W.
    **parameters
        As `smooth`: of `reference.Loss`.
    """
    W = cp.Variable((X.shape[1], k))
    Y = np.eye(k)[labels] if labels.ndim == 1 else labels.astype(float)
    of_class = Y.argmax(axis=1)
    delta = np.ones(Y.shape) if margins is None else np.where(Y > 0, 1.0, margins[of_class])
    of_own = np.ones(k) if own_costs is None else own_costs
    factors = np.where(Y > 0, of_own, 1.0)
    weights = np.broadcast_to(C, len(X)).astype(float)
    of_row = reference.LOSSES[loss](margin, **parameters)
    value = losses(of_row, X @ W, Y, delta, weights[:, None] * factors)
    constraints = [cp.sum(W, axis=1) == 0] if isinstance(of_row, reference.LeeLinWahba) else []
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(W - origin) + value), constraints)
    tol = 1e-8 if loss == "logistic" else 1e-9  # what it reaches with exponential cones, and without
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol / 10, tol_gap_rel=tol, tol_feas=tol)
    assert problem.status == cp.OPTIMAL
    return problem.value, W.value


class Rows(NamedTuple):
    """Scores of rows and what their losses are made of; all of shape (n, k) but `own`, which is (n,)."""

    S: cp.Expression
    Y: np.ndarray  # 1 for the row's own classes
    own: cp.Expression  # the score of a row's own class: the mean of several
    wrong: cp.Expression  # the positive parts of the slacks Δ - M (s_y - s_j), 0 for the own class
    signed: cp.Expression  # the positive parts of Δ - s_y and Δ + s_j
    delta: np.ndarray  # Δ
    weights: np.ndarray  # of single classes if the loss charges each by itself, else the first is of the row


def losses(
    loss: reference.Loss, S: cp.Expression, Y: np.ndarray, delta: np.ndarray, weights: np.ndarray
) -> cp.Expression:
    """Σ of the weighted losses of scores S of rows whose classes are those in Y; all of shape (n, k)."""
    shares = Y / np.maximum(Y.sum(axis=1, keepdims=True), 1)
    own = cp.sum(cp.multiply(S, shares), axis=1)
    of_all = cp.reshape(own, (len(Y), 1), order="C") @ np.ones((1, Y.shape[1]))
    wrong = cp.pos(cp.multiply(1 - Y, delta - loss.margin * (of_all - S)))
    signed = cp.pos(delta - cp.multiply(2 * Y - 1, S))
    return loss.convex(cp, Rows(S, Y, own, wrong, signed, delta, weights))
