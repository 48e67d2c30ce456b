"""Block solvers of Crammer-Singer after few passes, as in Table II and Figure 1 of Blondel et al. 2014.

Training and test rows are put together and split 4:1 within the classes, ten times, as in the paper. Each
solver makes 1, 3 and 5 passes at C = 1, in float64 and without inner passes; last iterates. The figure
is of the first split: how far the dual is from its maximum, relative to it, against the seconds of training.
"""

from __future__ import annotations

from statistics import mean, stdev
from typing import Any

import numpy as np
import scipy.sparse as sp
from paper import (
    Task,
    choose_pairs,
    finish,
    fit_task,
    load_task,
    parser,
    print_table,
    say_stand_ins,
    total,
    train,
)

SOLVERS = ("sorted", "pivot", "bisection", "smo", "frank-wolfe", "newton")
PASSES = (1, 3, 5)
FIGURE = (1, 2, 3, 5, 10, 20, 50)
TOL = 1e-6  # relative gap of the run that finds the maximum
# sector, by solver: accuracy, its standard deviation, and seconds, after the numbers of passes.
PUBLISHED = {
    "sorted": ((94.17, 0.27, 0.58), (94.98, 0.24, 1.69), (95.10, 0.27, 2.82)),
    "pivot": ((93.96, 0.36, 0.56), (95.06, 0.28, 1.64), (95.07, 0.26, 2.69)),
    "bisection": ((94.08, 0.30, 0.59), (95.02, 0.27, 1.71), (95.06, 0.26, 2.81)),
    "smo": ((93.52, 0.41, 0.56), (94.78, 0.23, 1.67), (94.98, 0.22, 2.78)),
    "frank-wolfe": ((93.57, 0.37, 0.48), (94.74, 0.17, 1.40), (94.95, 0.18, 2.32)),
}


def main() -> None:
    options_parser = parser(__doc__, "sector")
    options_parser.add_argument("--splits", type=int, metavar="N", help="(10)")
    options_parser.add_argument("--max-passes", type=int, metavar="N", help="to find the maximum (2000)")
    options = options_parser.parse_args()
    pairs = choose_pairs(options_parser, options, "satimage")
    splits = options.splits or (2 if options.quick else 10)
    options.max_passes = options.max_passes or (50 if options.quick else 2000)

    results: dict[str, Any] = {}
    for pair in pairs:
        name = pair.name.split(".")[0]
        tasks = split(load_task(pair, C=1.0), splits)
        for solver in SOLVERS:  # so that all are compiled before any is timed
            fit_task(tasks[0], loss="cs", solver=solver, dtype="float64", passes=1)
        table = {(passes, solver): [] for passes in PASSES for solver in SOLVERS}
        for task in tasks:
            for (passes, solver), found in table.items():
                result, coef = fit_task(task, loss="cs", solver=solver, dtype="float64", passes=passes)
                found.append((task.accuracy(coef), result.seconds))
        published = PUBLISHED if name == "sector" else {}
        rows = [row_of(*key, found, published.get(key[1])) for key, found in table.items()]
        print_table(
            f"{name}: accuracy in per cent after passes over {splits} splits 4:1, C = 1, and seconds",
            ["passes", "solver", "published", "ours", "published, s", "ours, s"],
            [list(row.values()) for row in rows],
        )
        results[name] = {"table": rows, "figure": figure(tasks[0], options)}
    say_stand_ins(pairs, "Amazon7 and RCV1 have no stand-in, and news20 is a smaller version of the paper's")
    finish(options, results)


def split(task: Task, times: int) -> list[Task]:
    """All rows, split 4:1 within the classes."""
    from sklearn.model_selection import StratifiedShuffleSplit

    X, y = sp.vstack([task.X, task.X_test], "csr"), np.concatenate([task.y, task.y_test])
    ways = StratifiedShuffleSplit(times, test_size=0.2, random_state=0).split(X, y)
    return [task._replace(X=X[a], y=y[a], X_test=X[b], y_test=y[b]) for a, b in ways]


def row_of(passes: int, solver: str, found: list[tuple[float, float]], published: Any) -> dict[str, Any]:
    """A line of the table: published and ours."""
    accuracies, seconds = zip(*found, strict=True)
    theirs = published and published[PASSES.index(passes)]
    return {
        "passes": passes,
        "solver": solver,
        "published": theirs and f"{theirs[0]:.2f} ± {theirs[1]:.2f}",
        "ours": f"{100 * mean(accuracies):.2f} ± {100 * stdev(accuracies):.2f}",
        "published_seconds": theirs and theirs[2],
        "seconds": mean(seconds),
    }


def figure(task: Task, options: Any) -> dict[str, Any]:
    """The dual of each solver after each pass."""
    last = 5 if options.quick else FIGURE[-1]
    settings = {"loss": "cs", "dtype": "float64"}
    long = train(task, passes=options.max_passes, tol=TOL, inner_passes="auto", **settings)
    maximum = max(record["dual"] for record in long)
    curves = {}
    for solver in SOLVERS:
        history = train(task, solver=solver, passes=last, gap="none", **settings)
        curves[solver] = [
            {"short": 1 - record["dual"] / maximum, "seconds": total(history[:n])}
            for n, record in enumerate(history, 1)
        ]
    shown = [passes for passes in FIGURE if passes <= last]
    print_table(
        "the dual below its maximum, relative, after passes, and seconds of training by then",
        ["", *map(str, shown)],
        [
            [solver, *(f"{curve[n - 1]['short']:.1e} in {curve[n - 1]['seconds']:.2f} s" for n in shown)]
            for solver, curve in curves.items()
        ],
    )
    return {"maximum": maximum, "curves": curves}


if __name__ == "__main__":
    main()
