"""Generate signatures and docstrings of functions from the declarations of the settings that they take."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from streamsvm.errors import wrong_setting
from streamsvm.settings.field import Setting, declared
from streamsvm.settings.fit import Settings

_WIDTH = 106

Function = TypeVar("Function", bound=Callable[..., Any])


def takes(settings: Mapping[str, Setting], *, after: str) -> Callable[[Function], Function]:
    """Return a decorator that adds a keyword parameter for each missing setting to a function or initializer.

    The parameters follow the parameter `after`, and their documentation replaces ``**settings`` in the
    docstring. The function receives the values that are passed in ``**settings``. Any other keyword raises
    `TypeError`, or `SettingsError` if it is a setting of `streamsvm.fit`.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = [each.name for each in parameters]
        taken = {name: each for name, each in settings.items() if name not in names}
        place = names.index(after) + 1
        parameters[place:place] = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type
            )
            for name, each in taken.items()
        ]

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in [each for each in given if each not in names and each not in taken]:
                called = function.__qualname__.removesuffix(".__init__")
                if name in declared(Settings):
                    raise wrong_setting(name, f"does not apply to {called}; leave it out")
                raise TypeError(f"{called}() got an unexpected keyword argument {name!r}")
            return function(*args, **given)

        call.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__doc__ = documented(function.__doc__, taken)
        return call  # type: ignore[return-value]

    return decorate


def documented(docstring: str | None, settings: Mapping[str, Setting]) -> str | None:
    """Return a docstring in which ``**settings`` is replaced by an entry for each setting."""
    if not docstring:  # an initializer, or python -OO
        return docstring
    before, after = re.split(r"^\*\*settings\n(?: {4}.*\n?)+", inspect.cleandoc(docstring), flags=re.M)
    fill = functools.partial(
        textwrap.fill, width=_WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False
    )
    entries = [
        f"{name} : {each.type}\n{fill(f'{each.help} {each.details}')}\n" for name, each in settings.items()
    ]
    return f"{before}{''.join(entries)}{after}"
