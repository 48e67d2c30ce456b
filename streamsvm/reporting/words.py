"""Figures and settings of a run as texts for people."""

from __future__ import annotations

from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from streamsvm.model import Model


def model_text(model: Model) -> str:
    record = model.record
    parts = [f"{model.n_features:,} features x {len(model.classes_):,} classes, {model.dtype}"]
    parts += ["average of the iterates"] if record.get("average") else []
    parts += [f"{record['passes']} passes"] if record.get("passes") else []
    parts += [f"{record['rows']:,} rows"] if isinstance(record.get("rows"), int) else []
    return ", ".join(parts)


def number_text(value: Any, form: str) -> str | None:
    return None if value is None else f"{value:{form}}"


def percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.2f} %"


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def setting_text(value: Any) -> Any:
    """A setting as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "; ".join(str(setting_text(each)) for each in value[:20]) + (
            "; ..." if len(value) > 20 else ""
        )
    if isinstance(value, dict):
        return ", ".join(
            f"{name} {setting_text(each)}" for name, each in value.items() if name != "array_crc32"
        )
    return value


def time_of_change(path: Path) -> str | None:
    try:
        return time_text(datetime.fromtimestamp(path.stat().st_mtime))
    except OSError:
        return None


def time_text(time: datetime) -> str:
    return f"{time.astimezone():%Y-%m-%d %H:%M:%S %z}"


def version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def first_of(most: int, n: int, what: str) -> str:
    """How much of a list a table has."""
    return f"{n:,} {what}" if n <= most else f"{most} of {n:,} {what}"
