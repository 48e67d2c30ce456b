"""Visits, revisits and losses of every loss, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import few
from helpers import as_rows, dense_duals, make_problem
from small_problem import DEFAULTS, EXACT, FORMULATIONS, PARAMETERS

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.data.rows import Rows
from streamsvm.kernels.dual_lists import in_buffer
from streamsvm.kernels.duals import DualBuffer, Duals, OldDuals, drop_zeros
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.random import permutation
from streamsvm.kernels.scratch import Scratch
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
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.run.dual_log import DualFormat

F64 = np.dtype(float)
QUICK = [case for case in DEFAULTS if case[0] in ("ww", "cs", "ovr2")]
INEXACT = [
    (loss.name, loss.margins[0], solver)
    for loss in LOSSES.values()
    for solver in loss.solvers
    if solver not in EXACT
]


def as_old(duals: DualBuffer | None, n: int, k: int) -> OldDuals:
    """What the next pass reads of a buffer."""
    if duals is None:
        duals = DualFormat(F64, dual_id_dtype(k)).new_buffer(0, 0)
    size, visited = duals.used
    ids, values = duals.ids[:size].copy(), duals.values[:size].copy()
    begins, counts = np.zeros(n, np.int64), np.zeros(n, np.int32)
    counts[duals.rows[:visited]] = duals.counts[:visited]
    begins[duals.rows[:visited]] = np.cumsum(duals.counts[:visited]) - duals.counts[:visited]
    bits_at, n_bytes = np.full(n if duals.bits.shape[1] else 0, -1, np.int64), duals.bits.shape[1]
    if n_bytes:
        bits_at[duals.rows[:visited]] = n_bytes * np.arange(visited)
    return OldDuals(
        ids, values, begins, begins.copy(), counts, duals.bits[:visited].reshape(-1).copy(), bits_at
    ).read_only()


class Fixture:
    """A small problem whose rows have costs of their own, with weights, their average, and scratch."""

    n, d, k = 40, 12, 5

    def __init__(self, loss: str, margin: float = 1.0, solver: str | None = None, *, empty: int = 1) -> None:
        self.loss, self.plain = LOSSES[loss], reference.LOSSES[loss](margin, **PARAMETERS.get(loss, {}))
        self.kernels = self.loss.kernels_of(solver or self.loss.solvers[0])
        self.problem = Problem(self.k, margin, **PARAMETERS.get(loss, {}))
        X, self.labels = make_problem(self.n, self.d, self.k, seed=3, empty=empty)
        self.dense = X.toarray().astype(float)
        self.cost = np.random.default_rng(0).uniform(0.1, 0.5, self.n)
        self.rows: Rows = as_rows(X, self.labels)._replace(cost=self.cost)
        current, delta = np.zeros((2, self.d, padded_classes(self.k + self.loss.extra_columns, F64)))
        self.weights = Weights.create(current, delta, 7.0)
        self.scratch = Scratch.create(current.shape[1], F64)

    @property
    def W(self) -> np.ndarray:
        return self.coef(self.weights.current)

    def coef(self, weights: np.ndarray) -> np.ndarray:
        """The coefficients that columns of weights stand for."""
        columns = self.k + self.loss.extra_columns
        assert not weights[:, columns:].any()
        return weights[:, : self.k] + weights[:, self.k : columns].sum(axis=1, keepdims=True) / self.k

    def visit(self, order: np.ndarray, begin: int, old: OldDuals, new: DualBuffer, tally: np.ndarray) -> int:
        return self.kernels.visit(
            self.rows, order, begin, self.n, self.problem, self.weights, Duals(old, new), self.scratch, tally,
            None, None, None,
        )  # fmt: skip

    def revisit(self, order: np.ndarray, buffer: DualBuffer, tally: np.ndarray) -> None:
        self.kernels.revisit(
            self.rows, order, 0, len(order), self.problem, self.weights,
            Duals(in_buffer(buffer, self.n), buffer), self.scratch, tally, None, None, None,
        )  # fmt: skip

    def dual_terms(self, B: np.ndarray) -> float:
        return self.plain.dual_term(B, self.cost).sum()

    def buffer(self, entries: int | None = None) -> DualBuffer:
        entries = self.n * self.k if entries is None else entries
        duals = DualFormat(F64, dual_id_dtype(self.k), self.loss.bytes_of_bits(self.k))
        return duals.new_buffer(entries, self.n)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(("loss", "margin", "solver"), few(FORMULATIONS, *QUICK))
def test_visits_equal_plain_numpy(loss: str, margin: float, solver: str, keep: bool) -> None:
    """Two sweeps over the rows, the second from the duals that the first left."""
    fixture = Fixture(loss, margin, solver)
    plain, n, k, dense = fixture.plain, fixture.n, fixture.k, fixture.dense
    labels, cost = fixture.labels, fixture.cost
    W, average_delta, B = np.zeros((fixture.d, k)), np.zeros((fixture.d, k)), np.zeros((n, k))
    old, dual_delta, t = as_old(None, n, k), 0.0, 0
    for sweep in range(2 if keep else 1):
        buffer, tally = fixture.buffer(None if keep else 0), np.zeros(N_TALLIES)
        tally[CLOCK], tally[DUAL_DELTA] = t, dual_delta
        order = permutation(n, 1, sweep, 0, 0)
        assert fixture.visit(order, 0, old, buffer, tally) == n
        correct, loss_sum = 0, 0.0
        for i in order:
            scores = dense[i] @ W
            correct += np.argmax(scores.round(12)) == labels[i]  # BLAS may round equal ones differently
            if not dense[i].any():
                continue
            loss_sum += cost[i] * plain.value(scores, labels[i])
            t += 1
            before, term = W, plain.dual_term(B[i], cost[i])
            W, B[i] = reference.one_visit(
                W, B[i], dense[i], labels[i], cost[i], loss, margin, **PARAMETERS.get(loss, {})
            )
            average_delta += (t / 7.0) ** 2 * (W - before)
            dual_delta += (t / 7.0) ** 2 * (plain.dual_term(B[i], cost[i]) - term)
        np.testing.assert_allclose(fixture.W, W, atol=1e-12)
        np.testing.assert_allclose(fixture.coef(fixture.weights.average_delta), average_delta, atol=1e-10)
        np.testing.assert_allclose(W, reference.weights(B, dense, labels, margin, loss), atol=1e-12)
        assert reference.are_feasible(B, labels, cost, loss, **PARAMETERS.get(loss, {}))
        assert tally[VISITED] == n
        assert tally[EMPTY] == 1
        assert tally[CLOCK] == t
        assert tally[CORRECT] == correct
        assert tally[LOSS_SUM] == pytest.approx(loss_sum)
        assert tally[DUAL_SUM] == pytest.approx(fixture.dual_terms(B))
        assert tally[DUAL_DELTA] == pytest.approx(dual_delta)
        if keep:
            old = as_old(buffer, n, k)
            assert (old.counts <= LOSSES[loss].max_duals(k)).all()
            np.testing.assert_allclose(dense_duals(old, k, cost), B, atol=1e-12)


@pytest.mark.engine
@pytest.mark.parametrize(("loss", "margin", "solver"), few(INEXACT, ("cs", 1.0, "smo")))
def test_visits_that_are_not_exact_leave_feasible_duals_and_their_weights(
    loss: str, margin: float, solver: str
) -> None:
    """Three sweeps, and then two over the classes that have duals."""
    fixture = Fixture(loss, margin, solver)
    n, k, order = fixture.n, fixture.k, np.arange(fixture.n)
    old = as_old(None, n, k)
    for _ in range(3):
        buffer, tally = fixture.buffer(), np.zeros(N_TALLIES)
        fixture.visit(order, 0, old, buffer, tally)
        old = as_old(buffer, n, k)
        assert_duals_of_weights(fixture, dense_duals(old, k, fixture.cost), tally)
    counts = buffer.counts[: buffer.used[1]]
    for _ in range(2):
        fixture.revisit(np.asarray(buffer.rows[: len(counts)][counts > 0], np.int64), buffer, tally)
        assert_duals_of_weights(fixture, dense_duals(as_old(buffer, n, k), k, fixture.cost), tally)


def assert_duals_of_weights(fixture: Fixture, B: np.ndarray, tally: np.ndarray) -> None:
    margin, name = fixture.problem.margin, fixture.loss.name
    assert reference.are_feasible(B, fixture.labels, fixture.cost, name)
    W = reference.weights(B, fixture.dense, fixture.labels, margin, name)
    np.testing.assert_allclose(fixture.W, W, atol=1e-11)
    assert tally[DUAL_SUM] == pytest.approx(fixture.dual_terms(B))
    assert B.any()


@pytest.mark.parametrize(
    ("loss", "margin", "solver"),
    few((case for case in FORMULATIONS if LOSSES[case[0]].kernels.revisit is not None), *QUICK),
)
def test_revisits_equal_plain_numpy(loss: str, margin: float, solver: str) -> None:
    """Each over the classes that have duals in the buffer, which then holds the new ones."""
    fixture = Fixture(loss, margin, solver)
    n, k, dense, labels, cost = fixture.n, fixture.k, fixture.dense, fixture.labels, fixture.cost
    buffer, tally = fixture.buffer(), np.zeros(N_TALLIES)
    fixture.visit(np.arange(n), 0, as_old(None, n, k), buffer, tally)
    W, B = fixture.W.copy(), dense_duals(as_old(buffer, n, k), k, cost)
    counts = buffer.counts[: buffer.used[1]]
    starts, active = np.cumsum(counts, dtype=np.int64) - counts, np.flatnonzero(counts)
    for _ in range(2):
        fixture.revisit(np.asarray(buffer.rows[active], np.int64), buffer, tally)
        for at in active:
            i = buffer.rows[at]
            among = np.isin(np.arange(k), buffer.ids[starts[at] : starts[at] + counts[at]])
            W, B[i] = reference.one_visit(
                W, B[i], dense[i], labels[i], cost[i], loss, margin, among, **PARAMETERS.get(loss, {})
            )
        np.testing.assert_allclose(fixture.W, W, atol=1e-12)
        assert tally[DUAL_SUM] == pytest.approx(fixture.dual_terms(B))
    drop_zeros(buffer)
    assert buffer.values[: buffer.used[0]].all()
    np.testing.assert_allclose(dense_duals(as_old(buffer, n, k), k, cost), B, atol=1e-12)


@pytest.mark.parametrize("loss", few(LOSSES, "ww", "llw"))
def test_a_full_buffer_stops_the_visit_and_loses_nothing(loss: str) -> None:
    results = []
    for entries in (Fixture.k, 2 * Fixture.k, Fixture.n * Fixture.k):
        fixture = Fixture(loss)
        n, k, buffer = fixture.n, fixture.k, fixture.buffer(entries)
        order, tally, at, stops = permutation(n, 0, 1, 0, 0), np.zeros(N_TALLIES), 0, 0
        while at < n:
            reached = fixture.visit(order, at, as_old(None, n, k), buffer, tally)
            assert reached > at
            at, stops = reached, stops + 1
            buffer.used[:] = 0
        results.append((fixture.weights.current, tally))
        if LOSSES[loss].duals != "bits":  # which may leave the buffer nearly empty
            assert (stops > 1) == (entries < n * k)
    for weights, tally in results[1:]:
        np.testing.assert_array_equal(weights, results[0][0])
        np.testing.assert_array_equal(tally, results[0][1])


@pytest.mark.parametrize(
    ("loss", "margin"), few(dict.fromkeys((loss, M) for loss, M, _ in FORMULATIONS), "ww", "cs", "ovr2")
)
def test_losses_of_the_weights_and_of_their_average_equal_plain_numpy(loss: str, margin: float) -> None:
    fixture = Fixture(loss, margin, empty=0)
    n, k, dense = fixture.n, fixture.k, fixture.dense
    fixture.rows.labels[4] = -1
    known = fixture.rows.labels >= 0
    current, delta, columns = fixture.weights.current, fixture.weights.average_delta, k
    columns += LOSSES[loss].extra_columns
    current[:, :columns], delta[:, :columns] = np.random.default_rng(5).normal(size=(2, fixture.d, columns))
    fixture.weights.dirty[:] = 1
    tallies = np.zeros((2, N_TALLIES))
    fixture.kernels.loss_rows(
        fixture.rows, fixture.problem, fixture.weights, 0.7, fixture.scratch, tallies, None, None, None
    )
    labels, cost = fixture.rows.labels, fixture.cost
    for tally, scale in zip(tallies, (0.0, 0.7), strict=True):
        W = fixture.coef(current - scale * delta)
        assert tally[VISITED] == n
        assert tally[CORRECT] == ((dense @ W).argmax(axis=1) == labels).sum()
        expected = reference.primal(
            W, dense[known], labels[known], cost[known], loss, margin, **PARAMETERS.get(loss, {})
        )
        norm2 = fixture.kernels.norm2(fixture.weights, scale, None, k)
        assert norm2 == pytest.approx((W**2).sum())
        assert 0.5 * norm2 + tally[LOSS_SUM] == pytest.approx(expected)
