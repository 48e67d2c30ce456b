"""What a fit reports, and what a plan says before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_files import metrics_of, model_bytes
from small_problem import BLOCK, D, K, N

from streamsvm import fit, load_model, plan
from streamsvm.errors import PlanError


def test_metrics_hold_what_is_promised(tmp_path: Path, store: Path) -> None:
    events: list[dict[str, Any]] = []
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "gap": "pass"}
    result = fit(store, out=tmp_path / "run", **options, valid=store, report=events.append)
    lines = metrics_of(tmp_path / "run")
    assert [line for line in events if line["event"] in ("rows", "pass")] == lines
    assert [event["event"] for event in events if event["event"] not in ("rows", "pass", "compile")] == [
        "plan", "ready",
    ]  # fmt: skip
    passes = [line for line in lines if line["event"] == "pass"]
    assert passes == result.history
    promised = {
        *("pass", "rows", "dual", "primal", "gap", "relative_gap", "gap_decay", "accuracy", "valid_accuracy"),
        *("rows_per_second", "seconds", "bytes_read", "peak_memory_bytes"),
    }
    for number, record in enumerate(passes, start=1):
        assert record.keys() >= promised
        assert (record["pass"], record["rows"]) == (number, N)
        assert record["bytes_read"] > 0
        assert record["accuracy"] == record["valid_accuracy"]
    last = passes[-1]
    for name in ("primal", "dual", "gap", "relative_gap", "gap_decay", "accuracy", "valid_accuracy"):
        assert getattr(result, name) == last[name]
    assert result.progressive_accuracy == passes[0]["progressive_accuracy"]
    assert Path(result.model) == tmp_path / "run/model"
    assert result.peak_memory_bytes >= max(record["peak_memory_bytes"] for record in passes)


def test_a_plan_says_what_a_fit_does(tmp_path: Path, store: Path) -> None:
    described = plan(store, block_rows=BLOCK, passes=1)
    events: list[dict[str, Any]] = []
    fit(store, out=tmp_path / "run", block_rows=BLOCK, passes=1, report=events.append)
    assert events[0]["event"] == "plan"
    assert {key: events[0][key] for key in described} == described
    assert (described["rows"], described["features"], described["classes"]) == (N, D, K)
    assert described["blocks"] == 5
    assert described["weights_in_memory"]
    assert described["weights_bytes"] == 2 * D * 16 * 4  # with their average, in whole vectors
    assert described["planned_bytes"] > described["weights_bytes"]


def test_a_plan_warns_of_weights_without_room(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"passes": 1, "dtype": "float64", "average": True}
    monkeypatch.setattr("streamsvm.training.fit_plan.choices", prefer(in_files))
    described = plan(store, **options)
    needed = described["planned_bytes"] + described["weights_bytes"]

    def warning(available: int, **more: Any) -> str | None:
        monkeypatch.setattr("streamsvm.training.fit_plan.available_memory", lambda: available)
        return plan(store, **(options | more))["warning"]

    def is_slow(text: str | None) -> bool:
        return text is not None and "tens of times" in text

    assert not is_slow(warning(needed))
    text = warning(needed - 1)
    assert text is not None
    assert is_slow(text)
    assert all(word in text for word in ("float32", "--no-average", "--memory"))
    assert not is_slow(warning(needed - 1, dtype="float32"))  # what is advised is true
    assert not is_slow(warning(needed - 1, average=False))
    text = warning(1, dtype="float32", average=False)
    assert text is not None
    assert "float32" not in text
    assert "average" not in text
    events: list[dict[str, Any]] = []
    fit(store, out=tmp_path / "run", passes=1, report=events.append)
    assert "tens of times" in events[0]["warning"]
    monkeypatch.setattr("streamsvm.training.fit_plan.MANY_CLASSES", K)  # then the plan in files has lists
    assert warning(1) is None


@pytest.mark.parametrize("average", [False, True])
def test_weights_in_files_are_those_in_memory(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, average: bool
) -> None:
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "average": average}
    fit(store, out=tmp_path / "memory", **options)
    monkeypatch.setattr("streamsvm.training.fit_plan.choices", prefer(in_files))
    assert not plan(store, **options)["weights_in_memory"]
    names: set[str] = set()

    def list_files(*_: object) -> None:
        names.update(path.name for path in (tmp_path / "files").glob("weights*.bin"))

    fit(store, out=tmp_path / "files", progress=list_files, **options)
    assert names == {"weights.bin", "weights-dirty.bin"} | ({"weights-avg.bin"} if average else set())
    assert not list((tmp_path / "memory").glob("weights*.bin"))
    assert model_bytes(tmp_path / "files") == model_bytes(tmp_path / "memory")


def test_a_budget_too_small_names_one_that_works(tmp_path: Path, store: Path) -> None:
    with pytest.raises(PlanError, match=r"at least [\d,]+ ") as refused:
        fit(store, out=tmp_path / "run", memory=100, passes=2)
    assert not (tmp_path / "run").exists()
    memory = int(str(refused.value).split("at least ")[1].split(" ")[0].replace(",", ""))
    fit(store, out=tmp_path / "run", memory=memory, passes=2)
    assert load_model(tmp_path / "run").coef_.any()


def test_commits_come_as_often_as_asked(tmp_path: Path, store: Path) -> None:
    counts = {
        every: fit(
            store, out=tmp_path / f"run{every}", passes=2, block_rows=BLOCK, checkpoint_every=every
        ).checkpoints
        for every in ("1", "2", "5", "1h")
    }
    # Of ten blocks, and one at the end.
    assert counts == {"1": 11, "2": 6, "5": 3, "1h": 1}
