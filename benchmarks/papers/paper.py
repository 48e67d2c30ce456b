"""What the commands of this folder share: their options, their data, and their tables."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules that all benchmarks share

from common import Pair, choose, data_folder, find_pairs, print_table, write_json
from tasks import History, Task, fit_task, load_task, passes_to, total, train

__all__ = [
    "History", "Task", "choose_pairs", "data_folder", "finish", "fit_task", "load_task", "parser",
    "passes_to", "percent", "print_table", "say_stand_ins", "total", "train",
]  # fmt: skip

# What the papers have, and what takes its place here.
STAND_INS = {
    "news20": "news20: LIBSVM's training file split 4:1 within the classes, stands in for its two files",
}


def parser(doc: str | None, sets: str) -> argparse.ArgumentParser:
    """The options of all commands; `sets` are the paper's data sets, with commas."""
    found = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--data", metavar="FOLDER", help="LIBSVM files; by default $STREAMSVM_DATA")
    found.add_argument("--sets", metavar="A,B", default=sets, help="data sets (%(default)s)")
    found.add_argument("--quick", action="store_true", help="small and short, to see that it works")
    found.add_argument("--out", metavar="FILE", help="write the results as JSON, too")
    return found


def choose_pairs(parser: argparse.ArgumentParser, options: argparse.Namespace, quick: str) -> list[Pair]:
    """The files of the data sets, in the order of `--sets`; only those of `quick` with `--quick`.

    A set that is named explicitly must be there. Of the paper's sets, those that are not are left out.
    """
    given = options.sets != parser.get_default("sets")
    names = quick if options.quick and not given else options.sets
    try:
        pairs = find_pairs(data_folder(options.data))
        if not given:
            there = [name for name in names.split(",") if any(pair.is_called(name) for pair in pairs)]
            for name in sorted({*names.split(",")} - {*there}):
                print(f"{name} is left out: it is not in the folder")
            names = ",".join(there) or names
        pairs = choose(pairs, names)
    except ValueError as error:
        parser.error(str(error))
    wanted = names.split(",")
    return sorted(pairs, key=lambda pair: next(i for i, name in enumerate(wanted) if pair.is_called(name)))


def percent(value: float | None, digits: int = 2) -> str:
    """A share as per cent."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def say_stand_ins(pairs: list[Pair], *more: str) -> None:
    """Print which data stand in for the paper's, and what does not."""
    notes = [note for name, note in STAND_INS.items() if any(pair.is_called(name) for pair in pairs)]
    for note in [*notes, *more]:
        print(f"  {note}")


def finish(options: argparse.Namespace, results: Any) -> None:
    """Write the results, with the options and versions that made them."""
    write_json(options.out, {"options": vars(options), "results": results})
