"""The Python surface states every setting with default and meaning, and the command line has the same."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from streamsvm_cli.commands import app
from typer.main import get_command

import streamsvm
from streamsvm.settings.field import setting_of
from streamsvm.settings.fit import OnlineSettings, Settings

PAIRS = [("fit", Settings), ("plan", Settings), ("online", OnlineSettings)]
FIELDS = [(name, field) for name, settings in PAIRS for field in dataclasses.fields(settings)]  # type: ignore[arg-type]
DOCUMENTED = [
    streamsvm.fit, streamsvm.online, streamsvm.resume, streamsvm.predict, streamsvm.evaluate,
    streamsvm.calibrate,
]  # fmt: skip


@functools.cache
def documented(name: str) -> dict[str, str]:
    """Read the parameters in a numpydoc docstring, with their descriptions on one line."""
    text = inspect.getdoc(getattr(streamsvm, name))
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.DOTALL | re.MULTILINE)[1]
    found = {}
    for names, description in re.findall(r"^(\S.*?)(?: : .*)?\n((?:    .*\n?|\n)*)", section, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(description.split())
    return found


@functools.cache
def printed_help(command: str) -> str:
    """Print the help of a command without white space, so that no name is cut by a line end."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app([command, "--help"], standalone_mode=False)
    return "".join(out.getvalue().split())


@pytest.mark.parametrize("function", DOCUMENTED, ids=lambda function: function.__name__)
def test_every_parameter_is_documented_and_none_is_hidden(function: Callable) -> None:
    parameters = inspect.signature(function).parameters
    assert list(documented(function.__name__)) == list(parameters)
    kinds = {parameter.kind for parameter in parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert all(parameter.annotation is not parameter.empty for parameter in parameters.values())


def test_signatures_and_docstrings_agree_with_the_settings() -> None:
    wrong = []
    for name, field in FIELDS:
        function = getattr(streamsvm, name)
        if inspect.signature(function).parameters[field.name].default != field.default:
            wrong.append(f"{name}: the default of {field.name} is not {field.default!r}")
        described = " ".join(setting_of(field).help.split())
        # `plan` refers to `fit`.
        if name != "plan" and not documented(name)[field.name].startswith(described):
            wrong.append(f"{name}: the description of {field.name} is not its help")
    assert not wrong, "\n".join(wrong)


def test_options_of_commands_agree_with_the_settings() -> None:
    commands = get_command(app).commands
    options = {(name, each.name): each for name, command in commands.items() for each in command.params}
    wrong = [
        f"{name} {field.name}: {what}"
        for name, field in FIELDS
        if name != "plan"
        for what in differences(name, field, options[name, field.name])
    ]
    assert not wrong, "\n".join(wrong)


def differences(name: str, field: dataclasses.Field, option: Any) -> Iterator[str]:
    """Yield where an option differs from the setting of its name."""
    setting = setting_of(field)
    if not option.help.startswith(setting.help):
        yield f"another help: {option.help}"
    for title in () if setting.titles is None else setting.titles():
        if title not in option.help:
            yield f"no {title!r} in its help"
    for choice in () if setting.choices is None else setting.choices():
        if choice not in printed_help(name):
            yield f"the choice {choice!r} is not shown"
    default: Any = option.default
    if default is not None and setting.size:
        default = streamsvm.base.text.parse_size(default)
    if default != (None if (name, field.name) == ("online", "seed") else field.default):
        yield f"another default: {default!r}"


def test_a_misspelt_setting_is_an_error_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_passes'"):
        streamsvm.fit("s.zarr", out="run", n_passes=3)


def test_every_public_name_exists_and_is_listed() -> None:
    assert sorted(streamsvm.__all__) == streamsvm.__all__
    for name in streamsvm.__all__:
        assert getattr(streamsvm, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        streamsvm.nothing  # noqa: B018
