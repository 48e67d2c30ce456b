"""Format text for users: library messages worded for a shell (``--memory 5M``), and numbers with nouns."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Mapping
from typing import Any

from streamsvm.base.text import printable
from streamsvm.errors import Call, Message, Option, SettingsError

_SIZES = {"memory"}


def shell_text(message: object, options: Collection[str] | None = None) -> str:
    """Return a message, error or warning as one line; omit a remedy that names an option not in `options`."""
    setting = message.setting if isinstance(message, SettingsError) else None
    if isinstance(message, BaseException):
        message = message.args[0] if message.args else ""
    if not isinstance(message, Message):
        return printable(str(message))
    problem, remedy = message.problem, message.remedy
    if setting is not None:
        problem = problem.replace(setting, _option(Option(setting)), 1)
    if remedy is None:
        return printable(problem)
    named = {part.name for part in remedy.parts if isinstance(part, Option)}
    if options is not None and not named <= set(options):
        return printable(problem)
    return printable(f"{problem}; {remedy.words.format(*map(_part, remedy.parts))}")


def shell_value(value: Any) -> Any:
    """Return a record for JSON, with messages worded for a shell, and with None for infinity and NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Message):
        return shell_text(value)
    if isinstance(value, dict):
        return {key: shell_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [shell_value(each) for each in value]
    return value


def _part(part: Option | Call) -> str:
    if isinstance(part, Option):
        return _option(part)
    words = ["streamsvm", part.function]
    if part.argument is not None:
        words.append(shlex.quote(os.fspath(part.argument)))
    return f"`{' '.join([*words, *map(_option, part.options)])}`"


def _option(option: Option) -> str:
    name, value = option.name.rstrip("_").replace("_", "-"), option.value
    if value is False:
        return f"--no-{name}"
    if value is True or value is ...:
        return f"--{name}"
    if option.name in _SIZES:
        return f"--{name} {-(-value // 2**20)}M"
    return f"--{name} {shlex.quote(str(value))}"


def count(n: int, noun: str) -> str:
    """Return a number with its noun: 1 pass, 1,437 rows."""
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def fraction(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"


def small(value: float) -> str:
    """Return a number with four decimals, or with an exponent if it is small."""
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def gap(measures: Mapping[str, Any]) -> str | None:
    """Return the relative gap of a pass or run as text, with ~ in front of an estimate."""
    exact, estimate = measures["relative_gap"], measures["relative_gap_estimate"]
    if exact is not None:
        return small(exact)
    return None if estimate is None else f"~{small(estimate)}"


def size_of_data(rows: int, features: int, classes: int, nnz: int) -> str:
    what = "value" if nnz == rows * features else "non-zero"  # dense rows may contain zeros
    numbers = {"row": rows, "feature": features, "class": classes, what: nnz}
    return ", ".join(count(n, noun) for noun, n in numbers.items())
