"""The Python surface states every setting with default and meaning, and the command line has the same."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from pathlib import Path

import make_stubs
import pytest
from streamsvm_cli.commands import app, built

import streamsvm
from streamsvm.base.text import parse_size
from streamsvm.errors import SettingsError
from streamsvm.settings.checks import SIZE
from streamsvm.settings.field import changes_of, declared
from streamsvm.settings.fit import Settings
from streamsvm.settings.online import OnlineSettings, StoreSettings

SETTINGS = {
    "fit": declared(Settings),
    "resume": changes_of(Settings),
    "online": declared(OnlineSettings) | declared(StoreSettings),
}  # of functions and commands
DOCUMENTED = [
    streamsvm.fit, streamsvm.online, streamsvm.resume, streamsvm.predict, streamsvm.evaluate,
    streamsvm.calibrate, streamsvm.plan, streamsvm.tune,
]  # fmt: skip


def documented(name: str) -> dict[str, str]:
    """Read the parameters in a numpydoc docstring, with their descriptions on one line."""
    text = inspect.getdoc(getattr(streamsvm, name))
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w+\n---|\Z)", text, re.DOTALL | re.MULTILINE)[1]
    found = {}
    for names, description in re.findall(r"^(\S.*?)(?: : .*)?\n((?:    .*\n?|\n)*)", section, re.MULTILINE):
        for name in names.split(", "):
            found[name] = " ".join(description.split())
    return found


def printed_help(command: str) -> str:
    """Print the help of a command without white space, so that no name is cut by a line end."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        app([command, "--help"], standalone_mode=False)
    return "".join(out.getvalue().split())


def test_every_parameter_is_documented_and_none_is_hidden() -> None:
    for function in DOCUMENTED:
        parameters = inspect.signature(function).parameters
        assert list(documented(function.__name__)) == list(parameters), function
        kinds = {parameter.kind for parameter in parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}, function


def test_stubs_have_the_signatures() -> None:
    for path, make in make_stubs.STUBS.items():
        assert path.read_text() == make(), "run python tests/make_stubs.py"


def test_options_of_commands_agree_with_the_settings() -> None:
    for command, settings in SETTINGS.items():
        shown, options = printed_help(command), {each.name: each for each in built(command).params}
        for name, setting in settings.items():
            option = options[name]
            assert option.help == setting.help, (command, name)
            assert all(choice in shown for choice in setting.check.choices), (command, name)
            default = parse_size(option.default) if setting.check is SIZE else option.default
            assert default == setting.default, (command, name)


def test_the_contract_names_what_resume_may_change() -> None:
    text = (Path(__file__).parents[1] / "docs" / "formats.md").read_text()
    named = re.search(r"settings that\s+`resume` may\s+change \((.*?)\)", text, re.DOTALL)[1]
    assert set(re.findall(r"`(\w+)`", named)) == {*changes_of(Settings), "gap"}


def test_a_setting_of_another_function_is_refused() -> None:
    with pytest.raises(SettingsError, match="loss does not apply to resume") as caught:
        streamsvm.resume("run", loss="cs")
    assert caught.value.setting == "loss"


def test_every_public_name_exists_and_is_listed() -> None:
    assert sorted(streamsvm.__all__) == streamsvm.__all__
    for name in streamsvm.__all__:
        assert getattr(streamsvm, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        streamsvm.nothing  # noqa: B018
