"""Declarations of settings, and the base of dataclasses that check their settings by them."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import operator
import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from streamsvm.base.label_values import class_name
from streamsvm.base.text import absolute, check_local, parse_size
from streamsvm.errors import SettingsError

GIVEN = "given"  # for a Python object in the place of a file, of which the settings have no copy


@dataclasses.dataclass(frozen=True)
class Setting:
    """Declaration of a setting: everything but its name and default.

    Attributes
    ----------
    kind : type
        int, float, bool, str or os.PathLike.
    help : str
    choices : callable, optional
        Returns the valid values, if they are few.
    titles : callable, optional
        Returns what each of `choices` stands for.
    words : tuple of str
        Words that may stand for a number.
    least, most : int
        Bounds of a number, inclusive.
    positive : bool
        Whether a number must be finite and above 0.
    size : bool
        Whether a number is one of bytes, which may be given as text ("2G").
    mapping : bool
        Whether a mapping of names to numbers may stand for a file.
    may_be_given : bool
        Whether `GIVEN` may stand for a file.
    address : bool
        Whether a path may be an address such as s3://bucket/name.
    listed : bool
        Whether a list of texts may stand for them with commas between.
    """

    kind: type
    help: str
    choices: Callable[[], Sequence[str]] | None = None
    titles: Callable[[], Sequence[str]] | None = None
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = 2**63 - 1  # compiled code takes no more
    positive: bool = False
    size: bool = False
    mapping: bool = False
    may_be_given: bool = False
    address: bool = False
    listed: bool = False

    @property
    def wanted(self) -> str:
        """Valid values, as text that completes "it must be ..."."""
        if self.choices is not None:
            return f"one of {', '.join(self.choices())}"
        if self.kind is bool:
            return "True or False"
        if self.kind in (str, os.PathLike):
            return " or ".join([*self.words, "text" if self.kind is str else "a path"])
        if self.positive:
            number = "positive and finite"
        elif self.kind is float:
            number = f"a number, {self.least} or more"
        else:
            number = (
                f"a whole number in [{self.least}, {'2**63)' if self.most == 2**63 - 1 else f'{self.most}]'}"
            )
        return " or ".join([*self.words, number])

    def checked(self, value: Any) -> Any:
        """Return the value as Python's own int, float, bool or str; raise `ValueError` if it is not valid."""
        if isinstance(value, str):
            value = str(value)  # of NumPy's texts too
        if isinstance(value, str) and (value in self.words or (self.may_be_given and value == GIVEN)):
            return value
        if self.mapping and isinstance(value, Mapping):
            return {class_name(name): _as_python(number, float) for name, number in value.items()}
        if self.listed and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
            return ",".join(value)
        if self.size and not isinstance(value, int):
            return parse_size(value)
        if self.kind is os.PathLike and isinstance(value, str | os.PathLike):
            if not self.address:
                check_local(value, SettingsError)
            return absolute(value)
        value = _as_python(value, self.kind)
        if not self._holds(value):
            raise ValueError(self.wanted)
        return value

    def _holds(self, value: Any) -> bool:
        kind: Any = type(value)
        if kind is not self.kind:
            return False
        if self.choices is not None:
            return value in self.choices()
        if self.kind is int:
            return bool(self.least <= value <= self.most)
        if self.kind is float:
            return bool(0 < value < math.inf) if self.positive else bool(value >= self.least)
        return True


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


def setting(kind: type, default: Any, help: str, **facts: Any) -> Any:
    return dataclasses.field(default=default, metadata={"setting": Setting(kind, help, **facts)})


def setting_of(field: dataclasses.Field[Any]) -> Setting:
    """Return the declaration of a field of `Settings` or `OnlineSettings`."""
    return field.metadata["setting"]  # type: ignore[no-any-return]


class CheckedSettings:
    """Base of both classes of settings: checks each setting by itself, and reads settings from a record."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            try:
                self._set(field.name, setting_of(field).checked(value))
            except ValueError as error:
                self.refuse(field.name, str(error))

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Make settings from a record that `dataclasses.asdict` made, such as an entry of run.json.

        Raises
        ------
        SettingsError
            If a name or a value is not valid.
        """
        known = {field.name.lower(): field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        if not isinstance(record, Mapping):
            raise SettingsError(f"settings must be an object, not {record!r:.40}")
        for name in record:
            if name not in known.values():
                near = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
                raise SettingsError(f"there is no setting {name}; {hint}")
        return cls(**record)

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Self:
        """Make settings from the arguments of a function, such as its ``locals()``."""
        return cls(**{field.name: arguments[field.name] for field in dataclasses.fields(cls)})  # type: ignore[arg-type]

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def refuse(self, name: str, wanted: str) -> None:
        """Raise `SettingsError`: the setting `name` must be `wanted`."""
        raise SettingsError(f"{name} must be {wanted}, not {reprlib.repr(getattr(self, name))}", setting=name)
