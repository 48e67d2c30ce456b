"""Errors and warnings about problems that a user can cause or fix.

A message says what is wrong and where, and its `Remedy` says what to do. A remedy stores settings and
functions as data, so that ``str(error)`` can print them for Python (``memory=5_242_880``), and the command
line can print them for a shell (``--memory 5M``).
"""

from __future__ import annotations

import dataclasses
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

# Packages skipped when choosing the line that a warning points at.
_INNER = {"streamsvm", "streamsvm_converters", "contextlib", "functools", "sklearn", "joblib"}


@dataclasses.dataclass(frozen=True)
class Option:
    """Parameter of a function and its value, such as ``memory=5_242_880``; an unknown value is ``...``."""

    name: str
    value: Any = ...

    def __str__(self) -> str:
        if self.value is ...:
            return f"{self.name}=..."
        if type(self.value) is int:
            return f"{self.name}={self.value:_}"
        return f"{self.name}={_shown(self.value)}"


@dataclasses.dataclass(frozen=True)
class Call:
    """Call of a function that is also a command, such as ``resume("run")``; `argument` is None if unknown."""

    function: str
    argument: str | os.PathLike[str] | None = None
    options: tuple[Option, ...] = ()

    def __str__(self) -> str:
        first = [] if self.argument is None else [_shown(self.argument)]
        arguments = ", ".join([*first, *map(str, self.options)])
        return f"`{self.function}({arguments or '...'})`"


def _shown(value: Any) -> str:
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)


class Remedy:
    """Advice to the user: text that can include parameters and calls.

    `words` contains one ``{}`` for each of `parts`, as in ``Remedy("set {} or more", Option("memory", 99))``.
    If there are no parts, braces are literal.
    """

    def __init__(self, words: str, *parts: Option | Call) -> None:
        self.words = words if parts else words.replace("{", "{{").replace("}", "}}")
        self.parts = parts

    def __str__(self) -> str:
        return self.words.format(*self.parts)

    @property
    def options(self) -> dict[str, Any]:
        """Options with known values, as keyword arguments for another call."""
        options = [part for part in self.parts if isinstance(part, Option)]
        return {option.name: option.value for option in options if option.value is not ...}

    @classmethod
    def join(cls, remedies: Iterable[Self], separator: str = ", or ") -> Self:
        """Join alternative remedies into one."""
        remedies = list(remedies)
        joined = cls("", *(part for remedy in remedies for part in remedy.parts))
        joined.words = separator.join(remedy.words for remedy in remedies)
        return joined


class Message(str):
    """One-line message in Python notation; `problem` is the message without the remedy."""

    problem: str
    remedy: Remedy | None

    def __new__(cls, problem: str, remedy: Remedy | None = None) -> Self:
        message = super().__new__(cls, problem if remedy is None else f"{problem}; {remedy}")
        message.problem, message.remedy = str(problem), remedy
        return message


class _WithRemedy(Exception):
    def __init__(self, message: str = "", *, remedy: Remedy | None = None) -> None:
        self.message = message if isinstance(message, Message) else Message(message, remedy)
        self.remedy = self.message.remedy
        super().__init__(self.message)


class StreamsvmError(_WithRemedy):
    """Base class of all errors; `message` says in one line what is wrong, where, and what to do."""


class InputError(StreamsvmError):
    """Invalid input; for text, the message names the file, line, column and token."""


class StoreError(StreamsvmError):
    """Missing, incomplete, damaged or unsuitable store; the message names a damaged array and chunk."""


class PlanError(StreamsvmError):
    """Settings that cannot work, such as a memory budget that is too small for the longest row.

    `needed_memory` is a sufficient budget in bytes, or None if memory is not the problem. By default, the
    remedy is to set `memory` to this value.
    """

    def __init__(
        self, message: str = "", *, remedy: Remedy | None = None, needed_memory: int | None = None
    ) -> None:
        if remedy is None and needed_memory is not None:
            remedy = Remedy("set {} or more", Option("memory", needed_memory))
        super().__init__(message, remedy=remedy)
        self.needed_memory = needed_memory


@contextmanager
def part_of_memory(parts: int) -> Iterator[None]:
    """Multiply the needed memory of a `PlanError` by `parts`, for code that gets 1/`parts` of the memory."""
    try:
        yield
    except PlanError as error:
        if error.needed_memory is None:
            raise
        raise PlanError(error.message.problem, needed_memory=parts * error.needed_memory) from None


class SettingsError(PlanError):
    """Setting that is invalid or does not apply, such as a negative C; `setting` is its name, or None."""

    def __init__(
        self, message: str = "", *, remedy: Remedy | None = None, setting: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.setting = setting


def wrong_setting(name: str, problem: str, remedy: Remedy | None = None) -> SettingsError:
    """Return an error whose message begins with the name of the setting, as in ``C must be positive``."""
    return SettingsError(f"{name} {problem}", remedy=remedy, setting=name)


class RunError(StreamsvmError):
    """Run directory that is missing, in use or damaged, or that was started with different data."""


class ClusterError(StreamsvmError):
    """Cluster that is unreachable, has workers with other package versions, or keeps losing workers."""


class ModelError(StreamsvmError):
    """Model that is missing or damaged, that cannot be exported, or that does not fit the data."""


class FeatureError(StreamsvmError):
    """Data that shares no feature name with the model, or that lacks a column of its training table."""


class Interrupted(StreamsvmError):
    """Training that was stopped on request; `resume` continues a run from its last commit."""


class StreamsvmWarning(_WithRemedy, UserWarning):
    """Base class of warnings; the message says in one line what may be wrong, where, and what to do."""


class ConvergenceWarning(StreamsvmWarning):
    """Model that is far from optimal: it did not reach the tolerance, or all its weights are 0."""


class ScaleWarning(StreamsvmWarning):
    """Training data in which features of large scale dominate the model."""


def warn(warning: StreamsvmWarning | str, remedy: Remedy | None = None) -> None:
    """Issue a warning that points at the user's code: the innermost frame outside the packages `_INNER`."""
    if isinstance(warning, str):
        warning = StreamsvmWarning(warning, remedy=remedy)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


@contextmanager
def extra(error: type[StreamsvmError], problem: str, name: str) -> Iterator[None]:
    """Convert an `ImportError` to `error`, whose message shows how to install the extra `name`."""
    try:
        yield
    except ImportError:
        raise error(f"{problem}: pip install 'streamsvm[{name}]'") from None
