"""What reaches the terminal: one line an error, whatever is in it, and no traceback however early the end."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import COMPILING, fails
from helpers import make_problem, make_store, save_weights
from streamsvm_cli import console
from streamsvm_cli.options import command
from streamsvm_cli.wording import shell_value
from warm_process import COMMAND_LINE, run

from streamsvm import fit, load_model
from streamsvm.base import compiling
from streamsvm.errors import InputError, ModelError

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


def test_addresses_elsewhere_keep_their_slashes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.h5", *make_problem(30, 5, 3))
    fit(store, out=tmp_path / "trained", passes=1)
    for words in (
        ("fit", store, "--out", "s3://bucket/a.zarr"),
        ("resume", "s3://bucket/a.zarr"),
        ("predict", "s3://bucket/a.zarr", store),
        ("online", store, "--out", "s3://bucket/a.zarr"),
    ):
        said = fails(1, *words, cwd=tmp_path)
        assert "streamsvm: s3://bucket/a.zarr is not a path on this machine" in said, words
    for words in (
        ("info", "nosuch://bucket/a.zarr"),
        ("fit", "nosuch://bucket/a.zarr", "--out", "run"),
        ("online", "nosuch://bucket/a.zarr", "--out", "run"),
        ("fit", store, "--out", "run", "--valid", "nosuch://bucket/a.zarr"),
        ("predict", "trained", "nosuch://bucket/a.zarr"),
    ):
        said = fails(1, *words, cwd=tmp_path)
        assert "streamsvm: nosuch://bucket/a.zarr: " in said, words
        assert "streamsvm[remote]" in said
    assert not (tmp_path / "run").exists()


# -- classes ---------------------------------------------------------------------------------------


def test_a_model_with_control_characters_in_a_class_is_refused(tmp_path: Path) -> None:
    record = {"classes": ["a", ODD], "n_features": 3, "index_base": 1, "dtype": "float64"}
    save_weights(tmp_path / "model", np.zeros((3, 8)), record)
    with pytest.raises(ModelError, match="has a control character") as caught:
        load_model(tmp_path / "model")
    assert SHOWN in str(caught.value)


def test_classes_given_to_online_may_hold_no_control_characters(tmp_path: Path) -> None:
    from streamsvm_converters import TextSource

    (tmp_path / "text").write_text("a 1:1\n")
    with pytest.raises(InputError, match="has a control character"):
        TextSource([tmp_path / "text"], classes=["a", ODD])
    said = fails(1, "online", "text", "--out", "run", "--classes", "a,b\x1b[31m", cwd=tmp_path)
    assert "'b\\x1b[31m' has a control character" in said


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is, in seconds; the console takes it from here."""
    now = [1000.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def test_without_a_terminal_progress_is_lines_at_a_steady_interval(clock, capsys) -> None:
    shown = console.Console(quiet=False, json=False)
    for second in range(0, 100, 5):
        clock[0] = 1000.0 + second
        shown.progress("pass 1", second * 1000, 200_000)
    for seconds, *step in (
        (0, "gap 1", 1, 10),
        (0.9, "valid 1", 2, 10),  # right after another
        (0.1, "valid 1", 3, 10),
        (29.9, "valid 1", 4, 10),
        (0.1, "valid 1", 5, 10),
        (1, "convert", 2**30, None),
        (-1e6, "convert", 2**31, None),  # clocks jump
    ):
        clock[0] += seconds
        shown.progress(*step)
    out, err = capsys.readouterr()
    assert err == ""
    lines = [re.fullmatch(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (.*)", line)[2] for line in out.splitlines()]
    assert lines == [
        "pass 1: 5,000 of 200,000 rows (2%)",
        "pass 1: 35,000 of 200,000 rows (18%)",
        "pass 1: 65,000 of 200,000 rows (32%)",
        "pass 1: 95,000 of 200,000 rows (48%)",
        "valid 1: 3 of 10 rows (30%)",
        "valid 1: 5 of 10 rows (50%)",
        "convert: 1 GiB",
        "convert: 2 GiB",
    ]


@command()
def compiles(console: console.Console) -> None:
    for _ in range(2):
        compiling.tell()


@pytest.mark.parametrize(("asked", "said"), [("", COMPILING), ("quiet", ""), ("json", "")])
def test_a_command_says_once_that_it_compiles_but_not_to_machines(asked: str, said: str, capsys) -> None:
    compiles(quiet=asked == "quiet", json=asked == "json")
    compiling.tell()  # after the command: nobody listens
    assert capsys.readouterr() == ("", said)


def test_what_cannot_be_said_of_compiling_does_not_end_a_command(monkeypatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError("no space left")

    monkeypatch.setattr(sys, "stderr", Full())
    compiles(quiet=False, json=False)


def test_numbers_that_json_has_no_text_for_are_null() -> None:
    """Such as the log loss where a label has the probability 0."""
    assert shell_value({"log_loss": float("inf"), "rows": [float("nan"), 1.5]}) == {
        "log_loss": None,
        "rows": [None, 1.5],
    }
