"""What the commands share: options, sizes, progress bars, results, signals."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.wording import shell_text, shell_value

from streamsvm.errors import InputError, SettingsError
from streamsvm.text import check_local, format_size, parse_size, printable

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")]


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except SettingsError as error:
        raise wrong_usage(str(error)) from None


Memory = Annotated[
    int, typer.Option("--memory", parser=_size, metavar="SIZE", help="Budget, such as 500M or 2G.")
]
Every = Annotated[
    str,
    typer.Option(
        "--checkpoint-every", metavar="TIME|BLOCKS", help="Commit every 0.5s, 60s, 5m, or 8 blocks (8)."
    ),
]


def parse_c(text: str) -> float | str:
    """The weight of the loss: a number, or "auto"."""
    try:
        return text if text == "auto" else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto") from None


C = Annotated[
    float,
    typer.Option(
        "--C",
        parser=parse_c,
        metavar="NUMBER|auto",
        help="Weight of the loss against the regulariser; auto: one over the mean squared norm of the rows.",
    ),
]


def count(n: int, noun: str) -> str:
    """A number with its noun: 1 pass, 1,437 rows."""
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def fraction(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def size_of_data(rows: int, features: int, classes: int, nnz: int) -> str:
    numbers = {"row": rows, "feature": features, "class": classes, "non-zero": nnz}
    return ", ".join(count(n, noun) for noun, n in numbers.items())


def complain(line: object) -> None:
    """One line on stderr, of an error or a warning, whatever names from outside are in it."""
    print(f"streamsvm: {shell_text(line)}", file=sys.stderr, flush=True)


def wrong_usage(line: str) -> typer.BadParameter:
    """What to raise for words of the command line that contradict one another, or mean nothing."""
    return typer.BadParameter(printable(line))


class Console:
    """Prints for people, or for machines, or not at all."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        self._people = not quiet and not json
        self._json = json
        self._bar: Any = None
        self._stage = ""
        self._warned: set[str] = set()

    def say(self, line: str = "") -> None:
        """One line for people, whatever names from outside are in it."""
        if self._people:
            self._close()
            print(shell_text(line), flush=True)

    def warn(self, line: str) -> None:
        """One line on stderr, whoever reads the rest; the same line once."""
        if line in self._warned:
            return
        self._warned.add(line)
        self._close()
        complain(line)

    def progress(self, stage: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Move the bar of `stage`; bars appear on a terminal only."""
        if not self._people or not sys.stderr.isatty():
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

    def result(self, record: dict[str, Any]) -> None:
        """The one object for machines."""
        self._close()
        if self._json:
            print(json.dumps(shell_value(record)), flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar, self._stage = None, ""


_MET = {  # in text: how many of what, and what became of them
    "skipped": ("row", "skipped"),
    "repaired": ("row", "repaired"),
    "explicit_zeros": ("explicit zero", "dropped"),
    "qids": ("qid field", "ignored"),
    "unseen_features": ("value", "of unseen features dropped"),
    "unseen_labels": ("row", "with unseen labels: kept, and wrong whatever is predicted"),
}


def tell_what_was_met(console: Console, met: dict[str, Any]) -> None:
    """What a reading of text left out or changed."""
    for line in met["first_errors"]:
        console.warn(f"skipped: {line}")
    for name, (noun, fate) in _MET.items():
        if met[name]:
            console.say(f"  {count(met[name], noun)} {fate}")


class Table:
    """Prints the events of a training as lines of a table; what else is told, a subclass says."""

    COLUMNS: tuple[tuple[str, int, str, str], ...]  # heading, width, key, format

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

    def line(self, event: dict[str, Any]) -> None:
        """One line of the table, below its heading."""
        if not self._headed:
            self.console.say("  ".join(f"{name:>{width}}" for name, width, *_ in self.COLUMNS))
            self._headed = True
        self.console.say(
            "  ".join(self._cell(event.get(key), width, form) for _, width, key, form in self.COLUMNS)
        )

    @staticmethod
    def _cell(value: Any, width: int, form: str) -> str:
        if value is None:
            return "-".rjust(width)
        return (format_size(value) if form == "size" else format(value, form)).rjust(width)


@contextmanager
def stop_on_signals() -> Iterator[Any]:
    """Turn Ctrl-C and SIGTERM into an answer to "stop?"; a second one ends the process at once."""
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        if sys.stderr.isatty():
            print("\nstopping after this block; once more to stop at once", file=sys.stderr)

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in before:
        signal.signal(each, ask)
    try:
        yield lambda: asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM clean up as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def is_store(path: Path) -> bool:
    """Whether `path` is a store rather than text: a folder, or a file with HDF5's first bytes."""
    check_local(path, InputError)
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError as error:
        from streamsvm.durable import reason

        raise InputError(f"{path}: {reason(error)}") from None
