"""The chain-structured SVM, compared with the enumeration of all label sequences."""

from __future__ import annotations

from typing import Any

import chain_reference
import numpy as np
import pytest
from cases import few
from helpers import plain_fit as fit
from small_problem import assert_encloses

from streamsvm.chains.kernels import best_sequence, decode_groups, replace_by_marginals
from streamsvm.losses import LOSSES
from streamsvm.losses.base import MOST_SEQUENCES, ROUNDS

SOLVERS = LOSSES["chain"].solvers
N_PROBLEMS, QUICK = 50, 6


def options_of(solver: str) -> dict[str, Any]:
    return {"loss": "chain", "solver": solver, "dtype": "float64", "average": False, "gap": "pass"} | (
        {"temperature": 0.3} if solver in ("bcpl", "oeg") else {}
    )


def random_problem(number: int, longest: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, float]:
    """Rows, of which some are empty, their labels and groups, the number of classes, and C."""
    rng = np.random.default_rng(number)
    k, d, n_groups = 2 + number % 3, int(rng.integers(2, 6)), int(rng.integers(4, 9))
    lengths = rng.integers(1, longest + 1, size=n_groups)
    lengths[0] = longest
    n = int(lengths.sum())
    centres = rng.normal(size=(k, d))
    labels = rng.integers(k, size=n)
    labels[:2] = 0, 1
    labels = np.unique(labels, return_inverse=True)[1]
    X = centres[labels] + rng.normal(size=(n, d))
    X[rng.random((n, d)) < 0.3] = 0
    X[:: 5 + number % 3] = 0
    groups = np.repeat(np.arange(n_groups), lengths)
    return X, labels, groups, int(labels.max()) + 1, 10 ** rng.uniform(-2, 0.7)


def entering(X: np.ndarray, qid: np.ndarray) -> np.ndarray:
    """The rows that enter the objective: not those of norm zero that stand alone."""
    alone = np.bincount(qid)[qid] == 1
    return ~(alone & ~X.any(axis=1))


# -- dynamic programs ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_viterbi_finds_the_best_of_all_sequences(n: int, k: int) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores, transitions = rng.normal(size=(n, k)), rng.normal(size=(k, k))
        found = np.empty(n, np.int64)
        value = best_sequence(scores, transitions, n, found)
        of_all = chain_reference.sequence_scores(scores, transitions)
        np.testing.assert_array_equal(found, chain_reference.all_sequences(n, k)[of_all.argmax()])
        assert value == pytest.approx(of_all.max(), rel=1e-13)


def test_of_equal_scores_the_first_class_wins() -> None:
    found = np.empty(4, np.int64)
    best_sequence(np.zeros((4, 3)), np.zeros((3, 3)), 4, found)
    assert found.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("spread", [1.0, 500.0])
def test_marginals_are_those_of_all_sequences(n: int, spread: float) -> None:
    """Also of potentials whose exponentials would overflow."""
    k = 3
    for seed in range(10):
        rng = np.random.default_rng(seed)
        nodes, pairs = spread * rng.normal(size=(n, k)), spread * rng.normal(size=(max(n - 1, 1), k, k))
        sequences = chain_reference.all_sequences(n, k)
        t = np.arange(n)
        log_p = nodes[t, sequences].sum(axis=1)
        log_p += pairs[t[:-1], sequences[:, :-1], sequences[:, 1:]].sum(axis=1)
        p = np.exp(log_p - log_p.max())
        p /= p.sum()
        expected_nodes, expected_pairs = np.zeros((n, k)), np.zeros((n - 1, k, k))
        for sequence, probability in zip(sequences, p, strict=True):
            expected_nodes[t, sequence] += probability
            expected_pairs[t[:-1], sequence[:-1], sequence[1:]] += probability
        replace_by_marginals(nodes, pairs, n)
        np.testing.assert_allclose(nodes, expected_nodes, atol=1e-11)
        np.testing.assert_allclose(pairs[: n - 1], expected_pairs, atol=1e-11)


