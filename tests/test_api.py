"""The Python surface states every setting with default and meaning, and the command line has the same."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from streamsvm_cli.commands import app
from typer.main import get_command

import streamsvm
from streamsvm.setting import setting_of
from streamsvm.settings import OnlineSettings, Settings

PAIRS = [("fit", Settings), ("plan", Settings), ("online", OnlineSettings)]
FIELDS = [(name, field) for name, settings in PAIRS for field in dataclasses.fields(settings)]  # type: ignore[arg-type]
DOCUMENTED = [
    streamsvm.fit, streamsvm.online, streamsvm.resume, streamsvm.predict, streamsvm.evaluate,
    streamsvm.calibrate,
]  # fmt: skip


def documented(function: Callable) -> dict[str, str]:
    """The parameters in a numpydoc docstring, with their descriptions on one line."""
    text = inspect.getdoc(function)
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.DOTALL | re.MULTILINE)[1]
    found = {}
    for names, description in re.findall(r"^(\S.*?)(?: : .*)?\n((?:    .*\n?|\n)*)", section, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(description.split())
    return found


@functools.cache
def printed_help(command: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app([command, "--help"], standalone_mode=False)
    return out.getvalue()


@pytest.mark.parametrize("function", DOCUMENTED, ids=lambda function: function.__name__)
def test_every_parameter_is_documented_and_none_is_hidden(function: Callable) -> None:
    parameters = inspect.signature(function).parameters
    assert list(documented(function)) == list(parameters)
    kinds = {parameter.kind for parameter in parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    assert all(parameter.annotation is not parameter.empty for parameter in parameters.values())


@pytest.mark.parametrize(("name", "field"), FIELDS, ids=[f"{name}-{field.name}" for name, field in FIELDS])
def test_signatures_and_docstrings_agree_with_the_settings(name: str, field: dataclasses.Field) -> None:
    function = getattr(streamsvm, name)
    assert inspect.signature(function).parameters[field.name].default == field.default
    if name != "plan":  # which refers to fit
        assert documented(function)[field.name].startswith(" ".join(setting_of(field).help.split()))


@pytest.mark.parametrize(
    ("name", "field"),
    [pair for pair in FIELDS if pair[0] != "plan"],
    ids=[f"{name}-{field.name}" for name, field in FIELDS if name != "plan"],
)
def test_options_of_commands_agree_with_the_settings(name: str, field: dataclasses.Field) -> None:
    (option,) = [each for each in get_command(app).commands[name].params if each.name == field.name]
    setting = setting_of(field)
    assert option.help.startswith(setting.help)
    if setting.titles is not None:
        assert all(title in option.help for title in setting.titles())
    if setting.choices is not None:
        shown = "".join(printed_help(name).split())  # without line ends within names
        assert all(choice in shown for choice in setting.choices())
    default: Any = option.default
    if default is not None and setting.size:
        default = streamsvm.text.parse_size(default)
    assert default == (None if (name, field.name) == ("online", "seed") else field.default)


def test_a_misspelt_setting_is_an_error_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_passes'"):
        streamsvm.fit("s.zarr", out="run", n_passes=3)


def test_every_public_name_exists_and_is_listed() -> None:
    assert sorted(streamsvm.__all__) == streamsvm.__all__
    for name in streamsvm.__all__:
        assert getattr(streamsvm, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        streamsvm.nothing  # noqa: B018
