"""Declare settings as dataclass fields, with type, check, default and help in one place.

    passes: Annotated[int, checks.whole(1)] = setting("Maximum number of passes over the data.", default=3)

Signatures, documentation, command-line options and error messages are generated from the fields, so no list
of setting names is maintained. Fields of type bool or str need no check.
"""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import typing
from collections.abc import Callable
from typing import Annotated, Any

from streamsvm.errors import wrong_setting
from streamsvm.settings.checks import FLAG, TEXT, Check

STORE, MATRIX, ESTIMATOR = range(3)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Declaration of a setting, without its name.

    By default, `tune` and training on a store accept a setting, but training on a matrix, the estimator and
    `resume` do not.

    Attributes
    ----------
    check : Check
    default : object
        None if there is no default, or if the default depends on other settings.
    help : str
        Description for the command line and for Python.
    details : str
        Further description for Python only.
    group : str
        Heading of the option in the help of a command.
    scope : {STORE, MATRIX, ESTIMATOR}
        STORE if only training on a store accepts the setting, MATRIX if training on a matrix in memory does,
        too, and ESTIMATOR if the setting is also a parameter of `StreamSVMClassifier`.
    instead : str
        Remedy in the error that is raised if a setting for a store is used with a matrix.
    searched : bool
        Whether `streamsvm.tune` chooses the setting, or has a declaration of its own.
    loss_default : object
        Default of a parameter that only some losses or solvers take.
    changeable : str
        Description of the new value in `resume`; empty if `resume` cannot change the setting.
    """

    check: Check
    default: Any
    help: str
    details: str = ""
    group: str = ""
    scope: int = STORE
    instead: str = "leave it out, or pass a file"
    searched: bool = False
    loss_default: Any = None
    changeable: str = ""

    @property
    def type(self) -> str:
        """Type of the argument as Python source."""
        return self.check.accepts + " | None" * (self.default is None and self.check.accepts != "Any")


def setting(help: str, details: str = "", *, default: Any = None, **facts: Any) -> Any:
    """Return a field that declares a setting; its check belongs in the type annotation."""
    facts |= {"help": help, "details": details, "default": default}
    return dataclasses.field(default=default, metadata=facts)


def as_in(settings: type, name: str, **facts: Any) -> Any:
    """Return a field that repeats the declaration of `name` in another class, updated with `facts`."""
    return setting(**{**vars(declared(settings)[name]), **facts})


def _declared(settings: type) -> dict[str, Setting]:
    """Return the declarations of the settings of a class, by name, without its internal fields."""
    hints = typing.get_type_hints(settings, include_extras=True)
    fields = (each for each in dataclasses.fields(settings) if each.metadata)
    return {each.name: Setting(**{"check": _check_of(hints[each.name]), **each.metadata}) for each in fields}


declared: Callable[[type], dict[str, Setting]] = functools.cache(_declared)


def _check_of(hint: Any) -> Check:
    if typing.get_origin(hint) is Annotated:
        return typing.get_args(hint)[1]  # type: ignore[no-any-return]
    return FLAG if hint is bool else TEXT


def changes_of(settings: type) -> dict[str, Setting]:
    """Return the declarations of the settings that `resume` can change, by name."""
    return {
        name: dataclasses.replace(each, default=None, help=each.changeable, details="")
        for name, each in declared(settings).items()
        if each.changeable
    }


class CheckedSettings:
    """Base class of settings. An invalid value raises `SettingsError`."""

    def __post_init__(self) -> None:
        for name, each in declared(type(self)).items():
            value = getattr(self, name)
            if value is None and each.default is None:
                continue
            self._set(name, each.check.checked(name, value))

    def given(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, by name."""
        values = {name: (getattr(self, name), each.default) for name, each in declared(type(self)).items()}
        return {name: value for name, (value, default) in values.items() if value != default}

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def refuse(self, name: str, wanted: str) -> None:
        """Raise `SettingsError`, whose message says that the setting `name` must be `wanted`."""
        raise wrong_setting(name, f"must be {wanted}; it is {reprlib.repr(getattr(self, name))}")
