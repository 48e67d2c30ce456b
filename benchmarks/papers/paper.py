"""What the commands of this folder share beside what all benchmarks do.

`fit_task` and `train` name ``transform="none"``: the models of the sources have no constant feature.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Option

sys.path.insert(0, str(Path(__file__).parents[1]))  # the modules that all benchmarks share

from common import Data, Out, Pair, Sets, choose, print_records, print_table, start, write_json
from tasks import History, Task, fit_task, load_task, passes_to, total, train

__all__ = [
    "AFTER", "Data", "History", "MaxPasses", "Out", "Pair", "Sets", "Task", "best_dual", "choose", "fit_task",
    "load_task", "order_of", "passes_to", "percent", "print_records", "print_shortfalls", "print_table",
    "say_stand_ins", "start", "total", "train", "write_json",
]  # fmt: skip

MaxPasses = Annotated[int, Option(help="of trainings to an optimum")]
AFTER = (1, 2, 5, 10, 20, 50)  # passes after which duals are shown


def percent(value: float | None, digits: int = 2) -> str:
    """A share as per cent."""
    return "-" if value is None else f"{100 * value:.{digits}f}"


def say_stand_ins(pairs: list[Pair], *more: str) -> None:
    """Print which data stand in for the paper's, and what does not."""
    if any(pair.name.startswith("news20") for pair in pairs):
        print("  news20: LIBSVM's training file split 4:1 within the classes, stands in for its two files")
    for note in more:
        print(f"  {note}")


def best_dual(task: Task, max_passes: int) -> float:
    """The maximum of Crammer-Singer's dual, to a relative gap of 1e-6 or as near as the passes come."""
    settings = {"loss": "cs", "dtype": "float64", "inner_passes": "auto"}
    return max(record["dual"] for record in train(task, passes=max_passes, tol=1e-6, **settings))


def print_shortfalls(title: str, runs: dict[str, History], maximum: float) -> dict[str, Any]:
    """Print how far duals are below the maximum, relative to it, and seconds; return both of all passes."""
    last = max(map(len, runs.values()))
    after = [n for n in AFTER if n < last] + [last]
    short = {solver: [1 - record["dual"] / maximum for record in run] for solver, run in runs.items()}
    seconds = {solver: [total(run[: n + 1]) for n in range(len(run))] for solver, run in runs.items()}
    print_table(
        f"{title}: dual below its maximum, relative, after passes, and seconds of training",
        ["", *map(str, after), "seconds"],
        [
            [solver, *(f"{each[n - 1]:.1e}" for n in after), seconds[solver][-1]]
            for solver, each in short.items()
        ],
    )
    return {"maximum": maximum, "short": short, "seconds": seconds}


def order_of(runs: dict[str, History], *solvers: str) -> str:
    """In how many passes the dual of each solver is above that of the next one."""
    parts = []
    for a, b in itertools.pairwise(solvers):
        pairs = list(zip(runs[a], runs[b], strict=False))
        above = sum(first["dual"] > second["dual"] for first, second in pairs)
        parts.append(f"{a} above {b} in {above} of {len(pairs)} passes")
    return ", ".join(parts)
