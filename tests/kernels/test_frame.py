"""Visits, revisits and losses of every loss, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from helpers import as_rows, make_problem

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.data.rows import Rows
from streamsvm.kernels.candidates import Scratch
from streamsvm.kernels.duals import DualBuffer, Duals, OldDuals, drop_zeros
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.random import permutation
from streamsvm.kernels.tally import (
    CLOCK,
    CORRECT,
    DUAL_DELTA,
    DUAL_SUM,
    EMPTY,
    LOSS_SUM,
    N_TALLIES,
    VISITED,
)
from streamsvm.kernels.weights import Weights, padded_classes
from streamsvm.losses import LOSSES
from streamsvm.training.learner import new_buffer

F64 = np.dtype(float)
CASES = [
    pytest.param(loss.name, margin, solver, id=f"{loss.name}-{margin}-{name}")
    for loss in LOSSES.values()
    for margin in loss.margins
    for solver, name in enumerate(loss.solvers)
]


def test_every_loss_has_a_plain_reference() -> None:
    assert reference.LOSSES.keys() >= LOSSES.keys()


def as_old(duals: DualBuffer | None, n: int, k: int) -> OldDuals:
    """What the next pass reads of a buffer."""
    if duals is None:
        duals = new_buffer(0, 0, F64, dual_id_dtype(k))
    size, visited = duals.used
    ids, values = duals.ids[:size].copy(), duals.values[:size].copy()
    begins, counts = np.zeros(n, np.int64), np.zeros(n, np.int32)
    counts[duals.rows[:visited]] = duals.counts[:visited]
    begins[duals.rows[:visited]] = np.cumsum(duals.counts[:visited]) - duals.counts[:visited]
    return OldDuals.create(ids, values, begins, begins.copy(), counts)


def as_dense(old: OldDuals, k: int) -> np.ndarray:
    """The duals, shape (n_rows, k)."""
    B = np.zeros((len(old.counts), k))
    for i, (begin, count) in enumerate(zip(old.ids_at, old.counts, strict=True)):
        B[i, old.ids[begin : begin + count]] = old.values[begin : begin + count]
    return B


class Fixture:
    """A small problem whose rows have costs of their own, with weights, their average, and scratch."""

    n, d, k = 40, 12, 5

    def __init__(self, *, empty: int = 1) -> None:
        X, self.labels = make_problem(self.n, self.d, self.k, seed=3, empty=empty)
        self.dense = X.toarray().astype(float)
        self.cost = np.random.default_rng(0).uniform(0.1, 0.5, self.n)
        self.rows: Rows = as_rows(X, self.labels)._replace(cost=self.cost)
        current, delta = np.zeros((2, self.d, padded_classes(self.k, F64)))
        self.weights = Weights.create(current, delta, 7.0)
        self.scratch = Scratch.create(current.shape[1], F64)

    @property
    def W(self) -> np.ndarray:
        assert not self.weights.current[:, self.k :].any()
        return self.weights.current[:, : self.k]

    def buffer(self, entries: int | None = None) -> DualBuffer:
        entries = self.n * self.k if entries is None else entries
        return new_buffer(entries, self.n, F64, dual_id_dtype(self.k))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(("loss", "margin", "solver"), CASES)
def test_visits_equal_plain_numpy(loss: str, margin: float, solver: int, keep: bool) -> None:
    """Two sweeps over the rows, the second from the duals that the first left."""
    problem, plain = Fixture(), reference.LOSSES[loss](margin)
    n, k, dense, labels, cost = problem.n, problem.k, problem.dense, problem.labels, problem.cost
    W, average_delta, B = np.zeros((problem.d, k)), np.zeros((problem.d, k)), np.zeros((n, k))
    old, dual_delta, t = as_old(None, n, k), 0.0, 0
    for sweep in range(2 if keep else 1):
        buffer, tally = problem.buffer(None if keep else 0), np.zeros(N_TALLIES)
        tally[CLOCK], tally[DUAL_DELTA] = t, dual_delta
        order = permutation(n, 1, sweep, 0, 0)
        reached = LOSSES[loss].visit(
            problem.rows, order, 0, n, Problem(k, margin, solver), problem.weights, Duals(old, buffer),
            problem.scratch, tally, None,
        )  # fmt: skip
        assert reached == n
        correct, loss_sum = 0, 0.0
        for i in order:
            scores = dense[i] @ W
            correct += np.argmax(scores) == labels[i]
            if not dense[i].any():
                continue
            loss_sum += cost[i] * plain.value(scores, labels[i])
            t += 1
            before, term = W, plain.dual_term(B[i], cost[i])
            W, B[i] = reference.one_visit(W, B[i], dense[i], labels[i], cost[i], loss, margin)
            average_delta += (t / 7.0) ** 2 * (W - before)
            dual_delta += (t / 7.0) ** 2 * (plain.dual_term(B[i], cost[i]) - term)
        np.testing.assert_allclose(problem.W, W, atol=1e-12)
        np.testing.assert_allclose(problem.weights.average_delta[:, :k], average_delta, atol=1e-10)
        np.testing.assert_allclose(W, reference.weights(B, dense, labels, margin, loss), atol=1e-12)
        assert reference.are_feasible(B, labels, cost, loss)
        assert tally[VISITED] == n
        assert tally[EMPTY] == 1
        assert tally[CLOCK] == t
        assert tally[CORRECT] == correct
        assert tally[LOSS_SUM] == pytest.approx(loss_sum)
        assert tally[DUAL_SUM] == pytest.approx(reference.dual_terms(B, cost, loss, margin).sum())
        assert tally[DUAL_DELTA] == pytest.approx(dual_delta)
        if keep:
            old = as_old(buffer, n, k)
            assert (old.counts <= LOSSES[loss].max_duals(k)).all()
            np.testing.assert_allclose(as_dense(old, k), B, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "margin", "solver"),
    [case for case in CASES if LOSSES[case.values[0]].revisit is not None],  # type: ignore[index]
)
def test_revisits_equal_plain_numpy(loss: str, margin: float, solver: int) -> None:
    """Each over the classes that have duals in the buffer, which then holds the new ones."""
    fixture = Fixture()
    n, k, dense, labels, cost = fixture.n, fixture.k, fixture.dense, fixture.labels, fixture.cost
    problem, buffer, tally = Problem(k, margin, solver), fixture.buffer(), np.zeros(N_TALLIES)
    duals = Duals(as_old(None, n, k), buffer)
    LOSSES[loss].visit(
        fixture.rows, np.arange(n), 0, n, problem, fixture.weights, duals, fixture.scratch, tally, None
    )
    W, B = fixture.W.copy(), as_dense(as_old(buffer, n, k), k)
    counts = buffer.counts[: buffer.used[1]]
    starts, active = np.cumsum(counts, dtype=np.int64) - counts, np.flatnonzero(counts)
    for _ in range(2):
        LOSSES[loss].revisit(
            fixture.rows, active, starts, problem, fixture.weights, buffer, fixture.scratch, tally, None
        )
        for at in active:
            i = buffer.rows[at]
            among = np.isin(np.arange(k), buffer.ids[starts[at] : starts[at] + counts[at]])
            W, B[i] = reference.one_visit(W, B[i], dense[i], labels[i], cost[i], loss, margin, among)
        np.testing.assert_allclose(fixture.W, W, atol=1e-12)
        assert tally[DUAL_SUM] == pytest.approx(reference.dual_terms(B, cost, loss, margin).sum())
    drop_zeros(buffer)
    assert buffer.values[: buffer.used[0]].all()
    np.testing.assert_allclose(as_dense(as_old(buffer, n, k), k), B, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_full_buffer_stops_the_visit_and_loses_nothing(loss: str) -> None:
    results = []
    for entries in (Fixture.k, 2 * Fixture.k, Fixture.n * Fixture.k):
        fixture = Fixture()
        n, k, buffer = fixture.n, fixture.k, fixture.buffer(entries)
        order, tally, at, stops = permutation(n, 0, 1, 0, 0), np.zeros(N_TALLIES), 0, 0
        while at < n:
            reached = LOSSES[loss].visit(
                fixture.rows, order, at, n, Problem(k, 1.0, 0), fixture.weights,
                Duals(as_old(None, n, k), buffer), fixture.scratch, tally, None,
            )  # fmt: skip
            assert reached > at
            at, stops = reached, stops + 1
            buffer.used[:] = 0
        results.append((fixture.weights.current, tally))
        assert (stops > 1) == (entries < n * k)
    for weights, tally in results[1:]:
        np.testing.assert_array_equal(weights, results[0][0])
        np.testing.assert_array_equal(tally, results[0][1])


@pytest.mark.parametrize(
    ("loss", "margin"), [(each.name, M) for each in LOSSES.values() for M in each.margins]
)
def test_losses_of_the_weights_and_of_their_average_equal_plain_numpy(loss: str, margin: float) -> None:
    fixture = Fixture(empty=0)
    n, k, dense = fixture.n, fixture.k, fixture.dense
    fixture.rows.labels[4] = -1
    known = fixture.rows.labels >= 0
    current, delta = fixture.weights.current, fixture.weights.average_delta
    current[:, :k], delta[:, :k] = np.random.default_rng(5).normal(size=(2, fixture.d, k))
    tallies = np.zeros((2, N_TALLIES))
    LOSSES[loss].loss_rows(
        fixture.rows, Problem(k, margin, 0), fixture.weights, 0.7, fixture.scratch, tallies, None
    )
    labels, cost = fixture.rows.labels, fixture.cost
    for tally, scored in zip(tallies, (current, current - 0.7 * delta), strict=True):
        W = scored[:, :k]
        assert tally[VISITED] == n
        assert tally[CORRECT] == ((dense @ W).argmax(axis=1) == labels).sum()
        expected = reference.primal(W, dense[known], labels[known], cost[known], loss, margin)
        assert 0.5 * (W**2).sum() + tally[LOSS_SUM] == pytest.approx(expected)
