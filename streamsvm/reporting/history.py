"""Reports of a run, read from ``metrics.jsonl`` and ``tune.jsonl``; damaged lines are left out."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamsvm.base import durable
from streamsvm.errors import RunError
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.run.directory import RunDir

_MAX_BYTES = 2**26  # largest part of a file that is read: those of the longest runs take a few megabytes
_MAX_NAMED = 3  # largest number of damaged lines that are named one by one


@dataclasses.dataclass(frozen=True)
class History:
    """Reports of a run, in their order.

    Attributes
    ----------
    name : str
        Name of the run in errors.
    settings : dict
        Settings of the run; empty if only its search over C is known.
    rows : list of dict
        Reports within the first pass, or of a run over a stream.
    passes : list of dict
        Reports of passes, each with its number as ``pass``.
    tried : list of dict
        Settings that ``streamsvm tune`` tried.
    notes : list of str
        A sentence for each thing that could not be read.
    """

    name: str
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    passes: list[dict[str, Any]]
    tried: list[dict[str, Any]]
    notes: list[str]


def history_of(run: Any) -> History:
    """Return the history of a run directory, of a `FitResult` or `OnlineResult`, or of a model with one.

    Raises
    ------
    RunError
        If there is no run, or its ``run.json`` is damaged.
    """
    if isinstance(run, History):
        return run
    result = getattr(run, "result", run)  # of a model
    if isinstance(result, FitResult | OnlineResult):
        return _history("the result", getattr(result, "settings", {}), result.history, [], [])
    if not isinstance(run, str | os.PathLike):
        raise RunError(f"the run must be its directory or the result of a fit, not a {type(run).__name__}")
    return read_history(Path(run))


def read_history(path: Path) -> History:
    """Read the history of the run directory `path`, which another process may be writing."""
    run = RunDir(path)
    notes: list[str] = []
    tried = _lines(run.tuned, notes)
    has_settings = run.settings.exists() or not tried
    settings = run.read_settings()["settings"] if has_settings else {}
    lines = _lines(run.metrics, notes)
    lost = sum(line.get("event") == "lost" for line in lines)
    if lost:
        notes.append(
            f"{run.metrics} was cut short, and the run went on: there are no figures of the reports that "
            "are missing"
        )
    found = _history(str(path), settings, lines, tried, notes)
    if found.passes and not lost and (missing := found.passes[-1]["pass"] - len(found.passes)) > 0:
        notes.append(f"{run.metrics} lacks the reports of {missing} of {found.passes[-1]['pass']} passes")
    return found


def _history(
    name: str, settings: Any, lines: list[dict[str, Any]], tried: list[dict[str, Any]], notes: list[str]
) -> History:
    """Sort the lines of a run by their events."""
    passes = {}
    for line in lines:
        if line.get("event") == "pass" and isinstance(line.get("pass"), int):
            passes[line["pass"]] = line  # the last one, if a number occurs again
    return History(
        name,
        settings,
        [line for line in lines if line.get("event") == "rows"],
        [passes[number] for number in sorted(passes)],
        [line for line in tried if number(line, "C") is not None],
        notes,
    )


def _lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    """Read the objects in a file of JSON lines; a sentence in `notes` names lines without one."""
    try:
        with durable.named(path), durable.open_file(path) as file:
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"{path} cannot be read: {durable.reason(error)}")
        return []
    *lines, rest = content[:_MAX_BYTES].split(b"\n")  # a line without an end may be being written
    if len(content) > _MAX_BYTES:
        notes.append(f"{path} has more than {_MAX_BYTES // 2**20} MB; the reports behind them are left out")
    elif rest and _object(rest) is not None:
        lines.append(rest)
    records = [_object(line) for line in lines]
    damaged = [at for at, record in enumerate(records, 1) if record is None]
    if damaged:
        some = ", ".join(map(str, damaged[:_MAX_NAMED])) + (", ..." if len(damaged) > _MAX_NAMED else "")
        which = f"line {some} is" if len(damaged) == 1 else f"{len(damaged):,} lines ({some}) are"
        notes.append(f"{path}: {which} damaged, and left out")
    return [record for record in records if record is not None]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def number(record: dict[str, Any], name: str) -> float | None:
    """Return a finite number in a record; None if there is none under this name."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        value = float(value)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def points(records: list[dict[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    """Return the numbers under two names, of the records that have both."""
    found = [(number(record, x), number(record, y)) for record in records]
    pairs = [(a, b) for a, b in found if a is not None and b is not None]
    return [a for a, _ in pairs], [b for _, b in pairs]


def achieved(history: History, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of the pass that made the model, or of the last one without a model.

    `model` is the record of the model, or empty. None stands for what is not known of the model: accuracies
    and gaps may have been measured of the last iterate alone, where the model is the average.
    """
    until = model.get("passes", math.inf)
    passes = [each for each in with_seconds(history.passes) if each["pass"] <= until]
    last = (passes or history.rows or [{}])[-1]
    averaged = bool(model.get("average"))
    found = {"passes": number(last, "pass") if passes else None}
    found |= {name: number(last, name) for name in ("rows", "classes", "features")}
    for name in ("valid_accuracy", "train_accuracy"):
        of_iterate = number(last, f"last_iterate_{name}")
        found[name] = None if averaged and of_iterate is None else number(last, name)
        if model and not averaged and of_iterate is not None:
            found[name] = of_iterate
    memory = max((number(each, "peak_memory_bytes") or 0.0 for each in passes), default=0.0)
    return {
        **found,
        "relative_gap": number(last, "average_relative_gap" if averaged else "relative_gap"),
        "relative_gap_estimate": number(last, "relative_gap_estimate"),
        "progressive_accuracy": number((passes or [last])[0], "progressive_accuracy"),
        "seconds": number(last, "trained_seconds" if passes else "seconds"),
        "peak_memory_bytes": memory or None,
    }


def with_seconds(passes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return reports of passes with ``trained_seconds``, the training time up to the end of each.

    From the first missing report on it is NaN. The time of measuring the gap does not count.
    """
    total, result = 0.0, []
    for expected, record in enumerate(passes, 1):
        seconds = number(record, "seconds")
        total = total + seconds if record.get("pass") == expected and seconds is not None else math.nan
        result.append({**record, "trained_seconds": total})
    return result
