"""Format the results of one run as text, or of several runs as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from streamsvm_cli.table import table_lines
from streamsvm_cli.wording import count, fraction, gap

from streamsvm.base.text import format_size
from streamsvm.settings.fit import Settings
from streamsvm.settings.online import OnlineSettings

_SUMMARIZED = {"C", "C_factors", "passes", "loss", "valid", "hold_out"}  # shown elsewhere, or not at all
_SIZES = {"rows": "row", "features": "feature", "classes": "class"}


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """Return a description of a run as a dict from heading to text, with the results first."""
    result, settings = run["result"], run["settings"]
    effort = [count(int(result["passes"]), "pass")] if result["passes"] else []
    effort += [f"{result['seconds']:.2f} s of training"] if result["seconds"] is not None else []
    if result["peak_memory_bytes"]:
        effort.append(f"peak memory {format_size(int(result['peak_memory_bytes']))}")
    sizes = [count(int(result[name]), noun) for name, noun in _SIZES.items() if result.get(name)]
    base: Any = Settings if "store" in run else OnlineSettings
    shown_settings = {name: settings[name] for name in ("loss", "passes", "tol", "C") if name in settings}
    default = base(**shown_settings)
    other = {name: settings[name] for name in settings if settings[name] != getattr(default, name)}
    words = [_in_words(name, value) for name, value in other.items() if name not in _SUMMARIZED]
    without = "" if run["model"] else ", without a model"
    how = ", chosen by tune" if run["tuned"] else ", chosen from the data"
    lines = {
        "run": "finished" if _is_finished(run) else "in progress or interrupted" + without,
        "accuracy": _measured(result["valid_accuracy"], f"on {_held_out(run)}"),
        "training accuracy": _measured(result["train_accuracy"]),
        "progressive accuracy": _measured(result["progressive_accuracy"], "before learning from each row"),
        "relative gap": gap(result),
        "effort": ", ".join(effort),
        "data": ", ".join(sizes),
        "from": ", ".join(run["files"].get("data") or run.get("store") or run["input"]["inputs"]),
        "loss": f"{settings['loss']}, C {_number(run['C'])}{how * run['C_auto']}",
        "other settings": ", ".join(words),
    }
    shown = ("probability_temperature", "commits", "damage", "verified")
    return {**lines, **{name: run[name] for name in shown}}


def comparison(names: Sequence[str], runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of runs, the most accurate first, followed by the settings that differ."""
    pairs = sorted(
        zip(names, runs, strict=True), key=lambda pair: -(pair[1]["result"]["valid_accuracy"] or -1.0)
    )
    rows = []
    for name, run in pairs:
        result = run["result"]
        cells = name, fraction(result["valid_accuracy"]), gap(result) or "-"
        rows.append((*cells, *map(_number, (run["C"], result["passes"], result["seconds"]))))
    yield from table_lines(("run", "accuracy", "rel. gap", "C", "passes", "seconds"), rows)
    if any(row[2].startswith("~") for row in rows):
        yield "~ marks an estimate, because the exact gap was not measured."
    if len({_measured_on(run) for run in runs}) > 1:
        yield "The accuracies were measured on different or unknown rows, so they cannot be compared."
    if len({run["data_fingerprint"] for run in runs}) > 1:
        yield "The runs were trained on different data."
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run["settings"].items():
            values.setdefault(name, set()).add(repr(value))
    in_table = {"C", "C_factors", "passes"}
    differing = [name for name, texts in values.items() if len(texts) > 1 and name not in in_table]
    if differing:
        yield ""
        yield "Settings that differ:"
        for name, run in pairs:
            used = run["settings"]
            yield f"  {name}: {', '.join(_in_words(each, used[each]) for each in differing if each in used)}"


def _measured_on(run: dict[str, Any]) -> Any:
    """Return a key that is equal for runs whose accuracies were measured on the same rows."""
    if run["settings"].get("hold_out"):
        return run["settings"]["hold_out"], run["data_fingerprint"]
    return run["valid_fingerprint"]


def _is_finished(run: dict[str, Any]) -> bool:
    result, settings = run["result"], run["settings"]
    reached, tol = result["relative_gap"], settings.get("tol")
    done = "passes" not in settings or not result["passes"] or result["passes"] >= settings["passes"]
    return bool(run["model"]) and (done or (None not in (reached, tol) and reached <= tol))


def _held_out(run: dict[str, Any]) -> str:
    settings = run["settings"]
    if "valid" in run["files"]:
        return ", ".join(run["files"]["valid"])
    if settings.get("hold_out"):
        return f"{settings['hold_out']} held out"
    return os.path.basename(settings.get("valid") or "-")


def _measured(value: float | None, on: str = "") -> str | None:
    return None if value is None else f"{fraction(value)} {on}".strip()


def _number(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def _in_words(name: str, value: Any) -> str:
    text = format_size(value) if name == "memory" else "default" if value is None else str(value)
    return f"{name.rstrip('_').replace('_', '-')} {text}"
