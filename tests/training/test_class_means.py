"""Where products of dense rows begin: at duals that are all alike, and the weights of the classes' means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import helpers
import numpy as np
import pytest
import reference
from helpers import plain_fit as fit
from resuming import assert_resumes

from streamsvm.kernels.random import permutation
from streamsvm.training.products import tile_rows

pytestmark = pytest.mark.engine

N, D, K, C = 150, 6, 70, 0.3  # more classes than the columns with which rows are visited one at a time
OPTIONS: dict[str, Any] = {"C": C, "gap": "pass", "dtype": "float64", "transform": "none", "average": False}


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % K)
    X = rng.normal(size=(K, D))[y] + rng.normal(size=(N, D))
    X[7] = 0
    return X, y


def begin(X: np.ndarray, y: np.ndarray, cost: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and duals of the best point at which all duals of a row are a multiple of its cost."""
    duals = np.where(np.arange(K) == y[:, None], 0.0, (cost * X.any(axis=1))[:, None])
    squares = (reference.weights(duals, X, y, margin) ** 2).sum()
    duals *= min(1.0, duals.sum() / squares)
    return reference.weights(duals, X, y, margin), duals


@pytest.mark.parametrize(("margin", "C"), [(1.0, C), (0.5, C), (1.0, 1e-5)])  # with 1e-5 all duals are at C
@pytest.mark.parametrize("held_out", [False, True])
def test_a_training_is_a_replay_in_numpy_from_there(
    problem: tuple[np.ndarray, np.ndarray], margin: float, C: float, held_out: bool
) -> None:
    X, y = problem
    weight = np.arange(N) % 3.0  # 0 leaves a row out
    cost = C * weight * np.where(y == 3, 2.5, 1.0)
    own: dict[str, Any] = {"class_weight": {"3": 2.5}, "margin": margin, "C": C}
    if held_out:
        cost[helpers.held_out(np.where(weight == 0, -1, y), 1, 4)] = 0
        own["hold_out"] = "1/4"
    result = fit(X, y, sample_weight=weight, passes=2, **OPTIONS | own)
    W, B = begin(X, y, cost, margin)
    for this_pass in (1, 2):
        for i in permutation(N, 0, this_pass, 0, 0):
            if cost[i] and X[i].any():
                W, B[i] = reference.one_visit(W, B[i], X[i], y[i], cost[i], "ww", margin)
        found = result.result.history[this_pass - 1]
        assert found["dual"] == pytest.approx(reference.dual(B, X, y, cost, "ww", margin), rel=1e-9)
        assert found["primal"] == pytest.approx(reference.primal(W, X, y, cost, "ww", margin), rel=1e-9)
    np.testing.assert_allclose(result.coef_, W.T, rtol=1e-6, atol=1e-12)
    assert result.result.progressive_accuracy is None  # the means have the labels of all rows


def test_the_average_takes_all_steps_of_a_tile_to_be_made_at_once(
    problem: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = problem
    model = fit(X, y, passes=1, **OPTIONS | {"average": True})
    cost = np.full(N, C)
    W, B = begin(X, y, cost, 1.0)
    begins = {N // 2, *range(0, N, tile_rows(80, 8)), *(2**p for p in range(8))}  # with pauses to report
    lacks, lacks_dual, clock = np.zeros_like(W), 0.0, 0
    for t, i in enumerate(permutation(N, 0, 1, 0, 0)):
        if t in begins:
            time = (clock + 1) / N
        if X[i].any():
            before, old = W, B[i].copy()
            W, B[i] = reference.one_visit(W, B[i], X[i], y[i], C, "ww")
            if t >= N // 2:
                clock += 1
                lacks += time**2 * (W - before)
                lacks_dual += time**2 * (B[i] - old).sum()
        if t == N // 2 - 1:
            clock, time = 0, 1 / N
    average = W - (N / clock) ** 2 * lacks
    np.testing.assert_allclose(model.coef_, average.T, rtol=1e-6, atol=1e-12)
    dual = B.sum() - (N / clock) ** 2 * lacks_dual - (average**2).sum() / 2
    assert model.result.dual == pytest.approx(dual, rel=1e-9)


@pytest.mark.parametrize("cost", [1e37, 1e300])
def test_sums_that_overflow_leave_the_start_at_zero(
    problem: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    X, y = problem
    options = OPTIONS | {"dtype": "float32", "C": cost}
    found = fit(100 * X, y, passes=1, **options)
    monkeypatch.setattr("streamsvm.training.spec.Spec.starts_at_means", False)
    np.testing.assert_array_equal(found.coef_, fit(100 * X, y, passes=1, **options).coef_)
    assert np.isfinite(found.coef_).all()
    assert found.result.progressive_accuracy is not None


def test_stopped_before_the_first_block_and_in_the_first_pass(
    problem: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    X, y = problem
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    files = {"labels": tmp_path / "y.npy", "block_rows": 40, "passes": 2, **OPTIONS}
    stages: list[str] = []
    files["progress"] = lambda stage, *_: stages.append(stage)
    assert_resumes(tmp_path, tmp_path / "X.npy", (1, 2, 4, 5, 6), **files)
    assert stages[0] == "class means"
    assert {"pass 1 of 2"} < set(stages)
