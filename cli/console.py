"""Output of the commands, and their reaction to signals."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from streamsvm_cli.wording import count, shell_text, shell_value

from streamsvm.base.text import format_size

_PROGRESS_INTERVAL = 30.0  # seconds between two lines of one stage
_STAGE_INTERVAL = 1.0  # seconds between the lines of two stages
WARNED: set[str] = set()  # by the running command


def complain(line: object, options: Collection[str] | None = None) -> None:
    """Print an error or a warning as one line on stderr, with control characters in names escaped."""
    print(f"streamsvm: {shell_text(line, options)}", file=sys.stderr, flush=True)


def warn_once(line: object) -> None:
    """Print a warning, unless the command has printed it: some are in results, too."""
    if str(line) not in WARNED:
        WARNED.add(str(line))
        complain(line)


class Console:
    """Output for people, for machines, or none.

    Attributes
    ----------
    people, json : bool
        Whether lines are printed for people; whether one object is for machines.
    """

    def __init__(self, *, quiet: bool, json: bool) -> None:
        self.people = not quiet and not json
        self.json = json
        self._bar: Any = None
        self._stage = ""
        self._said: float | None = None  # when a line of progress was printed

    def say(self, line: str = "") -> None:
        """Print one line for people, with control characters in names escaped."""
        if self.people:
            self._close()
            print(shell_text(line), flush=True)

    def warn(self, line: str) -> None:
        """Print one line on stderr, in every mode; the same line only once."""
        self._close()
        warn_once(line)

    def progress(self, stage: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Show the progress of `stage`: a bar on a terminal, else a line now and then.

        There is a line when a stage begins, and every 30 seconds.
        """
        if not self.people:
            return
        if not sys.stderr.isatty():
            self._stamped(stage, done, total, unit)
            return
        if stage != self._stage:
            from tqdm import tqdm

            self._close()
            self._bar = tqdm(
                total=total, desc=stage, unit=unit, unit_scale=True, leave=False, dynamic_ncols=True
            )
            self._stage = stage
        self._bar.update(done - self._bar.n)
        if done == total:
            self._close()

    def bar(self, stage: str, done: int, total: int | None) -> None:
        """Show progress as `progress` does, but only on a terminal: for work that is mostly short."""
        if sys.stderr.isatty():
            self.progress(stage, done, total)

    def _stamped(self, stage: str, done: int, total: int | None, unit: str) -> None:
        """Print a line with the time if one is due; stages of less than a second have none."""
        now = time.monotonic()
        if self._said is not None:
            since = now - self._said
            if 0 <= since < (_PROGRESS_INTERVAL if stage == self._stage else _STAGE_INTERVAL):
                return
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
            print(json.dumps(shell_value(record)), flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar, self._stage = None, ""


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
        self._headed = False

    def __call__(self, event: dict[str, Any]) -> None:
        if event["event"] == "compile":
            self.console.say("compiling kernels; this happens once on a machine")
        elif event["event"] == "ready" and event["seconds"] > 2:
            self.console.say(f"kernels compiled in {event['seconds']:.0f} s")
        elif event["event"] == "warning":
            self.console.warn(event["warning"])

    def line(self, event: dict[str, Any], end: str = "") -> None:
        """Print one line of the table and `end` behind it, the first time below its heading."""
        if not self._headed:
            heads = [f"{name:>{width}}" for name, width, *_ in self.COLUMNS]
            self.console.say("  ".join([*heads, self.LAST] if end else heads))
            self._headed = True
        self.console.say(
            "  ".join(self._cell(event.get(key), width, form) for _, width, key, form in self.COLUMNS)
            + (f"  {end}" if end else "")
        )

    @staticmethod
    def _cell(value: Any, width: int, form: str) -> str:
        if value is None:
            return "-".rjust(width)
        return (format_size(value) if form == "size" else format(value, form)).rjust(width)


@contextmanager
def stop_on_signals() -> Iterator[Any]:
    """Yield a function that returns True after Ctrl-C or SIGTERM; a second signal ends the process."""
    stopping = False

    def stop(number: int, frame: Any) -> None:
        nonlocal stopping
        stopping = True
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        if sys.stderr.isatty():
            print("\nstopping after this block; press Ctrl-C again to stop at once", file=sys.stderr)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, stop)
    try:
        yield lambda: stopping
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt, so that files are cleaned up."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
