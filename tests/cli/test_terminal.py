"""Commands in a terminal of 80 and of 120 columns: no line is longer, and what stays on the screen at 80.

`UPDATE=1 pytest -n 0 tests/cli/test_terminal.py` writes the transcripts anew. Numbers that differ from
one run or machine to another are masked.
"""

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
import threading
from pathlib import Path

import pytest
from helpers import make_problem, text_lines
from streamsvm_cli import console
from streamsvm_cli.wording import wrapped
from warm_process import Process

TRANSCRIPTS = Path(__file__).with_name("transcripts.txt")
FIT = "fit train.zarr --out run --C 0.5 --passes 2 --valid test.zarr --dtype float64"
MAIN = [
    "convert train --out train.zarr --dtype float64",
    "convert test --out test.zarr --like train.zarr --dtype float64 --no-shuffle",
    "info train.zarr --verify",
    FIT,
    "resume run --passes 3",
    "evaluate run test.zarr",
    "info run/model",
    "tune train.zarr --out tuned --C 2^-2:2^1 --dtype float64",
    "online train --out stream --C 0.5 --dtype float64",
]
MORE = [
    "tune train.zarr --out several --C 1,2 --loss ww --loss cs --dtype float64",
    "fit train.zarr --dry-run --splits 2 --transform df=-0.25,scale=maxabs,clip=3,l2,bias",
    f"predict run test.zarr --out {'a-folder-with-a-long-name-' * 5}",
    "train train.zarr",
    "fit train.zarr --pases 3",
    "fit train.zarr --passes many",
    "fit train.zarr --loss wv",
    "fit train.zarr --C x --out a",
    "fit train.zarr",
]
UNLIKE = ["info run", f"{FIT} --force --verbose"]  # lines break elsewhere each time
MASKS = {  # of what differs: its pattern, and what stands there instead
    r"\d+\.\d+ s\b": "# s",
    r"(?<=peak memory )[\d.,]+ \w+": "#",
    r"(?<=memory )[\d.,]+ [KMG]iB(?= of)": "#",
    r"  +[\d,]+  +\d+\.\d\d$": "  # #",  # rows a second and seconds of a pass
    r"(?<=\d)  +\d+\.\d\d(?=  loss|$)": "  #",  # seconds of a setting
    r"^(( +[\d.,]+){5}) +[\d,]+$": r"\1  #",  # rows a second of a stream
    r"^streamsvm: compiling kernels.*\n": "",
}


def in_terminal(words: list[str], folder: Path, columns: int, interrupt: bytes | None = None) -> str:
    """All that a command writes to a terminal; with `interrupt`, Ctrl-C is pressed once that was written."""
    terminal, inner = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
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


def screen(written: str, columns: int) -> str:
    """What is on the screen at the end; no line has ever been longer than it is wide."""
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
            assert at <= columns, lines[-1]
            continue
        at = 0
    return "\n".join(line.rstrip() for line in lines)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with LIBSVM text to train on and to test with."""
    monkeypatch.delenv("COLUMNS", raising=False)  # or else terminals have that many
    X, labels = make_problem(700, 12, 4, noise=1.5)
    lines = text_lines(X, [f"class{label}" for label in labels], ".3f")
    (tmp_path / "train").write_text("".join(lines[:500]))
    (tmp_path / "test").write_text("".join(lines[500:]))
    return tmp_path


def shown(commands: list[str], folder: Path, columns: int) -> str:
    """What is on a screen after some commands, masked."""
    screens = []
    for command in commands:
        found = screen(in_terminal(command.split(), folder, columns), columns)
        for pattern, mask in MASKS.items():
            found = re.sub(pattern, mask, found, flags=re.MULTILINE)
        screens.append(f"$ streamsvm {command}\n{found}")
    return "\n".join(screens)


def test_what_is_printed_fits_80_columns_and_is_as_it_was(folder: Path) -> None:
    screens = shown(MAIN + MORE, folder, 80)
    if os.environ.get("UPDATE"):
        TRANSCRIPTS.write_text(screens)
    assert screens.splitlines() == TRANSCRIPTS.read_text().splitlines()
    shown(UNLIKE, folder, 80)


def test_ctrl_c_leaves_whole_lines(folder: Path) -> None:
    in_terminal(MAIN[0].split(), folder, 80)
    words = "fit train.zarr --out run --passes 1000000 --gap none --dtype float64"
    lines = screen(in_terminal(words.split(), folder, 80, interrupt=b"seconds"), 80).splitlines()
    assert lines.count("stopping after this block; press Ctrl-C again to stop at once") == 1
    assert re.fullmatch(
        r"streamsvm: stopped in pass \d+ after \d of 1 blocks; `streamsvm resume run`", lines[-2]
    )
    assert lines[-1] == "  continues"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_after_a_second_of_silence_there_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])

    class Waiting(threading.Event):
        """Wait until two seconds have passed, without doing so."""

        def wait(self, timeout: float | None = None) -> bool:
            now[0] += timeout or 0.0
            return now[0] > 102

    shown = console.Console(quiet=False, json=False)
    shown._ended = Waiting()
    shown._show_life()
    assert re.findall(r"working: \d s", terminal.getvalue()) == [
        "working: 1 s",
        "working: 2 s",
        "working: 2 s",
    ]
    shown.leave()
    assert screen(terminal.getvalue(), 80) == ""


def test_paths_are_shortened_in_the_middle_but_stay_whole_in_errors() -> None:
    path = "/a/path" * 20
    short = wrapped(f"model: {path}, the average", 40)
    assert max(map(len, short.splitlines())) <= 40
    assert short.splitlines()[1].startswith("  /a/path/a")
    assert "h/a/path," in short
    assert "…" in short
    assert wrapped(f"{path}: nothing is there", 40, whole=True) == f"{path}: nothing is there"
    assert wrapped("some words of an error", 10, whole=True) == "some words\n  of an\n  error"
    assert wrapped(path, None) == path
