"""Declarations of settings, and the base of dataclasses that check their settings by them.

A declaration has all facts of a setting. Signatures, documentation, the options of commands and refusals are
made from them, so that a setting is in no list of names.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import operator
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streamsvm.base.text import absolute, check_local, parse_size
from streamsvm.errors import SettingsError, wrong_setting

GIVEN = "given"  # for a Python object in the place of a file, of which the settings have no copy
STORE, MATRIX, ESTIMATOR = range(3)  # scopes of a setting
# Of kinds with another name than that of their type: as Python writes it, and as numpydoc does.
_TYPES: dict[Any, tuple[str, str]] = {
    os.PathLike: ("str | Path", "path"),
    tuple: ("str | Sequence[str]", "str or sequence of str"),
    range: ("tuple[int, int]", "tuple of int"),
}
_WANTED: dict[Any, str] = {
    str: "text", os.PathLike: "a path", tuple: "names of columns", bool: "True or False",
    range: "the least and the largest length, whole numbers such as 1 and 2",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Setting:
    """Declaration of a setting: everything but its name.

    Where a new setting says nothing, it is refused for a matrix, by the estimator and by `resume`, and `tune`
    takes it.

    Attributes
    ----------
    kind : type
        int, float, bool, str or os.PathLike; tuple for names, one or several; range for the least and the
        largest of whole numbers.
    default : object
        None if another value is put in its place, or if there is none.
    help : str
        What the setting is, for the command line and for Python.
    details : str
        What the documentation of Python says beside.
    group : str
        Heading that the option stands under in the help of a command.
    scope : {STORE, MATRIX, ESTIMATOR}
        What takes the setting: training on a store; on a matrix in memory, too; and as a parameter of
        `StreamSVMClassifier`, too.
    instead : str
        What to do with a matrix, if it does not take the setting.
    of_loss : bool
        Whether the setting is a parameter of the loss or of its solver.
    loss_default : object
        Value of a parameter that few losses and solvers have, with those.
    searched : bool
        Whether `streamsvm.tune` decides the setting, or gives it a meaning of its own: then it refuses it.
    changeable : str
        What a new value is, for `resume`; without it a run keeps the setting.
    choices : sequence of str or callable, optional
        The valid values, if they are few; or a function that lists them, if they are known later.
    titles : callable, optional
        Returns what each of `choices` stands for.
    words : tuple of str
        Words that may stand for a number or a path.
    least, most : int
        Bounds of a number, inclusive.
    positive : bool
        Whether a number must be finite and above 0.
    size : bool
        Whether a number is one of bytes, which may be given as text ("2G").
    mapping : str
        The mapping of names to numbers that may stand for a file, if one may.
    given : str
        The Python object that may be given in the place of a file or column; `GIVEN` then stands for it.
    address : bool
        Whether a path may be an address such as s3://bucket/name.
    listed : bool
        Whether a list of texts may stand for them with commas between.
    repeated : bool
        Whether there may be several values, which are checked where each is used: as a sequence, and of a
        command by an option that is given several times.
    parse : callable, optional
        Takes a text, and raises `ValueError` with what is wanted if it is not valid.
    """

    kind: type
    default: Any
    help: str
    details: str = ""
    group: str = ""
    scope: int = STORE
    instead: str = "leave it out, or give a file"
    of_loss: bool = False
    loss_default: Any = None
    searched: bool = False
    changeable: str = ""
    choices: Sequence[str] | Callable[[], Sequence[str]] | None = None
    titles: Callable[[], Sequence[str]] | None = None
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**63 - 1  # compiled code takes no more
    positive: bool = False
    size: bool = False
    mapping: str = ""
    given: str = ""
    address: bool = False
    listed: bool = False
    repeated: bool = False
    parse: Callable[[str], Any] | None = None

    @property
    def values(self) -> Sequence[str] | None:
        """Valid values, if they are few."""
        return self.choices() if callable(self.choices) else self.choices

    @property
    def annotation(self) -> str:
        """Type of an argument, as Python writes it."""
        if self.given:
            return "Any"
        types = [_TYPES.get(self.kind, (self.kind.__name__,) * 2)[0]]
        if self.choices is not None and not callable(self.choices):
            types = [f"Literal[{', '.join(map(_quoted, self.choices))}]"]
        elif self.kind is not os.PathLike:
            types += [f"Literal[{_quoted(word)}]" for word in self.words]
        types += ["str"] * self.size + ["Sequence[str]"] * self.listed
        types += [f"Sequence[{types[0]}{' | None' * (self.default is None)}]"] * self.repeated
        types += ["Mapping[str, float]"] * bool(self.mapping) + ["None"] * (self.default is None)
        return " | ".join(types)

    @property
    def described(self) -> str:
        """Type of an argument, as numpydoc writes it."""
        if self.choices is not None and not callable(self.choices):
            parts = [f"{{{', '.join(map(_quoted, self.choices))}}}"]
        else:
            parts = [_TYPES.get(self.kind, (self.kind.__name__,) * 2)[1], *map(_quoted, self.words)]
        parts += ["str"] * self.size + ["sequence of str"] * self.listed
        parts += [f"sequence of {parts[0]}"] * (self.repeated and not self.given)
        parts += [self.mapping] * bool(self.mapping) + self.given.split(" or ") * bool(self.given)
        text = " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        return text + ", optional" * (self.default is None)

    @property
    def wanted(self) -> str:
        """Valid values, as text that completes "it must be ..."."""
        if self.values is not None:
            return f"one of {', '.join(self.values)}"
        if self.kind in _WANTED:
            value = _WANTED[self.kind]
        elif self.positive:
            value = "positive and finite"
        elif self.kind is float:
            value = f"a number, {self.least} or more"
        else:
            end = "2**63)" if self.most == 2**63 - 1 else f"{self.most}]"
            value = f"a whole number in [{self.least}, {end}"
        return " or ".join([*self.words, value])

    def checked(self, value: Any) -> Any:
        """Return the value as Python's own int, float, bool or str; raise `ValueError` if it is not valid."""
        if self.repeated:
            value = value.tolist() if hasattr(value, "tolist") else value
            return tuple(value) if isinstance(value, list | tuple) else (value,)
        if isinstance(value, str):
            value = str(value)  # of NumPy's texts too
            if value in self.words or (self.given and value == GIVEN):
                return value
        if self.mapping and isinstance(value, Mapping):
            from streamsvm.base.label_values import class_name  # needs NumPy, which help does without

            return {class_name(name): _as_python(number, float) for name, number in value.items()}
        if self.listed and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if self.size and not isinstance(value, int):
            return parse_size(value)
        if self.kind is os.PathLike and isinstance(value, str | os.PathLike):
            if not self.address:
                check_local(value, SettingsError)
            return absolute(value)
        if self.kind is tuple and isinstance(value, str):
            return (value,)
        if self.kind in (tuple, range) and isinstance(value, list | tuple):
            value = tuple(_as_python(each, int) for each in value)
        else:
            value = _as_python(value, self.kind)
        if not self._holds(value):
            raise ValueError(self.wanted)
        if self.parse is not None:
            self.parse(value)
        return value

    def _holds(self, value: Any) -> bool:
        kind: Any = type(value)
        if kind is tuple and self.kind is range:
            return [type(each) for each in value] == [int, int] and 1 <= value[0] <= value[1] <= self.most
        if kind is tuple and self.kind is tuple:
            return all(isinstance(each, str) for each in value)
        if kind is not self.kind:
            return False
        if self.values is not None:
            return value in self.values
        if self.kind is int:
            return bool(self.least <= value <= self.most)
        if self.kind is float:
            return bool(0 < value < math.inf) if self.positive else bool(value >= self.least)
        return True


