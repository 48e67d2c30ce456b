"""The exceptions that the library raises for anything a user can cause or repair.

A message says what is wrong and where. A `Remedy` says what to do about it, and holds settings and functions
as data: ``str(error)`` words them for Python (``memory=5_242_880``), and the command line for a shell
(``--memory 5M``).
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
    """Parameter of a function and the value to give it: ``memory=5_242_880``.

    Attributes
    ----------
    name : str
        The parameter's name in Python.
    value : object, optional
        Left out (``...``) where the message does not know it.
    """

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
    """Call of a function of the library that is also a command: ``resume("run")``.

    Attributes
    ----------
    function : str
        Name of the function, and of the command: ``fit``, ``resume``, ``convert``, ...
    argument : path, optional
        The first argument, if the message knows it.
    options : tuple of Option
    """

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
    """Advice to the user, in words and data.

    Parameters
    ----------
    words : str
        With one ``{}`` for each of `parts`, as in ``Remedy("give at least {}", Option("memory", 2**20))``;
        without parts, braces stand for themselves.
    *parts : Option or Call

    Attributes
    ----------
    words : str
    parts : tuple of Option and Call
    """

    def __init__(self, words: str, *parts: Option | Call) -> None:
        self.words = words if parts else words.replace("{", "{{").replace("}", "}}")
        self.parts = parts

    def __str__(self) -> str:
        return self.words.format(*self.parts)

    @property
    def options(self) -> dict[str, Any]:
        """Names and values of the options, as far as their values are known: ready for another call."""
        options = [part for part in self.parts if isinstance(part, Option)]
        return {option.name: option.value for option in options if option.value is not ...}

    @classmethod
    def join(cls, remedies: Iterable[Self], separator: str = ", or ") -> Self:
        """Join several remedies, each of which helps, to one."""
        remedies = list(remedies)
        joined = cls("", *(part for remedy in remedies for part in remedy.parts))
        joined.words = separator.join(remedy.words for remedy in remedies)
        return joined


class Message(str):
    """One line for the user, as text for Python; also the message of a warning in a report or result.

    Attributes
    ----------
    problem : str
        The error and its place, without the remedy.
    remedy : Remedy or None
    """

    problem: str
    remedy: Remedy | None

    def __new__(cls, problem: str, remedy: Remedy | None = None) -> Self:
        message = super().__new__(cls, problem if remedy is None else f"{problem}; {remedy}")
        message.problem, message.remedy = str(problem), remedy
        return message


class _WithRemedy(Exception):
    """Base of errors and warnings: the first argument is a `Message`."""

    def __init__(self, message: str = "", *, remedy: Remedy | None = None) -> None:
        self.message = message if isinstance(message, Message) else Message(message, remedy)
        self.remedy = self.message.remedy
        super().__init__(self.message)


class StreamsvmError(_WithRemedy):
    """Base class: the message is one line that says what is wrong, where, and what to do.

    Parameters
    ----------
    message : str
        What is wrong, and where.
    remedy : Remedy, optional
        What to do about it; ``str`` of the error has it after a semicolon.
    """


class InputError(StreamsvmError):
    """Input text that cannot be understood (names file, line, column and token)."""


class StoreError(StreamsvmError):
    """A store that is missing, incomplete, damaged or does not fit (names array and chunk)."""


class PlanError(StreamsvmError):
    """Settings that cannot work, such as a memory budget that is too small for the longest row.

    Attributes
    ----------
    needed_memory : int or None
        The budget in bytes that would be enough, if memory is the reason. It is also the remedy.
    """

    def __init__(
        self, message: str = "", *, remedy: Remedy | None = None, needed_memory: int | None = None
    ) -> None:
        if remedy is None and needed_memory is not None:
            remedy = Remedy("give at least {}", Option("memory", needed_memory))
        super().__init__(message, remedy=remedy)
        self.needed_memory = needed_memory


@contextmanager
def part_of_memory(parts: int) -> Iterator[None]:
    """Let errors name the whole budget where only one of `parts` equal parts of it was passed on."""
    try:
        yield
    except PlanError as error:
        if error.needed_memory is None:
            raise
        raise PlanError(error.message.problem, needed_memory=parts * error.needed_memory) from None


class SettingsError(PlanError):
    """A setting that is invalid whatever the data is, such as a negative C.

    Attributes
    ----------
    setting : str or None
        Its name, if the message names it.
    """

    def __init__(
        self, message: str = "", *, remedy: Remedy | None = None, setting: str | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.setting = setting


def wrong_setting(name: str, problem: str, remedy: Remedy | None = None) -> SettingsError:
    """Return the error about a setting whose message begins with its name: ``C must be positive``."""
    return SettingsError(f"{name} {problem}", remedy=remedy, setting=name)


class RunError(StreamsvmError):
    """A run directory that is missing, in use, damaged, or belongs to other data."""


class ClusterError(StreamsvmError):
    """A cluster that is not there, whose workers differ, or that lost what it worked on."""


class ModelError(StreamsvmError):
    """A model folder that is missing, damaged, or does not fit the data."""


class FeatureError(StreamsvmError):
    """Raised if data and model have no feature name in common, or the data lacks a column of a table."""


class Interrupted(StreamsvmError):
    """Training stopped on request, after a commit from which `resume` continues."""


class StreamsvmWarning(_WithRemedy, UserWarning):
    """Something that does not stop the work: one line that says what, where and what to do."""


class ConvergenceWarning(StreamsvmWarning):
    """A model that is far from optimal: the tolerance was not reached, or all its weights are 0."""


class ScaleWarning(StreamsvmWarning):
    """Training data whose features differ so much in scale that the largest hide the others."""


def warn(warning: StreamsvmWarning | str, remedy: Remedy | None = None) -> None:
    """Issue a warning that points at the user's line: the first one outside this project."""
    if isinstance(warning, str):
        warning = StreamsvmWarning(warning, remedy=remedy)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INNER:
        frame, level = frame.f_back, level + 1
    warnings.warn(warning, stacklevel=level)


@contextmanager
def extra(error: type[StreamsvmError], problem: str, name: str) -> Iterator[None]:
    """Turn the lack of a package into `error`, which says that the extra `name` has it."""
    try:
        yield
    except ImportError:
        raise error(f"{problem}: pip install 'streamsvm[{name}]'") from None
