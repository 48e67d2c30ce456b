"""What a fit reports, and what a plan says before it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numba.core.event
import pytest
from helpers import IN_FILES, MemoryPolicy, fit_with, plan_with
from helpers import plain_fit as fit
from run_files import metrics_of
from small_problem import BLOCK, D, K, N

from streamsvm import load_model, plan
from streamsvm.errors import PlanError


def test_compiling_is_in_no_seconds_of_a_pass(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of the test: after each block work takes 1 s, and what Numba calls compiling 100 s."""
    now = [0.0]
    for module, name in ((time, "perf_counter"), (numba.core.event, "timer")):
        monkeypatch.setattr(module, name, lambda: now[0])

    def progress(stage: str, done: int, total: int | None) -> None:
        if stage.startswith("pass 1"):
            now[0] += 1
            with numba.core.event.trigger_event("numba:compiler_lock"):
                now[0] += 100

    result = fit(store, out=tmp_path / "run", passes=2, block_rows=BLOCK, progress=progress)
    assert [record["seconds"] for record in result.history] == [-(-N // BLOCK) - 1, 0]  # one before the last


def test_metrics_report_and_result_agree(tmp_path: Path, store: Path) -> None:
    events: list[dict[str, Any]] = []
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "gap": "pass"}
    result = fit(store, out=tmp_path / "run", **options, valid=store, report=events.append)
    lines = metrics_of(tmp_path / "run")
    assert [line for line in events if line["event"] in ("rows", "pass")] == lines
    assert [event["event"] for event in events if event["event"] not in ("rows", "pass")] == [
        "plan", "ready",
    ]  # fmt: skip
    passes = [line for line in lines if line["event"] == "pass"]
    assert passes == result.history
    promised = {
        *("pass", "rows", "dual", "primal", "gap", "relative_gap", "gap_decay"),
        *("train_accuracy", "valid_accuracy"),
        *("rows_per_second", "seconds", "bytes_read", "peak_memory_bytes"),
    }
    for number, record in enumerate(passes, start=1):
        assert record.keys() >= promised
        assert (record["pass"], record["rows"]) == (number, N)
        assert record["bytes_read"] > 0
        assert record["train_accuracy"] == record["valid_accuracy"]
    last = passes[-1]
    for name in ("primal", "dual", "gap", "relative_gap", "gap_decay", "train_accuracy", "valid_accuracy"):
        own = f"average_{name}" if result.averaged else name
        assert getattr(result, name) == last.get(own, last[name])
    assert result.progressive_accuracy == passes[0]["progressive_accuracy"]
    assert Path(result.model) == tmp_path / "run/model"
    assert result.peak_memory_bytes >= max(record["peak_memory_bytes"] for record in passes)


def test_a_plan_describes_what_a_fit_does(tmp_path: Path, store: Path) -> None:
    described = plan(store, block_rows=BLOCK, passes=1, transform="none")
    events: list[dict[str, Any]] = []
    fit(store, out=tmp_path / "run", block_rows=BLOCK, passes=1, report=events.append)
    assert events[0]["event"] == "plan"
    of_a_run = [key for key in described if not key.startswith("worker_")]
    assert {key: events[0][key] for key in of_a_run} == {key: described[key] for key in of_a_run}
    assert (described["rows"], described["features"], described["classes"]) == (N, D, K)
    assert described["blocks"] == 5
    assert described["weights_in_memory"]
    assert described["weights_bytes"] == 2 * D * 16 * 4  # with their average, in whole vectors
    assert described["planned_bytes"] > described["weights_bytes"]


def test_a_plan_warns_of_weights_in_files_that_do_not_fit_memory(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"passes": 1}
    described = plan_with(IN_FILES, store, **options)
    needed = described["planned_bytes"] + described["weights_bytes"]

    def warning(available: int, policy: MemoryPolicy = IN_FILES) -> str | None:
        monkeypatch.setattr("streamsvm.training.fit_plan.available_memory", lambda: available)
        return plan_with(policy, store, **options)["warning"]

    def is_slow(text: str | None) -> bool:
        return text is not None and "tens of times" in text

    assert not is_slow(warning(needed))
    text = warning(needed - 1)
    assert is_slow(text)
    assert text.remedy.options["memory"] > described["planned_bytes"]
    events: list[dict[str, Any]] = []
    fit_with(IN_FILES, store, out=tmp_path / "run", passes=1, report=events.append)
    assert is_slow(events[0]["warning"])
    sparse = MemoryPolicy(many_classes=K, prefer=lambda plan: plan.sparse)
    assert warning(1, sparse) is None


def test_a_budget_that_is_too_small_is_refused_with_one_that_is_enough(tmp_path: Path, store: Path) -> None:
    with pytest.raises(PlanError, match=r"set memory=.* or more") as refused:
        fit(store, out=tmp_path / "run", memory=100, passes=2)
    assert not (tmp_path / "run").exists()
    memory = refused.value.needed_memory
    assert memory is not None
    fit(store, out=tmp_path / "run", memory=memory, passes=2)
    assert load_model(tmp_path / "run").coef_.any()


def test_the_interval_decides_how_many_commits_are_made(tmp_path: Path, store: Path) -> None:
    """Of ten blocks, and one at the end."""
    options: dict[str, Any] = {"out": tmp_path / "run", "passes": 2, "block_rows": BLOCK}
    for every, expected in ("1", 11), ("2 blocks", 6), ("5", 3), ("1h", 1), (3600, 1):
        assert fit(store, checkpoint_every=every, force=True, **options).checkpoints == expected, every
