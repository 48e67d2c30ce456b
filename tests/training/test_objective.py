"""What a fit reports is what NumPy computes from its model and its duals."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from small_problem import of_loss

from streamsvm.losses import ROW_LOSSES as REGISTRY
from streamsvm.training import passes as trainings
from streamsvm.training.objective import gap_record

N, D, K, C = 90, 14, 6, 0.4


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
    options = {"passes": 2, "progress": lambda *step: seen.append(step[0])}
    result = fit(store, out=tmp_path / "run", gap="none", **options)
    exact = (result.primal, result.dual, result.gap, result.relative_gap)
    assert (*exact, result.train_accuracy) == (None,) * 5
    assert set(seen) == {"pass 1 of 2", "pass 2 of 2"}
    result = fit(store, out=tmp_path / "end", gap="end", **options)
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
    said = ["the tolerance 1e-06 was not reached: the relative gap is -0.5", "rounding makes it negative"] * (
        not converged
    )
    assert [part in text for part, text in zip(said, result.warnings, strict=True)] == [True] * len(said)
