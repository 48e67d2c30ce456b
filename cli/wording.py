"""Wording for people: messages of the library as for a shell (``--memory 5M``), numbers with nouns."""

from __future__ import annotations

import difflib
import math
import os
import re
import shlex
import textwrap
from collections.abc import Collection, Iterable
from typing import Any

import typer

from streamsvm.base.text import printable
from streamsvm.errors import Call, Message, Option, SettingsError

_SIZES = {"memory"}  # options in bytes
_WANTED = {  # by what pydantic calls an error
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
}


def shell_text(message: object, options: Collection[str] | None = None) -> str:
    """Return a message, error or warning as one line, with its remedy worded for the command line.

    A remedy is left out if it names an option that the running command, which has `options`, lacks.
    """
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
    """Return a record as JSON takes it: messages worded for the command line, no infinite numbers or NaN."""
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
    name, value = option.name.replace("_", "-"), option.value
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
    """Return a number with four decimals, or with an exponent if these say little."""
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def size_of_data(rows: int, features: int, classes: int, nnz: int) -> str:
    what = "value" if nnz == rows * features else "non-zero"  # dense rows may have zeros among them
    numbers = {"row": rows, "feature": features, "class": classes, what: nnz}
    return ", ".join(count(n, noun) for noun, n in numbers.items())


def wrapped(text: str, width: int | None, indent: int = 2, *, whole: bool = False) -> str:
    """Return text in lines of at most `width` characters, all but the first indented; None: as it is.

    A word that is longer than a line, such as a path, is shortened in the middle; if it is to stay `whole`,
    the terminal breaks the lines.
    """
    if width is None or len(text) <= width:
        return text
    most = max(width - indent, 8)
    if whole and max(map(len, text.split())) > most:
        return text
    if not whole:
        text = re.sub(r"\S+", lambda found: in_the_middle(found.group(), most), text)
    return textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False, expand_tabs=False,
    )  # fmt: skip


def in_the_middle(word: str, most: int) -> str:
    """Return a word shortened in its middle to at most `most` characters."""
    end = most // 2
    return word if len(word) <= most else f"{word[: most - end - 1]}…{word[-end:]}"


def wrong_usage(message: str) -> typer.BadParameter:
    """Return an exception for options that contradict one another or make no sense: exit code 2."""
    return typer.BadParameter(printable(message))


def usage_text(error: Any) -> str:
    """Return the message of an error that Typer, or what it checks values with, has found in the options."""
    parameter, text = getattr(error, "param", None), error.message
    if hasattr(error, "option_name") and hasattr(error, "possibilities"):
        options = [option for each in error.ctx.command.params for option in each.opts]
        return f"there is no option {printable(error.option_name)}{did_you_mean(error.option_name, options)}"
    if parameter is None:
        return str(text)
    name = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.metavar
    if type(error).__name__ == "MissingParameter":
        return f"{name} is missing"
    faults = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []  # of pydantic
    wanted = _WANTED.get(faults[0]["type"]) if faults else None
    if wanted is not None:
        wanted = wanted.format(**faults[0].get("ctx", {}))
        return f"{name} must be {wanted}, not {printable(str(faults[0]['input']))}"
    return f"{name}: {text.removeprefix('Value error, ').rstrip('.')}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence about a name that is not among `names`."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else ""
