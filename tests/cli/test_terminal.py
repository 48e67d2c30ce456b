"""Commands in a terminal: no line is longer than it is wide, Ctrl-C, and a sign of life within a second."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import time
from pathlib import Path

import pytest
from helpers import make_problem, text_lines
from streamsvm_cli.console import Console
from warm_process import Process

COLUMNS = 80
COMMANDS = [
    "convert train --out train.zarr --dtype float64",
    "fit train.zarr --out run --C 0.5 --passes 2 --valid train.zarr --dtype float64",
    "evaluate run train.zarr",
    "info run",
    "info run/model",
    "fit train.zarr",
]


def in_terminal(words: list[str], folder: Path, interrupt: bytes | None = None) -> str:
    """All that a command writes to a terminal; with `interrupt`, Ctrl-C is pressed once that was written."""
    terminal, inner = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    written = b""
    with Process(*words, files=(inner, inner, inner), cwd=folder) as process:
        os.close(inner)
        with contextlib.suppress(OSError):  # at the end, in Linux
            while piece := os.read(terminal, 2**16):
                written += piece
                if interrupt is not None and interrupt in written:
                    os.write(terminal, b"\x03")
                    interrupt = None
        process.wait()
    os.close(terminal)
    return written.decode()


def screen(written: str) -> list[str]:
    """The lines on the screen at the end; no line has ever been longer than it is wide."""
    lines, at = [""], 0
    for piece in re.findall(r"\x1b\[\d*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written.replace("\x1b[0m", "")):
        if piece == "\n":
            lines.append("")
        elif piece == "\x1b[K":
            lines[-1] = lines[-1][:at]
        elif piece != "\r":
            assert "\x1b" not in piece
            lines[-1] = lines[-1][:at].ljust(at) + piece + lines[-1][at + len(piece) :]
            at += len(piece)
            assert at <= COLUMNS or "/" in lines[-1], lines[-1]  # a long path
            continue
        at = 0
    return [line.rstrip() for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with LIBSVM text to train on."""
    monkeypatch.delenv("COLUMNS", raising=False)  # or else terminals have that many
    X, labels = make_problem(500, 12, 4, noise=1.5)
    (tmp_path / "train").write_text("".join(text_lines(X, [f"class{label}" for label in labels], ".3f")))
    return tmp_path


def test_what_is_printed_fits_the_terminal(folder: Path) -> None:
    shown = [screen(in_terminal(command.split(), folder)) for command in COMMANDS]
    assert all(lines[-1] == "" and len(lines) > 1 for lines in shown)  # all ended with whole lines
    assert not [line for lines in shown for line in lines if "working" in line]


def test_ctrl_c_leaves_whole_lines(folder: Path) -> None:
    in_terminal(COMMANDS[0].split(), folder)
    words = "fit train.zarr --out run --passes 1000000 --gap none --dtype float64"
    lines = screen(in_terminal(words.split(), folder, interrupt=b"seconds"))
    assert lines.count("stopping after this block; press Ctrl-C again to stop at once") == 1
    assert re.fullmatch(r".*stopped in pass \d+ after \d of 1 blocks; continue with `streamsvm", lines[-3])
    assert lines[-2:] == ["  resume run`", ""]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


def test_a_sign_of_life_within_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(os, "get_terminal_size", lambda handle: os.terminal_size((COLUMNS, 24)))
    waits: list[float] = []

    def elapse(timeout: float) -> bool:
        """Let the time pass, without waiting, and a stage begin in the second wait."""
        waits.append(timeout)
        now[0] += timeout
        if len(waits) == 2:
            console.progress("pass 1", 50, 200)
        return len(waits) > 3

    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    console = Console(quiet=False, json=False)
    monkeypatch.setattr(console._ended, "wait", elapse)
    console._show_progress()
    assert max(waits) < 1
    first, *stages = terminal.getvalue().split("\r\x1b[K")[1:]
    assert first == "working: 0 s"
    assert len(stages) == 2
    for shown in stages:
        assert re.match(r"pass 1:  25%.*\b50.0/200\b", shown)
        assert len(shown) <= COLUMNS


def test_in_a_file_progress_is_lines_at_a_steady_interval(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(quiet=False, json=False)
    waits: list[float] = []
    monkeypatch.setattr(console._ended, "wait", lambda timeout: waits.append(timeout) or len(waits) > 2)
    console.progress("convert", 2**30, None)
    console._show_progress()
    assert waits == [30.0] * 3
    out, err = capsys.readouterr()
    assert out == ""  # which may be results
    line = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  convert: 1.07GB \[.*\n"
    assert re.fullmatch(line * 2, err)
    console.progress("convert", 2**30, 2**30)  # it ends, and nothing of it is shown
    assert "convert" not in console._state(None)
