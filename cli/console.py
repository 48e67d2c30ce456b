"""Output of the commands, and their reaction to signals."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, Self, TextIO

from streamsvm_cli.wording import count, shell_text, shell_value, wrapped

from streamsvm.base.progress import unit_of
from streamsvm.base.text import format_size

_PROGRESS_INTERVAL = 30.0  # seconds between two lines of one stage
_STAGE_INTERVAL = 1.0  # seconds between the lines of two stages
_BAR_DELAY = 0.2  # seconds that a stage may take before it has a bar
_SILENCE = 1.0  # seconds without a sign of life, on a terminal
_CLEAR = "\r\x1b[K"  # the line of the terminal that has a bar
WARNED: set[str] = set()  # by the running command


def complain(line: object, options: Collection[str] | None = None) -> None:
    """Print an error or a warning as one line on stderr, and its notes, with control characters escaped.

    On a terminal that is narrower it is several lines; paths stay whole.
    """
    width = columns(sys.stderr)
    for each in (line, *getattr(line, "__notes__", ())):
        text = wrapped(f"streamsvm: {shell_text(each, options)}", width, whole=True)
        _write(f"{_CLEAR * bool(width)}{text}\n", sys.stderr)


def _write(text: str, stream: TextIO) -> None:
    """Write text at once; if its reader has gone, as `head` does, end the command as if it was killed."""
    try:
        print(text, end="", file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or the interpreter would complain
        raise SystemExit(1) from None


def columns(stream: TextIO) -> int | None:
    """Return the width of the terminal that a stream writes to; None if it does not write to one."""
    return (os.get_terminal_size(stream.fileno()).columns or 80) if stream.isatty() else None


def warn_once(line: object) -> None:
    """Print a warning, unless the command has printed it: some are in results, too."""
    if str(line) not in WARNED:
        WARNED.add(str(line))
        complain(line)


class Console:
    """Output for people, for machines, or none; used as a context, it shows on a terminal that it is alive.

    Attributes
    ----------
    people, json, verbose : bool
        Whether lines are printed for people; whether one object is for machines; whether people want all
        there is to say.
    """

    def __init__(self, *, quiet: bool, json: bool, verbose: bool = False) -> None:
        self.people = not quiet and not json
        self.json = json
        self.verbose = verbose
        self._bar: Any = None
        self._stage = ""
        self._said = self._heard = time.monotonic()  # a line of progress; anything at all
        self._lock = threading.RLock()
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        if self.people and sys.stderr.isatty():
            threading.Thread(target=self._show_life, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Draw no more by itself: the command has ended, or others write to the terminal."""
        self._ended.set()
        self._close()

    def say(self, line: str = "", indent: int = 2) -> None:
        """Print one line for people, with control characters in names escaped.

        On a terminal that is narrower, it goes on in further lines with an indent.
        """
        if self.people:
            self._close()
            text = wrapped(shell_text(line), columns(sys.stdout), indent)
            _write(f"{text}\n", sys.stdout)  # at once: another process may clear its bar meanwhile

    def remark(self, line: str) -> None:
        """Print a short line for people on stderr, where it is no part of results; may raise `OSError`."""
        if self.people:
            self._close()
            print(f"streamsvm: {line}", file=sys.stderr, flush=True)

    def detail(self, line: str) -> None:
        """Print a line for people who want to know more."""
        if self.verbose:
            self.say(line)

    def warn(self, line: str) -> None:
        """Print one line on stderr, in every mode; the same line only once."""
        warn_once(line)

    def progress(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress of `stage`: a bar on a terminal, else a line now and then.

        There is a line a second after the last stage had one, and every 30 seconds.
        """
        if not self.people:
            return
        if not sys.stderr.isatty():
            self._stamped(stage, done, total)
            return
        with self._lock:
            if stage != self._stage:
                from tqdm import tqdm

                self._close()
                self._bar = tqdm(
                    total=total, desc=stage, unit=unit_of(stage), unit_scale=True, leave=False,
                    dynamic_ncols=True, delay=_BAR_DELAY,
                )  # fmt: skip
                self._stage = stage
            self._bar.update(done - self._bar.n)
            self._heard = time.monotonic()
            if done == total:
                self._close()

    def bar(self, stage: str, done: int, total: int | None) -> None:
        """Show progress as `progress` does, but only on a terminal: for work that is mostly short."""
        if sys.stderr.isatty():
            self.progress(stage, done, total)

    def _show_life(self) -> None:
        """Draw the bar again, or the time, whenever nothing has been shown for a second."""
        while not self._ended.wait(_SILENCE / 2):
            with self._lock:
                silent = time.monotonic() - self._heard
                if silent < _SILENCE or self._ended.is_set():
                    continue
                if self._bar is not None:
                    self._bar.refresh()
                else:
                    print(f"{_CLEAR}working: {silent:.0f} s", end="", file=sys.stderr, flush=True)

    def _stamped(self, stage: str, done: int, total: int | None) -> None:
        """Print a line with the time if one is due; what is over in a second has none."""
        now = time.monotonic()
        if 0 <= now - self._said < (_PROGRESS_INTERVAL if stage == self._stage else _STAGE_INTERVAL):
            return
        unit = unit_of(stage)
        amount: Callable[[int], str] = format_size if unit == "B" else "{:,}".format
        line = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {stage}: {amount(done)}"
        if total:
            line += f" of {amount(total)}"
        line += "" if unit == "B" else f" {unit}"
        if total:
            line += f" ({done / total:.0%})"
        self.say(line)
        self._said, self._stage = now, stage

    def result(self, record: dict[str, Any]) -> None:
        """Print the one JSON object for machines."""
        self._close()
        if self.json:
            _write(f"{json.dumps(shell_value(record))}\n", sys.stdout)

    def _close(self) -> None:
        """Remove what is drawn on the last line of the terminal, also by a process that was killed."""
        with self._lock:
            if self._bar is not None:
                self._bar.close()
                self._bar, self._stage = None, ""
            if sys.stderr.isatty():
                print(_CLEAR, end="", file=sys.stderr, flush=True)
            self._heard = time.monotonic()


_COUNTS = {  # of text: what is counted, and what was done with it
    "skipped": ("row", "skipped"),
    "repaired": ("row", "repaired"),
    "explicit_zeros": ("explicit zero", "dropped"),
    "qids": ("qid field", "ignored"),
    "unseen_features": ("value", "of unseen features dropped"),
    "unlabelled": ("row", "without a label left out"),
    "missing_values": ("missing number", "replaced"),
    "unseen_values": ("value", "of unseen categories: no feature"),
    "unseen_labels": ("row", "with unseen labels: kept, and counted as wrong"),
}


def print_text_counts(console: Console, counts: dict[str, Any]) -> None:
    """Print the numbers of rows and values that a reader left out or changed."""
    for line in counts["first_errors"]:
        console.warn(f"skipped: {line}")
    for name, (noun, what) in _COUNTS.items():
        if counts.get(name):
            console.say(f"  {count(counts[name], noun)} {what}")


class EventTable:
    """Base class of reporters, which print the events of training as lines of a table."""

    COLUMNS: tuple[tuple[str, int, str, str], ...]  # heading, width, key, format
    LAST = ""  # heading of what stands behind them

    def __init__(self, console: Console) -> None:
        self.console = console
        self.left_out: set[str] = set()  # keys of columns that would be empty
        self._headed = False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "warning":
            self.console.warn(event["warning"])

    def line(self, event: dict[str, Any], end: str = "") -> None:
        """Print one line of the table and `end` behind it, the first time below its heading.

        For people who want to know more, a line follows with what the table has no column for.
        """
        shown = [column for column in self.COLUMNS if column[2] not in self.left_out]
        if not self._headed:
            heads = [f"{name:>{width}}" for name, width, *_ in shown]
            self.console.say("  ".join([*heads, self.LAST] if end else heads))
            self._headed = True
        cells = ["" if event.get(key) is None else format(event[key], form) for _, _, key, form in shown]
        cells = [f"{cell:>{width}}" for cell, (_, width, *_) in zip(cells, shown, strict=True)]
        self.console.say("  ".join([*cells, end]).rstrip())
        known = {"event", *(key for _, _, key, _ in shown)}
        others = [_figure(*item) for item in event.items() if item[0] not in known and item[1] is not None]
        self.console.detail(f"    {', '.join(others)}")


def _figure(name: str, value: Any) -> str:
    """Return a number and its name, which may end in its unit."""
    words, _, unit = name.replace("_", " ").rpartition(" ")
    if unit == "bytes":
        return f"{words} {format_size(value)}"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{words} {unit} {text}".lstrip()


@contextmanager
def _handling(signals: Collection[signal.Signals], handler: Any) -> Iterator[None]:
    """Let a function handle signals meanwhile."""
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)


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
            # Not by `print`: the signal may come during one, and a buffer may not be entered twice.
            text = f"{_CLEAR}stopping after this block; press Ctrl-C again to stop at once\n"
            os.write(sys.stderr.fileno(), text.encode())

    with _handling(signals, stop):
        yield lambda: stopping


def terminate_as_interrupt() -> AbstractContextManager[None]:
    """Make SIGTERM raise KeyboardInterrupt, so that files are cleaned up."""
    return _handling([signal.SIGTERM], signal.default_int_handler)
