"""What the benchmarks share: their options, finding data sets, and printing and writing results."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from streamsvm.base.text import parse_size

COMPRESSED = (".bz2", ".gz", ".xz", ".zst")
TEST_ENDING = ((".tr", ".val"), ("", ".t"))  # of the training file's name, and of its test file's

Data = Annotated[
    Path,
    typer.Option(envvar="STREAMSVM_DATA", exists=True, file_okay=False, help="folder of LIBSVM files"),
]
Sets = Annotated[str, typer.Option(metavar="A,B", help="data sets; those that are not there are left out")]
Losses = Annotated[str, typer.Option(metavar="A,B", help="losses")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="write the results as JSON, too")]


def start(main: Callable[..., None], doc: str | None, *others: Callable[..., None]) -> None:
    """Run `main` as the command of a script, or as one of several that are called by their names."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=doc)
    for command in (main, *others):
        app.command(help=command.__doc__ if others else doc)(command)
    app()


def bytes_option(help: str) -> Any:
    """An option of a number of bytes, or text such as 500M."""
    return typer.Option(parser=parse_size, metavar="BYTES", help=help)


class Pair(NamedTuple):
    """A training file and its test file."""

    name: str
    train: Path
    test: Path


def find_pairs(folder: Path) -> list[Pair]:
    """The LIBSVM files of a folder that come as ``x`` and ``x.t``, or ``x.tr`` and ``x.val``, by name."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            files.setdefault(path.stem if path.suffix in COMPRESSED else path.name, path)
    pairs = {}
    for file in files:
        for train_end, test_end in TEST_ENDING:
            name = file.removesuffix(train_end)
            if file.endswith(train_end) and name + test_end in files:
                pairs.setdefault(name, Pair(name, files[file], files[name + test_end]))
    return sorted(pairs.values())


def choose(folder: Path, sets: str) -> list[Pair]:
    """The data sets that `sets` names, in its order, or all if it is empty; `BadParameter` if there are none.

    A name may be that of the files, or its part before the first dot.
    """
    there = find_pairs(folder)
    if not sets:
        chosen = there
    else:
        by_name = {pair.name.split(".")[0]: pair for pair in there} | {pair.name: pair for pair in there}
        chosen = [by_name[name]._replace(name=name) for name in sets.split(",") if name in by_name]
        for name in (name for name in sets.split(",") if name not in by_name):
            print(f"{name} is left out: it is not in {folder}")
    if not chosen:
        found = ", ".join(pair.name for pair in there) or "none"
        raise typer.BadParameter(
            f"no such pairs of LIBSVM files (x and x.t, or x.tr and x.val); there: {found}"
        )
    return chosen


def write_json(path: Path | None, results: dict[str, Any]) -> None:
    """Write `results`, and what made them, to `path` if one was asked for."""
    if path:
        made_by: dict[str, Any] = {"arguments": sys.argv[1:], "python": platform.python_version()}
        made_by |= {"machine": platform.machine(), "cpus": os.cpu_count()}
        made_by |= {name: importlib.metadata.version(name) for name in ("streamsvm", "numba", "numpy")}
        path.write_text(json.dumps({"environment": made_by} | results, indent=1, default=str) + "\n")


def text(value: Any) -> str:
    """A cell: three or four digits of a float, None as a dash."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value == 0 or 0.001 <= abs(value) < 100_000:
        return f"{value:,.{max(0, 3 - len(str(int(abs(value)))) + 2 * (abs(value) < 1))}f}"
    return f"{value:.2e}"


def print_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows below their headers, the first column to the left, the others to the right."""
    cells = [list(headers), *([text(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    print(f"\n{title}")
    for row in cells:
        first, *others = (f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    print(end="", flush=True)


def print_records(title: str, records: Sequence[dict[str, Any]]) -> None:
    """Print a table of records, of which some may lack columns."""
    columns = list(dict.fromkeys(name for record in records for name in record))
    print_table(title, columns, [[record.get(name) for name in columns] for record in records])
