"""Checks of settings, for use in ``Annotated[type, check]``, and the types of command-line options."""

from __future__ import annotations

import math
import numbers
import operator
import reprlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from streamsvm.base.text import absolute, as_python_value, check_local, parse_size
from streamsvm.errors import SettingsError, wrong_setting

GIVEN = "given"  # placeholder for a Python object passed instead of a file
LARGEST = 2**63 - 1  # compiled code takes int64


class Check(NamedTuple):
    """Description of the valid values of a setting, for use in ``Annotated[type, Check(...)]``.

    Attributes
    ----------
    accepts : str
        Type of the argument as Python source.
    wanted : str
        Description of the valid values that completes "must be ...".
    take : callable
        Function that validates and converts a value. It raises `TypeError`, `ValueError` or `OverflowError`
        if the value is invalid.
    option : type or callable
        Type of the command-line option, or a function that parses its text.
    metavar : str
        Placeholder for the value in the help of a command.
    choices : tuple of str
        Valid values, if there are only a few.
    repeated : bool
        Whether several values are allowed, as a sequence or by repeating the option.
    """

    accepts: str
    wanted: str
    take: Callable[[Any], Any]
    option: Any = str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    repeated: bool = False

    def checked(self, name: str, value: Any) -> Any:
        """Return the converted value; raise `SettingsError` if it is invalid for the setting `name`."""
        try:
            return self.take(as_python_value(value))
        except (TypeError, ValueError, OverflowError):
            raise wrong_setting(name, f"must be {self.wanted}, not {reprlib.repr(value)}") from None


def whole(least: int = 0, most: int = LARGEST) -> Check:
    """Return a check for whole numbers from `least` to `most`."""

    def take(value: Any) -> int:
        number = operator.index(value)
        if isinstance(value, bool) or not least <= number <= most:
            raise ValueError
        return number

    end = "2**63)" if most == LARGEST else f"{most}]"
    return Check("int", f"a whole number in [{least}, {end}", take, int, "NUMBER")


def _real(wanted: str, holds: Callable[[float], bool]) -> Check:
    def take(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not holds(float(value)):
            raise ValueError
        return float(value)

    return Check("float", wanted, take, float, "NUMBER")


def _instance(kind: type, wanted: str) -> Check:
    def take(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return kind(value)

    return Check(kind.__name__, wanted, take, kind, "TEXT" if kind is str else "")


def _local(path: Any) -> str:
    check_local(path, SettingsError)
    return absolute(path)


POSITIVE = _real("positive and finite", lambda value: 0 < value < math.inf)
NUMBER = _real("a number", lambda value: True)
FINITE = _real("a finite number", math.isfinite)
ACCURACY = _real("an accuracy between 0 and 1, such as 0.95", lambda value: 0 < value < 1)
NOT_NEGATIVE = _real("a number of at least 0", lambda value: value >= 0)
FLAG = _instance(bool, "True or False")
TEXT = _instance(str, "text")
SIZE = Check("int | str", "a size in bytes, or text such as 500M or 2G", parse_size, parse_size, "SIZE")
PATH = Check("str | Path", "a path", _local, Path, "PATH")
ADDRESS = PATH._replace(take=absolute)  # path, or address such as s3://bucket/name
TABLE = PATH._replace(accepts="Any", take=lambda value: value if value == GIVEN else _local(value))


def one_of(*choices: str) -> Check:
    def take(value: Any) -> str:
        if str(value) not in choices:
            raise ValueError
        return str(value)

    accepts = ", ".join(f'"{choice}"' for choice in choices)
    return Check(f"Literal[{accepts}]", f"one of {', '.join(choices)}", take, choices=choices)


def or_word(word: str, check: Check) -> Check:
    """Return a check that accepts `word` in addition to the values that `check` accepts."""

    def parse(text: str) -> Any:
        try:
            return text if text == word else check.option(text)
        except ValueError:
            return text

    return Check(
        f'{check.accepts} | Literal["{word}"]',
        f"{word} or {check.wanted}",
        lambda value: word if isinstance(value, str) and value == word else check.take(value),
        parse,
        f"{check.metavar}|{word}",
    )


def several(check: Check) -> Check:
    """Return a check that accepts one or several values; the caller must check each of them."""

    def take(value: Any) -> tuple[Any, ...]:
        value = value.tolist() if hasattr(value, "tolist") else value
        return tuple(value) if isinstance(value, list | tuple) else (value,)

    accepts = f"{check.accepts} | Sequence[{check.accepts}]"
    return check._replace(accepts=accepts, take=take, repeated=True)
