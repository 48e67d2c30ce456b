"""What reaches the terminal: one line an error, whatever is in it, and no traceback however early the end."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from command_line import COMPILING, fails
from streamsvm_cli.console import Console
from streamsvm_cli.options import command
from streamsvm_cli.wording import shell_value
from warm_process import COMMAND_LINE, run

from streamsvm.base import progress

ODD = "B\tcell\n\x1b[31m\u202e"
SHOWN = "B\\tcell\\n\\x1b[31m\\u202e"


@pytest.mark.parametrize("module", ["typer", "streamsvm.errors", "ctypes", "numba"])
def test_ctrl_c_while_modules_are_loaded_is_one_line(tmp_path: Path, module: str) -> None:
    """The signal comes as `module` is looked for."""
    finder = f"""
import signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
    (tmp_path / "text").write_text("a 1:1\nb 2:1\n")
    words = ("convert", "text", "--out", "a.zarr")
    done = run(*words, cwd=tmp_path, code=finder + COMMAND_LINE, bare=True)
    assert done == (130, "", "streamsvm: interrupted\n")
    assert not (tmp_path / "a.zarr").exists()


def test_names_of_files_cannot_break_a_line_or_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a 1:1\nb 2:1\n")
    for words in (
        ("info", ODD),
        ("convert", ODD, "--out", "a.zarr"),
        ("fit", ODD, "--out", "run"),
        ("predict", ODD, "text"),
        ("online", "text", "--out", f"{ODD}/run"),
    ):
        assert SHOWN in fails(1, *words, cwd=tmp_path)


@command()
def compiles(console: Console) -> None:
    for _ in range(2):
        progress.tell_of_compiling()


@pytest.mark.parametrize(("asked", "said"), [("", COMPILING), ("quiet", ""), ("json", "")])
def test_a_command_says_once_that_it_compiles_but_not_to_machines(asked: str, said: str, capsys) -> None:
    compiles(quiet=asked == "quiet", json=asked == "json")
    progress.tell_of_compiling()  # after the command: nobody listens
    assert capsys.readouterr() == ("", said)


def test_what_cannot_be_said_of_compiling_does_not_end_a_command(monkeypatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    monkeypatch.setattr(sys, "stderr", Full())
    compiles(quiet=False, json=False)


def test_numbers_that_json_has_no_text_for_are_null() -> None:
    """Such as the log loss where a label has the probability 0."""
    found = shell_value({"log_loss": float("inf"), "rows": [float("nan"), 1.5]})
    assert found == {"log_loss": None, "rows": [None, 1.5]}
