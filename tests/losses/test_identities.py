"""What theory says of the losses: which agree with which, and with the machines of other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from cases import few
from helpers import make_problem
from helpers import plain_fit as fit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from small_problem import exactly

from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.model.model import Model

N, D = 80, 10
C = 0.7


def optimum(X: sp.csr_array, labels: np.ndarray, loss: str, C: float = C, **settings: Any) -> Model:
    """The model of a training to a tiny gap in float64; its ``result`` has the objectives."""
    model = fit(X, labels, loss=loss, C=C, **{**exactly(loss), "tol": 1e-7, **settings})
    assert model.result.status == "converged"
    return model


def binary_machine(X: sp.csr_array, signs: np.ndarray, C: float, loss: str) -> tuple[np.ndarray, float]:
    """The weights of another library's binary machine without an intercept, and ½‖u‖² + C Σ of its losses."""
    if loss == "logistic":
        machine = LogisticRegression(fit_intercept=False, C=C, tol=1e-10, max_iter=10**5)
    else:
        machine = LinearSVC(loss=loss, dual=True, fit_intercept=False, C=C, tol=1e-10, max_iter=10**7)
    u = machine.fit(sp.csr_matrix(X), signs).coef_.ravel()
    slack = (1 - signs * (X @ u))[np.diff(X.indptr) > 0]  # rows without a value cost the same whatever u
    of_rows = {
        "hinge": np.maximum(slack, 0),
        "squared_hinge": np.maximum(slack, 0) ** 2,
        "logistic": np.logaddexp(0, slack - 1),
    }[loss]
    return u, 0.5 * u @ u + C * of_rows.sum()


# With k = 2, w_0 = -w_1, so that ‖W‖² = 2 ‖w_1‖². With u = f w_1 the loss is that of 1 - σ uᵀx: of f = 2M
# for the losses of differences M (w_y - w_j)ᵀx, and of f = 1 for those of the scores themselves. Each row has
# this loss once, or for the two machines of one-vs-rest twice. So the primal, times f²/2, is that of a binary
# machine with C f²/2 or C f².
@pytest.mark.parametrize(
    ("loss", "margin"),
    [(name, M) for name, loss in LOSSES.items() for M in loss.margins if reference.LOSSES[name].binary],
)
def test_two_classes_are_a_binary_machine(loss: str, margin: float) -> None:
    stated = reference.LOSSES[loss]
    factor, times, binary = stated.factor or 2 * margin, 1 + stated.own_dual, stated.binary
    X, labels = make_problem(N, D, 2, noise=2.0, empty=1)
    ours = optimum(X, labels, loss, margin=margin)
    u, theirs = binary_machine(X, 2 * labels - 1, times * C * factor**2 / 2, binary)
    assert ours.result.primal == pytest.approx(2 * theirs / factor**2, rel=1e-6)
    np.testing.assert_allclose(factor * ours.coef_.T[:, 1], u, atol=2e-3 * np.abs(u).max())
    np.testing.assert_allclose(ours.coef_.T[:, 0], -ours.coef_.T[:, 1], atol=1e-6)


@pytest.mark.parametrize("C", [0.05, 2.0])
@pytest.mark.parametrize(("loss", "binary"), [("ovr", "hinge"), ("ovr2", "squared_hinge")])
def test_one_vs_rest_is_a_binary_machine_of_each_class(loss: str, binary: str, C: float) -> None:
    k = 5
    X, labels = make_problem(N, D, k, noise=2.0, empty=1)
    ours = optimum(X, labels, loss, C)
    machines = [binary_machine(X, np.where(labels == c, 1, -1), C, binary) for c in range(k)]
    W = np.column_stack([u for u, _ in machines])
    assert ours.result.primal == pytest.approx(sum(primal for _, primal in machines), rel=1e-6)
    np.testing.assert_allclose(ours.coef_.T, W, atol=2e-3 * np.abs(W).max())


@pytest.mark.parametrize(("loss", "kind", "C"), [("cs", 4, 0.01), ("cs", 4, 0.3), ("ovr2", 1, 0.3)])
def test_liblinear_comes_to_the_same_optimum(loss: str, kind: int, C: float) -> None:
    liblinear = pytest.importorskip("liblinear.liblinearutil")
    k, d = 6, 20
    X, labels = make_problem(120, d, k, noise=2.0)
    model = liblinear.train(labels.astype(float), sp.csr_matrix(X), f"-s {kind} -c {C} -e 1e-6 -q")
    W = np.empty((d, k))
    W[:, model.get_labels()] = np.array(model.w[: d * k]).reshape(d, k)
    theirs = reference.primal(W, X.toarray().astype(float), labels, C, loss)
    assert optimum(X, labels, loss, C).result.primal == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("loss", [each.name for each in LOSSES.values() if each.probabilities])
def test_at_the_optimum_the_weights_are_those_of_what_the_probabilities_lack(loss: str) -> None:
    """The gradient of the loss by the scores is p less the own class: W = C Σ x (e_y - p)ᵀ."""
    X, labels = make_problem(N, D, 5, noise=2.0)
    model = optimum(X, labels, loss, tol=1e-9)
    expected = C * X.T @ (np.eye(5)[labels] - model.predict_proba(X))
    np.testing.assert_allclose(model.coef_.T, expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.engine
def test_the_logistic_loss_is_multinomial_logistic_regression() -> None:
    X, labels = make_problem(N, D, 5, noise=2.0)
    machine = LogisticRegression(fit_intercept=False, C=C, tol=1e-10, max_iter=10**5)
    W = machine.fit(sp.csr_matrix(X), labels).coef_.T
    ours = optimum(X, labels, "logistic", tol=1e-9)
    theirs = reference.primal(W, X.toarray().astype(float), labels, C, "logistic")
    assert ours.result.primal == pytest.approx(theirs, rel=1e-6)
    np.testing.assert_allclose(ours.coef_.T, W, atol=1e-3 * np.abs(W).max())


@pytest.mark.engine
@pytest.mark.parametrize(
    ("loss", "margin"),
    few(((each.name, M) for each in LOSSES.values() for M in each.margins), ("ww", 1.0)),
)
def test_all_exact_solvers_and_both_dtypes_reach_the_same_optimum(loss: str, margin: float) -> None:
    X, labels = make_problem(N, D, 5, noise=2.0)
    settings: dict[str, Any] = {"C": 0.03, "margin": margin}
    first = optimum(X, labels, loss, **settings).result.primal
    single = optimum(X, labels, loss, tol=1e-4, dtype="float32", **settings)
    assert single.result.primal == pytest.approx(first, rel=2e-4)
    for solver in set(LOSSES[loss].solvers[1:]) & {"sorted"}:
        other = optimum(X, labels, loss, solver=solver, **settings)
        assert other.result.primal == pytest.approx(first, rel=1e-6)
