"""What a fit reports is what NumPy computes from its model and its duals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
from cases import few
from helpers import dense_duals, make_problem, make_store
from hypothesis import given
from hypothesis import strategies as st
from small_problem import PARAMETERS, of_loss

from streamsvm import fit, load_model, open_store
from streamsvm.data.blocks import Blocks
from streamsvm.kernels.weights import padded_classes
from streamsvm.losses import ROW_LOSSES as REGISTRY
from streamsvm.run.dual_log import DualLog
from streamsvm.run.weights import DenseWeights
from streamsvm.settings.fit import Settings
from streamsvm.training import passes as trainings
from streamsvm.training.learner import Learner
from streamsvm.training.objective import Scoring, gap_record, score_blocks
from streamsvm.training.spec import Spec

LOSSES = [(loss.name, margin) for loss in REGISTRY.values() for margin in loss.margins]
N, D, K, C = 90, 14, 6, 0.4


def parameters_of(loss: str) -> dict[str, Any]:
    return PARAMETERS.get(loss, {})


def duals_of(run: Path, loss: str, pass_number: int, block_rows: int) -> np.ndarray:
    """The duals that a run left of a pass, dense."""
    path = run / f"duals-{pass_number}.bin"
    spec = Spec(Settings(**of_loss(loss), dtype="float64"), N, D, np.zeros(K, np.int64))
    log = DualLog(path, path.stat().st_size, spec.dual_format())
    found = np.zeros((N, K))
    for block, begin in enumerate(range(0, N, block_rows)):
        n_rows = min(block_rows, N - begin)
        found[begin : begin + n_rows] = dense_duals(log.segment(block, n_rows), K, np.full(n_rows, C))
    return found


@pytest.mark.parametrize(("loss", "margin"), few(LOSSES, "ww", "cs", "ovr2", "llw"))
def test_reports_equal_numpy(tmp_path: Path, loss: str, margin: float) -> None:
    X, labels = make_problem(N, D, K, noise=1.5, empty=2)
    labels[:2] = 1, 2  # all their scores are 0, and the first class wins
    store = make_store(tmp_path / "a.zarr", X, labels)
    dense = X.toarray().astype(float)
    options = {**of_loss(loss), "margin": margin, "C": C, "dtype": "float64", "block_rows": 40}
    options |= {"average": False, "gap": "pass"}
    decays = []
    for passes in (1, 2, 4):
        run = tmp_path / f"run{passes}"
        result = fit(store, out=run, passes=passes, keep_duals=True, **options)
        W, B = load_model(run).coef_.T, duals_of(run, loss, passes, 40)
        # The weights are those of the duals, and the duals are feasible.
        np.testing.assert_allclose(
            W, reference.weights(B, dense, labels, margin, loss), rtol=1e-11, atol=1e-12
        )
        assert reference.are_feasible(B, labels, C, loss, **parameters_of(loss))
        assert not B[:2].any()

        primal = reference.primal(W, dense, labels, C, loss, margin, **parameters_of(loss))
        dual = reference.dual(B, dense, labels, C, loss, margin, **parameters_of(loss))
        assert result.primal == pytest.approx(primal, rel=1e-12)
        assert result.dual == pytest.approx(dual, rel=1e-11)
        assert result.gap == pytest.approx(primal - dual, rel=1e-8)
        assert result.gap >= 0
        assert result.relative_gap == pytest.approx((primal - dual) / primal, rel=1e-8)
        assert result.train_accuracy == pytest.approx(((dense @ W).argmax(axis=1) == labels).mean())
        assert result.empty_rows == 2
        assert {**result.history[-1], "primal": result.primal} == result.history[-1]
        decays.append((result.gap, result.gap_decay))
    for gap, decay in decays:
        assert decay == pytest.approx(gap / decays[0][0], rel=1e-12)
    assert decays[0][1] == 1
    assert decays[2][0] < decays[0][0]


@pytest.mark.parametrize("loss", REGISTRY)
def test_dual_rises_from_pass_to_pass_and_bounds_every_primal(tmp_path: Path, loss: str) -> None:
    X, labels = make_problem(N, D, K, noise=2.0)
    store = make_store(tmp_path / "a.h5", X, labels)
    result = fit(store, out=tmp_path / "run", passes=30, C=C, dtype="float64", gap="pass", **of_loss(loss))
    duals = [record["dual"] for record in result.history]
    assert duals == sorted(duals)
    assert max(duals) <= min(record["primal"] for record in result.history)


def test_without_a_measured_gap_no_figure_is_reported_as_exact(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.h5", *make_problem(40, D, K))
    seen = []
    result = fit(
        store, out=tmp_path / "run", passes=2, gap="none", progress=lambda *step: seen.append(step[0])
    )
    exact = (result.primal, result.dual, result.gap, result.relative_gap)
    assert (*exact, result.train_accuracy) == (None,) * 5
    assert set(seen) == {"pass 1 of 2", "pass 2 of 2"}
    result = fit(
        store, out=tmp_path / "end", passes=2, gap="end", progress=lambda *step: seen.append(step[0])
    )
    assert "gap 1" not in seen
    assert "gap" not in result.history[0]
    assert result.averaged
    assert result.gap == result.history[1]["average_gap"]
    assert result.last_iterate["gap"] == result.history[1]["gap"]
    assert result.gap_decay is None or result.gap_decay == 1  # nothing measured to compare with


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("relative_gap", "converged"), [(-0.5, False), (-1e-9, True)])
def test_a_negative_gap_beyond_the_tolerance_is_reported_and_does_not_end_the_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative_gap: float, converged: bool, average: bool
) -> None:
    store = make_store(tmp_path / "a.h5", *make_problem(40, D, K))
    monkeypatch.setattr(
        trainings, "gap_record", lambda *sums: gap_record(*sums) | {"relative_gap": relative_gap}
    )
    result = fit(store, out=tmp_path / "run", passes=2, tol=1e-6, average=average, dtype="float64")
    assert (result.status, result.passes) == (("converged", 1) if converged else ("done", 2))
    said = ["tolerance 1e-06 not reached (-0.5)", "only rounding makes it negative"] * (not converged)
    assert [part in text for part, text in zip(said, result.warnings, strict=True)] == [True] * len(said)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_gap_record(dual_sum: float, loss_sum: float, norm2: float) -> None:
    record = gap_record(dual_sum, loss_sum, norm2)
    assert record["primal"] == pytest.approx(norm2 / 2 + loss_sum)
    assert record["dual"] == pytest.approx(dual_sum - norm2 / 2)
    assert record["gap"] == pytest.approx(norm2 + loss_sum - dual_sum, rel=1e-9, abs=1e-6)
    expected = record["gap"] / record["primal"] if record["primal"] else 0
    assert record["relative_gap"] == pytest.approx(expected)


@pytest.mark.parametrize(("loss", "margin"), LOSSES)
def test_scoring_equals_numpy_whatever_the_blocks(tmp_path: Path, loss: str, margin: float) -> None:
    X, labels = make_problem(N, D, K, empty=3)
    labels[:3] = 1  # all their scores are 0, and the first class wins
    labels[5] = -1
    store = make_store(tmp_path / "a.zarr", X, labels, n_classes=K)
    F64 = np.dtype(float)
    storage = DenseWeights((D, padded_classes(K + REGISTRY[loss].extra_columns, F64)), F64, 7.0)
    W, delta = np.random.default_rng(0).normal(size=(2, D, K))
    storage.weights.current[:, :K], storage.weights.average_delta[:, :K] = W, delta
    settings = Settings(**of_loss(loss), margin=margin, dtype="float64", C=C)
    learner = Learner(Spec(settings, N, D, np.zeros(K, np.int64)), storage)
    dense, known = X.toarray().astype(float), labels >= 0

    def check(scoring: Scoring, W: np.ndarray) -> None:
        of_all = reference.primal(W, dense[known], labels[known], C, loss, margin, **parameters_of(loss))
        expected = of_all - 0.5 * (W**2).sum()
        assert scoring.loss_sum == pytest.approx(expected, rel=1e-12)
        assert scoring.accuracy == pytest.approx(((dense @ W).argmax(axis=1) == labels).mean())

    for starts in ([0, N], [0, 1, 50, N]):
        steps: list[int] = []
        with open_store(store) as opened:
            blocks = Blocks(opened, np.array(starts), F64, cost=C)
            (of_last,) = score_blocks(blocks, learner, None, steps.append)
            both = score_blocks(blocks, learner, 0.3, steps.append)
        assert steps == 2 * starts[1:]
        check(of_last, W)
        check(both[0], W)
        check(both[1], W - 0.3 * delta)
