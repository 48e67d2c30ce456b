"""What the commands share: options, sizes, progress bars, results, signals."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, and nothing else.")]


def parse_size(text: str) -> int:
    """Bytes in "500M", "2G", "1.5GiB" or a plain number; binary units."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(text).strip().lower())
    if not match or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a size such as 500M or 2G")
    return int(float(match[1]) * 1024 ** "_kmgt".index(match[2] or "_"))


Memory = Annotated[
    int, typer.Option("--memory", parser=parse_size, metavar="SIZE", help="Budget, such as 500M or 2G.")
]
Every = Annotated[
    str,
    typer.Option(
        "--checkpoint-every", metavar="TIME|BLOCKS", help="Commit every 0.5s, 60s, 5m, or 8 blocks."
    ),
]


def format_size(n: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


class Console:
    """Prints for people, or for machines, or not at all."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        self._people = not quiet and not json
        self._json = json
        self._bar: Any = None
        self._stage = ""

    def say(self, line: str = "") -> None:
        """One line for people."""
        if self._people:
            self._close()
            print(line, flush=True)

    def warn(self, line: str) -> None:
        """One line on stderr, whoever reads the rest."""
        self._close()
        print(f"streamsvm: {line}", file=sys.stderr, flush=True)

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
            print(json.dumps(record), flush=True)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar, self._stage = None, ""


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
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            return file.read(8) == b"\x89HDF\r\n\x1a\n"
    except OSError as error:
        from streamsvm.errors import InputError
        from streamsvm.files import reason

        raise InputError(f"{path}: {reason(error)}") from None
