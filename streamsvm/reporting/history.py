"""Read the training history of a run from ``metrics.jsonl``."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamsvm.base import durable
from streamsvm.base.progress import of_model
from streamsvm.errors import RunError
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.run.directory import RunDir


@dataclasses.dataclass(frozen=True)
class History:
    """Settings of a run, its reports in order, and notes about damaged files."""

    name: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]  # reports within the first pass, or within a stream
    passes: list[dict[str, Any]]  # one report per pass; ``pass`` is its number
    notes: list[str]


def history_of(run: Any) -> History:
    """Return the history of a run directory, `FitResult`, `OnlineResult`, or model with a result.

    Raises `RunError` if `run` is none of these, or if its ``run.json`` is damaged.
    """
    if isinstance(run, History):
        return run
    result = getattr(run, "result", run)
    if isinstance(result, FitResult | OnlineResult):
        return _history("the result", getattr(result, "settings", {}), result.history, [])
    if not isinstance(run, str | os.PathLike):
        raise RunError(f"run must be a run directory or the result of a fit, not {type(run).__name__}")
    return read_history(Path(run))


def read_history(path: Path) -> History:
    """Read the history of a run directory, which may be in use; skip damaged lines, and note their number."""
    run = RunDir(path)
    settings, notes, lines = run.read_settings()["settings"], [], []
    try:
        lines = durable.read_bounded(run.metrics).split(b"\n")[:-1]  # the last line may be incomplete
    except FileNotFoundError:
        pass
    except OSError as error:
        notes.append(f"{run.metrics} cannot be read: {durable.reason(error)}")
    records = [record for line in lines if (record := _object(line)) is not None]
    if damaged := len(lines) - len(records):
        notes.append(f"{run.metrics}: {damaged:,} of {len(lines):,} lines are damaged and are left out")
    return _history(str(path), settings, records, notes)


def _history(name: str, settings: Any, lines: list[dict[str, Any]], notes: list[str]) -> History:
    pass_lines = [line for line in lines if line.get("event") == "pass" and isinstance(line.get("pass"), int)]
    passes = {line["pass"]: line for line in pass_lines}
    rows = [line for line in lines if line.get("event") == "rows"]
    return History(name, settings, rows, [passes[number] for number in sorted(passes)], notes)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    return value if isinstance(value, int | float) else None


def points(records: list[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    values = [(number(record, x), number(record, y)) for record in records]
    pairs = [(a, b) for a, b in values if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def achieved(history: History, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the pass that produced the model, or of the last pass if `model` is empty.

    `model` is the content of ``model.json``. Figures that were not measured are None.
    """
    last_pass = model.get("passes", math.inf)
    passes = [each for each in with_seconds(history.passes) if each["pass"] <= last_pass]
    last = (passes or history.rows or [{}])[-1]
    figures = {"passes": number(last, "pass") if passes else None}
    figures |= {name: number(last, name) for name in ("rows", "classes", "features")}
    figures |= {name: number(last, name) for name in ("valid_accuracy", "train_accuracy")}
    return {
        **figures,
        "relative_gap": number(of_model(last), "relative_gap"),
        "relative_gap_estimate": number(last, "relative_gap_estimate"),
        "progressive_accuracy": number((passes or [last])[0], "progressive_accuracy"),
        "seconds": number(last, "trained_seconds" if passes else "seconds"),
        "peak_memory_bytes": max((number(each, "peak_memory_bytes") or 0 for each in passes), default=0)
        or None,
    }


def with_seconds(passes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add ``trained_seconds``, the total training time without gap measurements; NaN after a missing pass."""
    total, result = 0.0, []
    for expected, record in enumerate(passes, 1):
        seconds = number(record, "seconds")
        total = total + seconds if record.get("pass") == expected and seconds is not None else math.nan
        result.append({**record, "trained_seconds": total})
    return result
