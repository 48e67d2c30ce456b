"""Help as a person sees it in narrow and wide terminals, `python -m streamsvm`, and what shells complete."""

from __future__ import annotations

import re

import pytest
from cases import few
from command_line import streamsvm, succeeds
from streamsvm_cli import help
from streamsvm_cli.commands import MAX_WIDTH, app
from typer.main import get_command
from warm_process import run

from streamsvm.losses import LOSSES

COMMANDS = list(get_command(app).commands)  # type: ignore[attr-defined]
GROUPED = ["fit", "tune", "online", "convert", "predict", "evaluate"]


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal_and_is_plain_text(
    monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    """Without colours it is legible on dark and on light."""
    monkeypatch.setenv("COLUMNS", str(columns))
    text = succeeds(*command.split(), "--help")
    lines = text.splitlines()
    assert max(map(len, lines)) <= min(columns, MAX_WIDTH)
    assert "\x1b" not in text
    assert "\\[" not in text
    assert not re.search(
        r"<(str|int|float|path|list)\b[^|\d]*>|INTEGER|int range", text
    )  # words of programmers
    if not command:
        assert "..." not in text.replace("[ARGS]...", "")  # no sentence is cut
    assert lines[0].startswith("Usage: ")
    assert not [line for line in lines if line != line.rstrip() and "  -" not in line]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_h_is_help_and_names_all_options(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of commands with many options it describes those that most people need."""
    monkeypatch.setenv("COLUMNS", "80")
    short, whole = succeeds(*command.split(), "-h"), succeeds(*command.split(), "--help")
    assert (short == whole) == (command not in GROUPED)
    options = re.findall(r"--[a-zA-Z][\w-]*", whole.partition("\n\n")[2])
    assert {name for name in options if not name.startswith("--no-")} <= set(
        re.findall(r"--[a-zA-Z][\w-]*", short)
    )
    if command in GROUPED:
        assert "\nDescribed by --help:\n" in short
        assert len(short.splitlines()) <= 80
        assert max(map(len, short.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_does_not_need_the_other_arguments(command: str) -> None:
    assert succeeds(command, "--nonsense", "--help") == succeeds(command, "--help")


def test_after_two_dashes_h_is_data() -> None:
    done = streamsvm("info", "--", "-h")
    assert done.code == 1
    assert "Usage" not in done.out
    assert done.err.startswith("streamsvm: -h")


@pytest.mark.parametrize("command", GROUPED)
def test_options_are_in_groups_and_each_has_its_place(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """All but those that every command has are in a group, and each is printed once."""
    monkeypatch.setenv("COLUMNS", "80")
    text = succeeds(command, "--help")
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert headings[:2] == ["Arguments", "Most used"]
    assert headings[2:] == [name for name in help._GROUPS if name in headings]
    assert len(headings) >= 5
    others = re.findall(r"^  (?:-\w, )?(--\S+)", text.partition("\nOther options:\n")[2], re.MULTILINE)
    assert (
        others
        == ["--verbose", "--quiet", "--json", "--help"][command in ("convert", "predict", "evaluate") :]
    )
    options = [each for each in get_command(app).commands[command].params if each.param_type_name == "option"]  # type: ignore[attr-defined]
    for option in options:
        longest = max(option.opts, key=len)
        assert len(re.findall(rf"^  (?:-\w, )?{re.escape(longest)}\b(?!-)", text, re.MULTILINE)) == 1, longest


def test_groups_name_real_options() -> None:
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    known = {parameter.name for command in commands for parameter in command.params}
    named = [name for names in help._GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) <= known


@pytest.mark.parametrize("command", GROUPED)
def test_a_dozen_options_come_first_after_an_example(command: str) -> None:
    parameters = {each.name: each for each in get_command(app).commands[command].params}  # type: ignore[attr-defined]
    first, text = help._FIRST[command].split(), succeeds(command, "--help")
    example = re.search(rf"^  Example: streamsvm {command} (.*)$", text, re.MULTILINE)[1].split()
    options = {option for name in first for option in parameters[name].opts}
    assert {word for word in example if word.startswith("--")} <= options
    text = text.partition("\nMost used:\n")[2].partition("\n\n")[0]
    options = re.findall(r"^  (?:-\w, )?(--\S+)", text, re.MULTILINE)
    assert options == [max(parameters[name].opts, key=len) for name in first]
    assert 5 < len(options) < 14


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train a", "there is no command train; fit does that"),
        ("fitt a", "there is no command fitt; did you mean fit?"),
        ("qqq", "there is no command qqq"),
        ("fit a --pases 3", "there is no option --pases; did you mean --passes?"),
        ("fit a --qqq 3", "there is no option --qqq"),
        ("fit a --passes many", "--passes must be a whole number, not many"),
        ("fit a --passes 0", "--passes must be 1 or more, not 0"),
        ("online a -o b --hash-bits 99", "--hash-bits must be 31 or less, not 99"),
        ("fit a --tol x", "--tol must be a number, not x"),
        ("fit a --gap x", "--gap: 'x' is not one of 'pass', 'end', 'none'"),
        ("fit a --C x", "--C: 'x' is neither a number nor auto"),
        ("fit a --memory 3x", "--memory: '3x' is not a size: a number of bytes, or text such as 500M or 2G"),
        ("fit", "DATA is missing"),
        ("tune a", "--out is missing"),
    ],
)
def test_mistakes_in_options_are_told_in_plain_words(words: str, message: str) -> None:
    assert streamsvm(*words.split()).err.splitlines()[-1] == f"Error: {message}"


def test_both_modules_are_the_command_line() -> None:
    for module in ("streamsvm", "streamsvm_cli.main"):
        program = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        code, out, err = run("fit", "--help", code=program, bare=True)
        assert (code, err) == (0, "")
        usage, _, options = out.partition("\n")
        assert usage.startswith("Usage: ")
        assert options == succeeds("fit", "--help").partition("\n")[2]


# -- completion ------------------------------------------------------------------------------------


def completed(words: str) -> list[str]:
    """What bash is given to complete the last of the words with."""
    return bash("complete_bash", COMP_WORDS=words, COMP_CWORD=len(words.split(" ")) - 1).split()


def bash(what: str, **env: object) -> str:
    """What the installed command, of this name, says to bash."""
    done = run(_STREAMSVM_COMPLETE=what, **env)
    assert done.err == ""
    return done.out


def test_commands_options_and_losses_are_completed() -> None:
    assert completed("streamsvm ev") == ["evaluate"]
    assert "--resume-or-start" in completed("streamsvm fit --res")
    assert completed("streamsvm fit --loss ") == list(LOSSES)
    assert completed("streamsvm fit --loss ov") == [name for name in LOSSES if name.startswith("ov")]
    assert set(completed("streamsvm convert --codec ")) == {"fast", "small", "none"}


@pytest.mark.parametrize(
    "words",
    few(["info ", "fit ", "fit a.zarr --valid ", "fit a.zarr --costs ", "convert "], "fit a.zarr --valid "),
)
def test_names_of_files_are_left_to_the_shell(words: str) -> None:
    """Which completes them where a program has nothing to say, by `complete -o default`."""
    assert completed(f"streamsvm {words}") == []
    assert "complete -o default" in bash("source_bash")