def test_groups_are_decoded_one_by_one() -> None:
    rng = np.random.default_rng(0)
    qid = np.array([4, 4, 4, 2, 7, 7, 9, 9, 9, 9])
    scores, transitions = rng.normal(size=(10, 3)).astype(np.float32), 2 * rng.normal(size=(3, 3))
    found = np.empty(10, np.int64)
    decode_groups(scores, transitions, qid, found)
    np.testing.assert_array_equal(found, chain_reference.predict(scores, transitions, qid))


# -- optima ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", few(SOLVERS, "cached"))
def test_the_objective_is_that_of_all_sequences_and_the_dual_rises(solver: str) -> None:
    for number in range(4):
        X, labels, qid, _, C = random_problem(number)
        model = fit(X, labels, groups=qid, C=C, passes=30, **options_of(solver))
        used = entering(X, qid)
        expected = chain_reference.primal(
            model.coef_.T, model.transitions_, X[used], labels[used], qid[used], C
        )
        assert model.result.primal == pytest.approx(expected, rel=1e-10)
        history = [record["dual"] for record in model.result.history]
        assert all(dual <= expected * (1 + 1e-12) for dual in history)
        if solver != "oeg":
            assert (np.diff(history) >= -1e-10 * expected).all()
        predicted = chain_reference.predict(X @ model.coef_.T, model.transitions_, qid)
        assert model.result.train_accuracy == pytest.approx((predicted == labels).mean())


@pytest.mark.parametrize(
    "numbers",
    [range(QUICK), pytest.param(range(QUICK, N_PROBLEMS), marks=pytest.mark.more)],
    ids=["quick", "others"],
)
def test_primal_and_dual_enclose_the_optimum_of_a_general_solver(numbers: range) -> None:
    pytest.importorskip("cvxpy")
    for number in numbers:
        X, labels, qid, k, C = random_problem(number)
        used = entering(X, qid)
        optimum = chain_reference.optimum(X[used], labels[used], qid[used], k, C)
        model = fit(X, labels, groups=qid, C=C, passes=50_000, tol=3e-6, **options_of("cached"))
        assert_encloses(model.result, optimum, near=1e-5)


@pytest.mark.more
@pytest.mark.parametrize("solver", SOLVERS[1:])
def test_other_solvers_approach_the_same_optimum(solver: str) -> None:
    X, labels, qid, _, _ = random_problem(7)
    options = {"groups": qid, "C": 0.3, "tol": 1e-3}
    exact = fit(X, labels, passes=10_000, **options, **options_of("cached")).result
    of_solver = options_of(solver) | ({"temperature": 5.0} if solver == "oeg" else {})
    found = fit(X, labels, passes=20_000, **options, **of_solver).result
    assert exact.status == found.status == "converged"
    assert found.dual <= exact.primal
    assert found.primal >= exact.dual


def test_a_long_chain_whose_sequences_are_more_than_are_kept_still_gets_closer() -> None:
    rng = np.random.default_rng(0)
    n, k, d = 150, 4, 6
    labels = rng.integers(k, size=n)
    X = np.eye(k)[labels] @ rng.normal(size=(k, d)) + 1.5 * rng.normal(size=(n, d))
    groups = np.zeros(n, int)
    result = fit(X, labels, groups=groups, C=10, passes=150, **options_of("cached")).result
    history = [record["dual"] for record in result.history]
    assert (np.diff(history) >= -1e-10 * result.primal).all()
    full = MOST_SEQUENCES // ROUNDS  # passes, after which no sequence could come in but for another one
    assert result.history[-1]["gap"] < 0.1 * result.history[full]["gap"]


def test_chains_of_one_token_are_rows_of_crammer_singer() -> None:
    X, labels, _, _, _ = random_problem(5)
    options = {"C": 0.4, "tol": 1e-7, "passes": 20_000}
    alone = fit(X, labels, groups=np.arange(len(X)), **options, **options_of("cached"))
    rows = fit(X, labels, loss="cs", dtype="float64", average=False, gap="pass", **options)
    assert alone.result.dual == pytest.approx(rows.result.dual, rel=1e-6)
    np.testing.assert_array_equal(alone.transitions_, 0)
    np.testing.assert_allclose(alone.coef_, rows.coef_, atol=1e-3)
