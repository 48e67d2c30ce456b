"""What the losses share: order, scoring, updating, and one visit against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from helpers import as_rows, make_problem

from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.kernels.random import permutation
from streamsvm.kernels.steps import (
    CORRECT,
    DUAL_SUM,
    EMPTY,
    LOSS_SUM,
    N_TALLIES,
    VISITED,
    Scratch,
    Weights,
    padded_classes,
    score_rows,
    sum_of_squares,
)
from streamsvm.losses import MODULES, get_loss
from streamsvm.run.dual_log import DualLog, make_pool


def plain(weights: np.ndarray) -> Weights:
    """Weights without an average, all of which have changed."""
    made = Weights.create(weights, weights[:0], 1.0)
    made.marks[:, 1] = 2**64 - 1
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_classes", [2, 3, 5, 8, 9, 17, 130])
def test_scores_equal_the_matrix_product(n_classes: int, dtype: str) -> None:
    X, labels = make_problem(150, 40, n_classes)
    K = padded_classes(n_classes, np.dtype(dtype))
    assert n_classes <= K
    assert K * np.dtype(dtype).itemsize % 64 == 0
    W = np.random.default_rng(1).normal(size=(40, K)).astype(dtype)
    scores = np.empty((100, K), dtype)
    score_rows(as_rows(X, labels, dtype), 20, 120, W, scores)
    np.testing.assert_allclose(scores, (X.astype(dtype) @ W)[20:120], rtol=2e-5, atol=2e-5)
    assert sum_of_squares(plain(W), 0.0) == pytest.approx((W.astype(float) ** 2).sum(), rel=1e-12)


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("margin", [1.0, 0.5])
@pytest.mark.parametrize("loss", sorted(MODULES))
def test_visits_equal_plain_numpy(loss: str, margin: float, keep: bool) -> None:
    """Two sweeps over the rows, the second from the duals that the first left."""
    module = get_loss(loss)
    if margin not in module.MARGINS:
        pytest.skip(f"{loss} has no margin {margin}")
    n, d, k, C = 40, 12, 5, 0.3
    X, labels = make_problem(n, d, k, seed=3, empty=1)
    dense, rows = X.toarray().astype(float), as_rows(X, labels)
    for solver in range(len(module.SOLVERS)):
        W, B = np.zeros((d, k)), np.zeros((n, k))
        weights = np.zeros((d, padded_classes(k, np.dtype(float))))
        scratch = Scratch.create(weights.shape[1], weights.dtype)
        pool = make_pool(n * k if keep else 0, n, np.dtype(float), dual_id_dtype(k))
        log = DualLog("absent", np.dtype(float), dual_id_dtype(k), k, write=False)  # type: ignore[arg-type]
        old = log.segment(0, n)
        for sweep in range(2 if keep else 1):
            order = permutation(n, 1, sweep, 0, 0)
            tally = np.zeros(N_TALLIES)
            end = module.visit(
                rows, order, 0, n, plain(weights), k, C, margin, solver, old, pool, scratch, tally
            )
            assert end == n
            correct, loss_sum = 0, 0.0
            for i in order:
                scores = dense[i] @ W
                correct += np.argmax(scores) == labels[i]
                if not dense[i].any():
                    continue
                loss_sum += {"ww": reference.ww_loss, "cs": reference.cs_loss}[loss](
                    scores, labels[i], margin
                )
                W, B[i] = reference.one_visit(W, B[i], dense[i], labels[i], C, loss, margin)
            np.testing.assert_allclose(weights[:, :k], W, atol=1e-12)
            assert not weights[:, k:].any()
            np.testing.assert_allclose(W, reference.weights(B, dense, labels, margin), atol=1e-12)
            assert tally[VISITED] == n
            assert tally[EMPTY] == 1
            assert tally[CORRECT] == correct
            assert tally[LOSS_SUM] == pytest.approx(loss_sum)
            assert tally[DUAL_SUM] == pytest.approx(B.sum())
            if keep:
                found = np.zeros((n, k))
                at = 0
                for i, count in zip(pool.rows[: pool.used[1]], pool.counts[: pool.used[1]], strict=True):
                    found[i, pool.ids[at : at + count]] = pool.values[at : at + count]
                    at += count
                np.testing.assert_allclose(found, B, atol=1e-12)
                flat_ids, flat_values = pool.ids[:at].copy(), pool.values[:at].copy()
                flat_ids.flags.writeable = flat_values.flags.writeable = False
                begin = np.zeros(n, np.int64)
                counts = np.zeros(n, np.int32)
                begin[pool.rows[: pool.used[1]]] = (
                    np.cumsum(pool.counts[: pool.used[1]]) - pool.counts[: pool.used[1]]
                )
                counts[pool.rows[: pool.used[1]]] = pool.counts[: pool.used[1]]
                old = old._replace(
                    ids=flat_ids, values=flat_values, ids_at=begin, values_at=begin.copy(), counts=counts
                )
                pool.used[:] = 0


@pytest.mark.parametrize("loss", sorted(MODULES))
def test_a_full_pool_stops_the_visit_and_loses_nothing(loss: str) -> None:
    module = get_loss(loss)
    n, k = 30, 4
    X, labels = make_problem(n, 8, k)
    rows, order = as_rows(X, labels), permutation(n, 0, 1, 0, 0)
    log = DualLog("absent", np.dtype(float), dual_id_dtype(k), k, write=False)  # type: ignore[arg-type]
    results = []
    for entries in (k, 2 * k, n * k):
        weights = np.zeros((8, padded_classes(k, np.dtype(float))))
        scratch = Scratch.create(weights.shape[1], weights.dtype)
        pool = make_pool(entries, n, np.dtype(float), dual_id_dtype(k))
        old, tally, at, stops = log.segment(0, n), np.zeros(N_TALLIES), 0, 0
        while at < n:
            reached = module.visit(
                rows, order, at, n, plain(weights), k, 0.5, 1.0, 0, old, pool, scratch, tally
            )
            assert reached > at
            at, stops = reached, stops + 1
            pool.used[:] = 0
        results.append((weights, tally))
        assert (stops > 1) == (entries < n * k)
    for weights, tally in results[1:]:
        np.testing.assert_array_equal(weights, results[0][0])
        np.testing.assert_array_equal(tally, results[0][1])


@pytest.mark.parametrize("loss", sorted(MODULES))
def test_loss_rows_equal_plain_numpy(loss: str) -> None:
    k = 5
    X, labels = make_problem(60, 10, k)
    labels[4] = -1
    now, lag = np.zeros((2, 10, padded_classes(k, np.dtype(float))))
    now[:, :k], lag[:, :k] = np.random.default_rng(5).normal(size=(2, 10, k))
    tallies = np.zeros((2, N_TALLIES))
    scratch = Scratch.create(now.shape[1], now.dtype)
    weights = plain(now)._replace(lag=lag)
    get_loss(loss).loss_rows(as_rows(X, labels), weights, 0.7, k, 1.0, scratch, tallies)
    dense, known = X.toarray().astype(float), labels >= 0
    for tally, scored in zip(tallies, (now, now - 0.7 * lag), strict=True):
        scores = dense @ scored[:, :k]
        assert tally[VISITED] == 60
        assert tally[CORRECT] == (scores.argmax(axis=1) == labels).sum()
        expected = reference.primal(scored[:, :k], dense[known], labels[known], 1.0, loss)
        assert tally[LOSS_SUM] == pytest.approx(expected - 0.5 * (scored**2).sum())
