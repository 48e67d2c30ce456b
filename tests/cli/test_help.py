"""Help as a person sees it in narrow and wide terminals, `python -m streamsvm`, and what shells complete."""

from __future__ import annotations

import re

import pytest
from command_line import fails, succeeds
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
    assert lines[0].startswith("Usage: ")


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


def test_groups_name_real_options() -> None:
    commands = get_command(app).commands.values()  # type: ignore[attr-defined]
    known = {parameter.name for command in commands for parameter in command.params}
    named = [name for names in help._GROUPS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(named) <= known


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
        ("fit a --out r --C -1", "--C must be auto or positive and finite, not -1.0"),
        ("fit a --out r --checkpoint-every 0", "give a time (0.5s, 60s, 5m) or a number of blocks"),
        ("fit a --out r --loss cs --margin 0.5", "--margin must be 1.0 for the loss cs, not 0.5"),
        ("fit a --out r --no-keep-duals", "--keep-duals must be on with more than one pass"),
        ("convert a --out a.zarr --unseen-label keep", "give --like"),
        ("predict run data --json", "--out"),
    ],
)
def test_mistakes_in_options_are_told_in_plain_words(words: str, message: str) -> None:
    assert message in fails(2, *words.split()).splitlines()[-1]


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
