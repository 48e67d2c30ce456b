"""Print the output of the commands, and handle signals."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, NoReturn, Self, TextIO

from streamsvm_cli.wording import count, shell_text, shell_value

from streamsvm.base.progress import unit_of
from streamsvm.errors import Interrupted, SettingsError

_LOG_INTERVAL = 30.0  # seconds between progress lines in a file
_DRAW_INTERVAL = 0.5  # seconds between updates of the last line of a terminal
_CLEAR = "\r\x1b[K"
WARNED: set[str] = set()


def complain(line: object, options: Collection[str] | None = None) -> None:
    """Print an error or warning and its notes to stderr, each on one line."""
    for each in (line, *getattr(line, "__notes__", ())):
        _print(f"streamsvm: {shell_text(each, options)}", sys.stderr)


def fail(error: Exception, options: Collection[str] | None = None) -> NoReturn:
    complain(error, options)
    sys.exit(130 if isinstance(error, Interrupted) else 2 if isinstance(error, SettingsError) else 1)


def warn(line: object) -> None:
    """Print a warning unless it was printed before, because results repeat earlier warnings."""
    if str(line) not in WARNED:
        WARNED.add(str(line))
        complain(line)


def _print(line: str, stream: TextIO, indent: int | None = 2) -> None:
    """Print a line, wrapped on a terminal unless `indent` is None; exit if the reader closed the pipe."""
    if stream.isatty() and indent is not None:
        width = os.get_terminal_size(stream.fileno()).columns or 80
        if len(line) > width:
            line = textwrap.fill(
                line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
            )  # fmt: skip
        line = f"{_CLEAR}{line}"
    try:
        print(f"{line}\n", end="", file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # otherwise the interpreter fails at exit
        raise SystemExit(1) from None


class Console:
    """Output of a command: lines for people, one JSON object, or nothing.

    As a context manager, it shows progress.
    """

    def __init__(self, *, quiet: bool, json: bool) -> None:
        self.people = not quiet and not json
        self.json = json
        self._stage: tuple[str, float] = "", time.monotonic()  # name and start time
        self._done: tuple[int, int | None] = 0, None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_progress, daemon=True)

    def __enter__(self) -> Self:
        if self.people:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Stop showing progress, at the end of the command or before other output to the terminal."""
        if self.people and not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            if sys.stderr.isatty():
                print(_CLEAR, end="", file=sys.stderr, flush=True)

    def say(self, line: str = "", indent: int = 2) -> None:
        """Print a line unless the output is quiet or JSON. Control characters in it are escaped."""
        if self.people:
            _print(shell_text(line), sys.stdout, indent)

    def progress(self, stage: str, done: int, total: int | None) -> None:
        """Record the progress of a stage, which is shown until the stage ends or another begins."""
        if stage != self._stage[0]:
            self._stage = stage, time.monotonic()
        self._done = done, total
        if done == total:
            self._stage = "", time.monotonic()

    def _show_progress(self) -> None:
        on_terminal = sys.stderr.isatty()
        with suppress(BrokenPipeError):  # the command exits when it prints its next line
            while not self._ended.wait(_DRAW_INTERVAL if on_terminal else _LOG_INTERVAL):
                if on_terminal:
                    width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                    print(f"{_CLEAR}{self._state(width)}", end="", file=sys.stderr, flush=True)
                elif self._stage[0]:
                    line = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {self._state(None)}\n"
                    print(line, end="", file=sys.stderr, flush=True)

    def _state(self, width: int | None) -> str:
        from tqdm import tqdm

        (stage, begin), (done, total) = self._stage, self._done
        seconds = time.monotonic() - begin
        if not stage:
            return f"working: {seconds:.0f} s"
        return str(tqdm.format_meter(
            done, total, seconds, width, stage, unit=unit_of(stage), unit_scale=True, ascii=width is None
        ))  # fmt: skip

    def result(self, record: dict[str, Any]) -> None:
        if self.json:
            _print(json.dumps(shell_value(record)), sys.stdout, None)


class EventTable:
    """Base class of reporters that print training events as lines of a table."""

    COLUMNS: tuple[tuple[str, int, str, str], ...]
    LAST = ""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.left_out: set[str] = set()  # keys of columns that are not printed
        self._headed = False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            warn(event["warning"])
        elif event["event"] == "choose":
            runs, rows = count(event["trainings"], "training run"), count(event["rows"], "row")
            self.console.say(f"{runs} on a sample of {rows}; accuracy on a held-out fifth of the sample:")
        elif event["event"] == "candidate":
            self.console.say(f"{event['valid_accuracy']:8.4f}  loss {event['loss']:4}  {event['transform']}")
        elif event["event"] == "chosen":
            why = ", because no other candidate is better by more than one standard error" * event["default"]
            self.console.say(f"chosen: loss {event['loss']}, transform {event['transform']}{why}")

    def line(self, event: dict[str, Any], end: str = "") -> None:
        """Print one row of the table, followed by `end`; print the headings before the first row."""
        shown = [column for column in self.COLUMNS if column[2] not in self.left_out]
        if not self._headed:
            heads = [f"{name:>{width}}" for name, width, *_ in shown]
            self.console.say("  ".join([*heads, self.LAST] if end else heads))
            self._headed = True
        cells = ["" if event.get(key) is None else format(event[key], form) for _, _, key, form in shown]
        cells = [f"{cell:>{width}}" for cell, (_, width, *_) in zip(cells, shown, strict=True)]
        self.console.say("  ".join([*cells, end]).rstrip())


@contextmanager
def stop_on_signals() -> Iterator[Any]:
    """Yield a function that returns True after Ctrl-C or SIGTERM; a second signal ends the process."""
    stopping = False
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        stopping = True
        for each in signals:
            signal.signal(each, signal.SIG_DFL)
        if sys.stderr.isatty():
            # Not `print`, because its buffer is not reentrant and the signal may interrupt a print.
            text = f"{_CLEAR}stopping after this block; press Ctrl-C again to stop at once\n"
            os.write(sys.stderr.fileno(), text.encode())

    before = {each: signal.signal(each, stop) for each in signals}
    try:
        yield lambda: stopping
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
