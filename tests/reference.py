"""Every loss in plain NumPy, written from its definition and slow on purpose.

A loss is stated by its value, by the coefficients that a row's duals give it in W = Xᵀ A, by its term in the
dual objective, and by the set of its feasible duals. The exact block step follows from these alone (see
`reference_blocks`); nothing of the kernels' own derivations is used. Beside these stand the loss as cvxpy
takes it, its optima by that, and what else tests know of a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from reference_blocks import by_breakpoints, logistic_block, project_to_simplex
from scipy.special import entr

OPTIMA_AT = (1.0, 1 / 16)


@dataclass(frozen=True)
class Loss:
    """Losses of 1 - M (s_y - s_j) for the wrong classes j, with duals b_j >= 0.

    Parameters
    ----------
    margin : float
        M.
    smooth : float
        ε of the smoothed loss: where it is quadratic.
    top : int
        m of the top-m loss; at most k - 1 is used.
    """

    margin: float = 1.0
    smooth: float = 0.5
    top: int = 5

    own_dual = False  # whether the row's own class has a dual
    values: ClassVar[dict[str, Any]] = {}  # in tests, of the settings of this loss alone: not the defaults
    factor: ClassVar[float | None] = None  # of the scores, if not 2M (see `tests/losses/test_identities.py`)
    binary: ClassVar[str | None] = (
        None  # with two classes: which loss of scikit-learn's binary machines it is, if any
    )
    hard_margin = False  # whether the optimum for large C is that of the hard margin
    # By M: of `small_problem.digits`, for each C of `OPTIMA_AT`; `benchmarks/optima.py` prints them.
    optima: ClassVar[dict[float, tuple[float, ...]]] = {}

    def value(self, scores: np.ndarray, y: int) -> float:
        """The loss of a row of class `y`, without C."""
        slack = 1 - self.margin * (scores[y] - scores)
        return self.of_slack(np.maximum(0, np.delete(slack, y)))

    def of_slack(self, slack: np.ndarray) -> float:
        """The loss of the positive parts of all wrong classes."""
        raise NotImplementedError

    def convex(self, cp: Any, rows: Any) -> Any:
        """The sum of weighted losses, a cvxpy expression of `rows`: see `general_solver.Rows`."""
        return cp.sum(cp.multiply(rows.weights, self.bent(cp, rows.wrong)))

    def bent(self, cp: Any, slack: Any) -> Any:
        """The loss of the positive part of a slack, where each is charged by itself or one alone."""
        return slack

    def coefficients(self, b: np.ndarray, y: int) -> np.ndarray:
        """The row of A in W = XᵀA that duals b, shape (k,), stand for."""
        a = -self.margin * b
        a[y] = self.margin * (b.sum() - b[y])
        return a

    def bounds(self, C: Any, k: int) -> tuple[Any, Any]:
        """The upper bound of each dual, and that of their sum."""
        return C, np.inf

    def curvature(self, C: Any) -> tuple[Any, Any]:
        """c and e of the dual term Σb - ½ c ‖b‖² - ½ e (Σb)²."""
        return 0.0, 0.0

    def dual_term(self, b: np.ndarray, C: Any) -> Any:
        """What a row adds to the dual objective beside -½‖W‖²: -φ*(-a) of φ = C times the loss.

        Duals may also be those of several rows, shape (n, k), with `C` of shape (n,).
        """
        each, coupled = self.curvature(C)
        return b.sum(-1) - 0.5 * each * (b**2).sum(-1) - 0.5 * coupled * b.sum(-1) ** 2

    def is_feasible(self, b: np.ndarray, y: int, C: float) -> bool:
        """Whether the duals of a row are in the feasible set, up to rounding."""
        each, total = self.bounds(C, len(b))
        up = 1 + 1e-12
        own = self.own_dual or b[y] == 0
        return bool(own and (b >= 0).all() and (b <= each * up).all() and b.sum() <= total * up)

    def block(
        self, scores: np.ndarray, b: np.ndarray, y: int, q: float, C: float, among: np.ndarray | None = None
    ) -> np.ndarray:
        """The duals b, shape (k,), after an exact step over the classes `among`; `q` is ‖x‖²."""
        part = np.ones(len(b), bool) if among is None else among.copy()
        part[y] &= self.own_dual
        each, coupled = self.curvature(C)
        upper, total = self.bounds(C, len(b))
        # Row j: what b_j = 1 gives to A. The scores without the row's own part are scores - q rowsᵀ b.
        rows = np.array([self.coefficients(row, y) for row in np.eye(len(b))])[part]
        gram, new = q * rows @ rows.T, b.copy()
        if len(gram) == 0:
            return new
        coupling = gram[0, 1] if len(gram) > 1 else 0.0
        np.testing.assert_allclose(
            gram, (gram[0, 0] - coupling) * np.eye(len(gram)) + coupling, atol=1e-9 * q
        )
        linear = 1 - rows @ scores + gram @ b[part]
        new[part] = by_breakpoints(linear, gram[0, 0] - coupling + each, coupling + coupled, upper, total)
        return new


class WestonWatkins(Loss):
    binary, hard_margin = "hinge", True
    optima: ClassVar = {1.0: (9.60751714, 6.23917053), 0.5: (33.6025127, 16.1571629)}

    def of_slack(self, slack: np.ndarray) -> float:
        return slack.sum()


class WestonWatkinsSquared(Loss):
    binary, hard_margin = "squared_hinge", True
    optima: ClassVar = {1.0: (8.43259317, 4.55711823), 0.5: (26.4612684, 11.5251067)}

    def of_slack(self, slack: np.ndarray) -> float:
        return (slack**2).sum()

    def bounds(self, C: Any, k: int) -> tuple[Any, Any]:
        return np.inf, np.inf

    def curvature(self, C: Any) -> tuple[Any, Any]:
        return 1 / (2 * C), 0.0

    def bent(self, cp: Any, slack: Any) -> Any:
        return cp.square(slack)


class WestonWatkinsSmooth(Loss):
    """The hinge with a parabola of width ε where it bends (Huber's loss)."""

    values: ClassVar = {"smooth": 0.3}
    hard_margin = True
    optima: ClassVar = {1.0: (8.86016225, 5.04878598), 0.5: (28.4670477, 12.883408)}

    def of_slack(self, slack: np.ndarray) -> float:
        return np.where(slack <= self.smooth, slack**2 / (2 * self.smooth), slack - self.smooth / 2).sum()

    def curvature(self, C: Any) -> tuple[Any, Any]:
        return self.smooth / C, 0.0

    def bent(self, cp: Any, slack: Any) -> Any:
        return cp.huber(slack, self.smooth) / (2 * self.smooth)


class CrammerSinger(Loss):
    binary, hard_margin = "hinge", True
    optima: ClassVar = {1.0: (9.576136, 4.91642839)}

    def of_slack(self, slack: np.ndarray) -> float:
        return slack.max()

    def bounds(self, C: Any, k: int) -> tuple[Any, Any]:
        return C, C

    def convex(self, cp: Any, rows: Any) -> Any:
        return rows.weights[:, 0] @ self.bent(cp, cp.max(rows.wrong, axis=1))


class CrammerSingerSquared(CrammerSinger):
    binary = "squared_hinge"
    bounds = WestonWatkinsSquared.bounds
    bent = WestonWatkinsSquared.bent
    optima: ClassVar = {1.0: (8.00642385, 3.53525307)}

    def of_slack(self, slack: np.ndarray) -> float:
        return slack.max() ** 2

    def curvature(self, C: Any) -> tuple[Any, Any]:
        return 0.0, 1 / (2 * C)


class Top(Loss):
    """The mean of the m largest."""

    values: ClassVar = {"top": 2}
    binary, hard_margin = "hinge", True
    optima: ClassVar = {1.0: (9.097152, 4.54623358)}

    def of_slack(self, slack: np.ndarray) -> float:
        return np.sort(slack)[::-1][: self.top].mean()

    def bounds(self, C: Any, k: int) -> tuple[Any, Any]:
        return C / min(self.top, k - 1), C

    def convex(self, cp: Any, rows: Any) -> Any:
        m = min(self.top, rows.wrong.shape[1] - 1)
        largest = [cp.sum_largest(row, m) for row in rows.wrong]
        return sum(c * of_row for c, of_row in zip(rows.weights[:, 0], largest, strict=True)) / m


class LeeLinWahba(Loss):
    """Hinges of the wrong classes' own scores, with weights that sum to zero over the classes."""

    factor, binary = 1.0, "hinge"
    optima: ClassVar = {1.0: (1113.0567, 95.5989517)}

    def value(self, scores: np.ndarray, y: int) -> float:
        return self.of_slack(np.maximum(0, 1 + np.delete(scores, y)))

    def of_slack(self, slack: np.ndarray) -> float:
        return slack.sum()

    def coefficients(self, b: np.ndarray, y: int) -> np.ndarray:
        a = -b
        a[y] = 0
        return a - a.mean()

    def convex(self, cp: Any, rows: Any) -> Any:
        return cp.sum(cp.multiply(rows.weights * (1 - rows.Y), self.bent(cp, rows.signed)))


class LeeLinWahbaSquared(LeeLinWahba):
    binary = "squared_hinge"
    of_slack = WestonWatkinsSquared.of_slack
    bounds = WestonWatkinsSquared.bounds
    curvature = WestonWatkinsSquared.curvature
    bent = WestonWatkinsSquared.bent
    optima: ClassVar = {1.0: (1214.6879, 92.9529429)}


class OneVsRest(Loss):
    """A binary hinge for each class, the own one included."""

    factor, binary = 1.0, "hinge"
    own_dual = True
    optima: ClassVar = {1.0: (45.425668, 16.6071148)}

    def value(self, scores: np.ndarray, y: int) -> float:
        return self.of_slack(np.maximum(0, 1 - signs(len(scores), y) * scores))

    def of_slack(self, slack: np.ndarray) -> float:
        return slack.sum()

    def coefficients(self, b: np.ndarray, y: int) -> np.ndarray:
        return signs(len(b), y) * b

    def convex(self, cp: Any, rows: Any) -> Any:
        return cp.sum(cp.multiply(rows.weights, self.bent(cp, rows.signed)))


class OneVsRestSquared(OneVsRest):
    binary = "squared_hinge"
    of_slack = WestonWatkinsSquared.of_slack
    bounds = WestonWatkinsSquared.bounds
    curvature = WestonWatkinsSquared.curvature
    bent = WestonWatkinsSquared.bent
    optima: ClassVar = {1.0: (36.7982673, 12.6777784)}


class Logistic(CrammerSinger):
    """Cross-entropy of the softmax: the duals of the wrong classes are C times their probabilities."""

    binary, hard_margin = "logistic", False
    optima: ClassVar = {1.0: (73.670443, 17.363615)}

    def value(self, scores: np.ndarray, y: int) -> float:
        top = scores.max()
        return float(np.log(np.exp(scores - top).sum()) + top - scores[y])

    def dual_term(self, b: np.ndarray, C: Any) -> Any:
        p = b / np.expand_dims(C, -1)
        return C * (entr(p).sum(-1) + entr(np.maximum(0, 1 - p.sum(-1))))

    def block(
        self, scores: np.ndarray, b: np.ndarray, y: int, q: float, C: float, among: np.ndarray | None = None
    ) -> np.ndarray:
        without = scores - q * self.coefficients(b, y)
        part = np.ones(len(b), bool) if among is None else among
        return logistic_block(without, y, q, C, part).astype(float)

    def convex(self, cp: Any, rows: Any) -> Any:
        return rows.weights[:, 0] @ (cp.log_sum_exp(rows.S, axis=1) - rows.own)


class Sparsemax(CrammerSinger):
    """Its gradient is the projection of the scores onto the simplex, less the own class."""

    binary = None
    optima: ClassVar = {1.0: (6.06980121, 2.02425553)}

    def value(self, scores: np.ndarray, y: int) -> float:
        p = project_to_simplex(scores, 1.0)
        return float(p @ scores - 0.5 * p @ p - scores[y] + 0.5)

    def curvature(self, C: Any) -> tuple[Any, Any]:
        return 1 / C, 1 / C

    def convex(self, cp: Any, rows: Any) -> Any:
        T = cp.Variable(rows.Y.shape)  # max_p (pᵀs - ½‖p‖²) = min_t (max_j t_j + ½‖s - t‖²)
        nearest = cp.max(T, axis=1) + 0.5 * cp.sum(cp.square(rows.S + rows.delta - T), axis=1)
        return rows.weights[:, 0] @ (nearest - rows.own - 0.5)


def signs(k: int, y: int) -> np.ndarray:
    return np.where(np.arange(k) == y, 1, -1)


LOSSES: dict[str, type[Loss]] = {
    "ww": WestonWatkins,
    "ww2": WestonWatkinsSquared,
    "wws": WestonWatkinsSmooth,
    "cs": CrammerSinger,
    "cs2": CrammerSingerSquared,
    "top-m": Top,
    "llw": LeeLinWahba,
    "llw2": LeeLinWahbaSquared,
    "ovr": OneVsRest,
    "ovr2": OneVsRestSquared,
    "logistic": Logistic,
    "sparsemax": Sparsemax,
}


def primal(
    W: np.ndarray,
    X: np.ndarray,
    labels: np.ndarray,
    C: float | np.ndarray,
    loss: str,
    margin: float = 1.0,
    **parameters: float,
) -> float:
    """½‖W‖² + Σ C_i loss_i over the rows that are not zero."""
    of_row = LOSSES[loss](margin, **parameters).value
    scores, cost = X @ W, np.broadcast_to(C, len(X))
    rows = np.flatnonzero((X != 0).any(axis=1))
    return 0.5 * (W**2).sum() + sum(cost[i] * of_row(scores[i], labels[i]) for i in rows)


def weights(
    B: np.ndarray, X: np.ndarray, labels: np.ndarray, margin: float = 1.0, loss: str = "ww"
) -> np.ndarray:
    """W of shape (d, k) from duals B >= 0 of shape (n, k)."""
    of_row = LOSSES[loss](margin).coefficients
    return X.T @ np.array([of_row(b, y) for b, y in zip(B, labels, strict=True)])


def dual_terms(
    B: np.ndarray, C: float | np.ndarray, loss: str, margin: float = 1.0, **parameters: float
) -> np.ndarray:
    """The dual term of each row, shape (n,), of duals B of shape (n, k)."""
    return LOSSES[loss](margin, **parameters).dual_term(B, np.broadcast_to(C, len(B)))


def dual(
    B: np.ndarray,
    X: np.ndarray,
    labels: np.ndarray,
    C: float | np.ndarray,
    loss: str,
    margin: float = 1.0,
    **parameters: float,
) -> float:
    """The dual objective of duals B of shape (n, k)."""
    W = weights(B, X, labels, margin, loss)
    return dual_terms(B, C, loss, margin, **parameters).sum() - 0.5 * (W**2).sum()


def are_feasible(
    B: np.ndarray, labels: np.ndarray, C: float | np.ndarray, loss: str, **parameters: float
) -> bool:
    """Whether duals of shape (n, k) are in the feasible set, up to rounding."""
    of_row, cost = LOSSES[loss](**parameters).is_feasible, np.broadcast_to(C, len(B))
    return all(of_row(b, y, c) for b, y, c in zip(B, labels, cost, strict=True))


def one_visit(
    W: np.ndarray,
    b: np.ndarray,
    x: np.ndarray,
    y: int,
    C: float,
    loss: str,
    margin: float = 1.0,
    among: np.ndarray | None = None,
    **parameters: float,
) -> tuple[np.ndarray, np.ndarray]:
    """W and b after one exact block step on row (x, y), over the classes `among` if it is given."""
    made = LOSSES[loss](margin, **parameters)
    new = made.block(x @ W, b, y, x @ x, C, among)
    return W + np.outer(x, made.coefficients(new, y) - made.coefficients(b, y)), new


def path_lengths(parents: dict[str, str], classes: list[str]) -> np.ndarray:
    """The number of edges between each two classes of a tree, by their ancestors."""

    def ancestors(node: str) -> list[str]:
        return [node, *(ancestors(parents[node]) if node in parents else [])]

    above = [ancestors(name) for name in classes]
    common = [[len(set(a) & set(b)) for b in above] for a in above]
    lengths = np.array([len(a) for a in above])
    return (lengths[:, None] + lengths - 2 * np.array(common)).astype(float)
