"""Weights of rows and classes, margins of pairs of classes, and several labels a row.

Their optima are those of a general convex solver.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import make_problem
from helpers import plain_fit as fit
from reference import path_lengths
from sklearn.svm import LinearSVC
from small_problem import PARAMETERS, assert_encloses, exactly, of_loss

from streamsvm.data.arrays import labelled_rows
from streamsvm.losses import LOSSES, ROW_LOSSES
from streamsvm.model.model import Model
from streamsvm.settings.fit import Settings
from streamsvm.store.arrays import ArrayStore
from streamsvm.training.create import create
from streamsvm.training.train import train
from streamsvm.training.training import Execution
from streamsvm.transforms.fitting import FittedTransforms

pytestmark = pytest.mark.engine

N_PROBLEMS, QUICK = 50, 6
# Of each module one loss is tried, and the others with the marker `more`: each compiles for seconds.
USUAL = ("ww", 0.5)


def formulations(fact: str = "") -> list[Any]:
    """Losses and margins, of those losses that have a fact."""
    found = [
        (loss.name, margin)
        for loss in ROW_LOSSES.values()
        for margin in loss.margins
        if not fact or getattr(loss, fact)
    ]
    return few(found, USUAL)


quick_and_others = pytest.mark.parametrize(
    "numbers",
    [range(QUICK), pytest.param(range(QUICK, N_PROBLEMS), marks=pytest.mark.more)],
    ids=["quick", "others"],
)


def rows_and_labels(number: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(number)
    k, n, d = 2 + number % 6, int(rng.integers(12, 26)), int(rng.integers(3, 9))
    X, labels = make_problem(n, d, k, seed=number, noise=rng.uniform(0.3, 2))
    return X.toarray().astype(float), labels, rng


def table(rng: np.random.Generator, k: int) -> np.ndarray:
    """Costs of pairs, which float32 has exactly, some of them 0."""
    costs = np.float32(rng.uniform(0.1, 4, (k, k))) * (rng.random((k, k)) < 0.9)
    np.fill_diagonal(costs, 0)
    return costs


def solve(loss: str, X: np.ndarray, labels: np.ndarray, k: int, C: Any, **more: Any) -> float:
    """The optimum by the general solver, without the rows that weigh nothing."""
    import general_solver

    used = X.any(axis=1) & (np.broadcast_to(C, len(X)) > 0)
    C = np.broadcast_to(C, len(X))[used]
    optimum, _ = general_solver.solve(loss, X[used], labels[used], k, C, **more, **PARAMETERS[loss])
    return optimum


@quick_and_others
@pytest.mark.parametrize(("loss", "margin"), formulations())
def test_weights_of_rows_and_classes(loss: str, margin: float, numbers: range) -> None:
    pytest.importorskip("cvxpy")
    for number in numbers:
        X, labels, rng = rows_and_labels(number)
        k, C = labels.max() + 1, 10 ** rng.uniform(-1.5, 0.5)
        of_rows = rng.integers(0, 4, len(X)) / 2
        of_classes = rng.uniform(0.2, 3, k)
        model = fit(
            X, labels, margin=margin, C=C, sample_weight=of_rows,
            class_weight=dict(enumerate(of_classes.tolist())), **exactly(loss), **of_loss(loss),
        )  # fmt: skip
        assert model.result.unweighted_rows == (of_rows == 0).sum()
        if LOSSES[loss].own_dual:
            optimum = solve(loss, X, labels, k, C * of_rows, own_costs=of_classes)
        else:
            optimum = solve(loss, X, labels, k, C * of_rows * of_classes[labels], margin=margin)
        assert_encloses(model.result, optimum)


@quick_and_others
@pytest.mark.parametrize(("loss", "margin"), formulations("pair_margins"))
def test_margins_of_pairs(loss: str, margin: float, numbers: range) -> None:
    pytest.importorskip("cvxpy")
    for number in numbers:
        X, labels, rng = rows_and_labels(number)
        k, C = labels.max() + 1, 10 ** rng.uniform(-1.5, 0.5)
        margins = table(rng, k)
        given: dict[str, Any] = {"costs": margins}
        if number % 2:  # of the nodes of a tree, each has an earlier one as its parent
            nodes = [str(c) for c in rng.permutation(k)] + [f"inner {i}" for i in range(4)]
            rng.shuffle(nodes)
            parents = {node: nodes[int(rng.integers(i))] for i, node in enumerate(nodes) if i}
            given, margins = {"tree": parents}, path_lengths(parents, [str(c) for c in range(k)])
        model = fit(X, labels, margin=margin, C=C, **given, **exactly(loss), **of_loss(loss))
        assert_encloses(model.result, solve(loss, X, labels, k, C, margin=margin, margins=margins))


def fit_sets(X: np.ndarray, Y: np.ndarray, C: float, loss: str, **settings: Any) -> Model:
    """Train on rows with several labels, those of the indicator `Y`."""
    rows, _, matrix = labelled_rows(sp.csr_array(X), np.arange(len(X)), np.dtype(float))
    first = np.where(Y.any(axis=1), Y.argmax(axis=1), -1).astype(np.int32)
    codes = np.nonzero(Y)[1].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(Y.sum(axis=1))]).astype(np.int64)
    rows = rows._replace(labels=first, label_codes=codes, label_indptr=indptr)
    labels = {"classes": [str(c) for c in range(Y.shape[1])]}
    raw = ArrayStore(rows, labels, matrix.n_features)
    asked = Settings(C=C, **{**exactly(loss), **of_loss(loss), **settings})
    model = train(create(raw, asked, Execution(), fitted=FittedTransforms([], {})), Execution())[1]
    assert model is not None
    return model


@quick_and_others
@pytest.mark.parametrize(("loss", "margin"), formulations("label_sets"))
def test_several_labels(loss: str, margin: float, numbers: range) -> None:
    """Some rows have no label: they train one-vs-rest machines alone. Some have all."""
    pytest.importorskip("cvxpy")
    for number in numbers:
        X, labels, rng = rows_and_labels(number)
        k, C = labels.max() + 1, 10 ** rng.uniform(-1.5, 0.5)
        Y = (np.eye(k)[labels] + (rng.random((len(X), k)) < 0.3)) > 0
        Y[:2], Y[2] = False, True
        own_costs = rng.uniform(0.2, 3, k) if LOSSES[loss].own_dual else np.ones(k)
        of_classes = {"class_weight": dict(enumerate(own_costs))} if LOSSES[loss].own_dual else {}
        model = fit_sets(X, Y, C, loss, margin=margin, **of_classes)
        used = np.full(len(X), True) if LOSSES[loss].own_dual else Y.any(axis=1)
        optimum = solve(loss, X, Y, k, np.where(used, C, 0), margin=margin, own_costs=own_costs)
        assert_encloses(model.result, optimum)


@pytest.mark.parametrize("case", ["margins", "sets"])
@pytest.mark.parametrize("average", [False, True])
def test_the_primal_is_that_of_the_model(case: str, average: bool) -> None:
    """Of the last iterate and of the average: by plain NumPy, from the coefficients."""
    X, labels, rng = rows_and_labels(4)
    k = labels.max() + 1
    costs = table(rng, k)
    Y = np.eye(k)[labels] > 0
    settings = {"loss": "ww", "C": 0.3, "dtype": "float64", "passes": 2, "average": average}
    margins = np.ones((k, k))
    if case == "sets":
        Y |= rng.random(Y.shape) < 0.3
        model = fit_sets(X, Y, **{**settings, "tol": None, "inner_passes": "auto"})
    else:
        margins = costs
        model = fit(X, labels, costs=costs, **settings)
    scores = X @ model.coef_.T
    own = (scores * Y).sum(axis=1) / Y.sum(axis=1)
    slacks = np.maximum(0, margins[labels] - own[:, None] + scores)
    slacks[Y | ~X.any(axis=1, keepdims=True)] = 0  # rows without a value are left out
    primal = 0.5 * (model.coef_**2).sum() + 0.3 * slacks.sum()
    best = scores.argmax(axis=1)
    assert model.result.primal == pytest.approx(primal, rel=1e-9)
    assert model.result.train_accuracy == pytest.approx(Y[np.arange(len(X)), best].mean())


@pytest.mark.parametrize("loss", few(["cs", "ovr", "ovr2"], "cs"))
def test_class_weights_are_those_of_liblinear(loss: str) -> None:
    """Of its Crammer-Singer machine they weigh rows; of one-vs-rest the positive rows of each machine."""
    X, labels = make_problem(60, 9, 5, noise=1.0)
    weights = {0: 3.0, 2: 0.25, 3: 1.7}
    kind = {"cs": {"multi_class": "crammer_singer"}, "ovr": {"loss": "hinge"}, "ovr2": {}}[loss]
    other = LinearSVC(
        C=0.3, class_weight=weights, fit_intercept=False, tol=1e-8, dual=True, max_iter=10**6, **kind
    ).fit(sp.csr_matrix(X), labels)
    model = fit(X, labels, loss=loss, C=0.3, class_weight=weights, **{**exactly(loss), "tol": 1e-9})
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-3)