def _quoted(text: str) -> str:
    return f'"{text}"'


def _as_python(value: Any, kind: type) -> Any:
    """Return a number of any library as int or float; other values unchanged."""
    if isinstance(value, bool):
        return value
    if kind is bool and type(value).__name__ in ("bool", "bool_"):  # of NumPy, in its versions
        return bool(value)
    try:
        if kind is int:
            return operator.index(value)
        if kind is float and isinstance(value, numbers.Real):
            return float(value)
    except (TypeError, OverflowError):
        pass
    return value


def setting(kind: type, default: Any, help: str, details: str = "", **facts: Any) -> Any:
    declared = Setting(kind, default, help, details, **facts)
    return dataclasses.field(default=default, metadata={"setting": declared})


def as_in(settings: Any, name: str, **facts: Any) -> Any:
    """Return a field with the declaration that other settings have, but for some facts."""
    each = dataclasses.replace(declared(settings)[name], **facts)
    return dataclasses.field(default=each.default, metadata={"setting": each})


def declared(settings: Any) -> dict[str, Setting]:
    """Return the declarations of the settings that users give, of a class or an object of it, by name."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata["setting"] for field in fields if field.metadata}


def changes_of(settings: Any) -> dict[str, Setting]:
    """Return the declarations of new values for a run, by the names of the settings that may change."""
    return {
        name: dataclasses.replace(each, default=None, help=each.changeable, details="")
        for name, each in declared(settings).items()
        if each.changeable
    }


class CheckedSettings:
    """Base of both classes of settings: checks each setting by itself, and reads settings from a record."""

    def __post_init__(self) -> None:
        for name, each in declared(self).items():
            value = getattr(self, name)
            if value is None and each.default is None:
                continue
            try:
                self._set(name, each.checked(value))
            except ValueError as error:
                self.refuse(name, str(error))

    def given(self) -> dict[str, Any]:
        """Return the settings that are not their defaults, by name."""
        values = {name: getattr(self, name) for name in declared(self)}
        return {name: value for name, value in values.items() if value != declared(self)[name].default}

    @property
    def of_loss(self) -> dict[str, Any]:
        """Parameters of the loss, without those that do not apply to it."""
        values = {name: getattr(self, name) for name, each in declared(self).items() if each.of_loss}
        return {name: value for name, value in values.items() if value is not None}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def refuse(self, name: str, wanted: str) -> None:
        """Raise `SettingsError`: the setting `name` must be `wanted`."""
        raise wrong_setting(name, f"must be {wanted}, not {reprlib.repr(getattr(self, name))}")
