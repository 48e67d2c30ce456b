"""Partial linearization, Frank-Wolfe and exponentiated gradient, as in Mohapatra et al. 2016, Figure 1.

Crammer-Singer's dual by the block solvers bcpl (temperature 0.01, the paper's), frank-wolfe (BCFW) and oeg
(the best of eight temperatures, as the paper chooses it), in float64 and without inner passes. The paper's
λ is 1 / (n C). Shown is how far the dual is from its maximum, relative to it, after some passes; newton, the
exact solver, is there to compare with, and its long run gives the maximum. The paper has curves only, of
other data sets; its statement is the order BCPL, BCFW, OEG.
"""

from __future__ import annotations

import itertools
from typing import Any

from paper import (
    History,
    Task,
    choose_pairs,
    finish,
    load_task,
    parser,
    print_table,
    say_stand_ins,
    total,
    train,
)

LAMBDAS = (0.1, 0.01, 0.001)
AFTER = (1, 2, 5, 10, 20, 50)  # passes
TEMPERATURE = 0.01  # of bcpl
OEG_TEMPERATURES = (100, 10, 1, 0.1, 0.01, 0.001, 1e-5, 1e-10)
TOL = 1e-6  # relative gap of the run that finds the maximum


def main() -> None:
    options_parser = parser(__doc__, "dna,satimage,letter,sector")
    options_parser.add_argument("--max-passes", type=int, metavar="N", help="to find the maximum (2000)")
    options = options_parser.parse_args()
    pairs = choose_pairs(options_parser, options, "dna,satimage")
    after = [passes for passes in AFTER if passes <= (5 if options.quick else AFTER[-1])]
    options.max_passes = options.max_passes or (50 if options.quick else 2000)

    results = []
    for pair, lambda_ in itertools.product(pairs, (0.01,) if options.quick else LAMBDAS):
        task = load_task(pair)
        task = task._replace(C=1 / (lambda_ * len(task.y)))
        maximum = best_dual(task, options.max_passes)
        runs = {
            "newton": run(task, after[-1], solver="newton"),
            "bcpl": run(task, after[-1], solver="bcpl", temperature=TEMPERATURE),
            "frank-wolfe": run(task, after[-1], solver="frank-wolfe"),
        }
        tried = {t: run(task, after[-1], solver="oeg", temperature=t) for t in OEG_TEMPERATURES}
        chosen = max(tried, key=lambda temperature: tried[temperature][-1]["dual"])
        runs[f"oeg, τ = {chosen:g}"] = tried[chosen]
        short = {solver: [1 - record["dual"] / maximum for record in run] for solver, run in runs.items()}
        below = list(zip(*itertools.islice(short.values(), 1, None), strict=True))  # bcpl, frank-wolfe, oeg
        found: dict[str, Any] = {
            "set": pair.name.split(".")[0],
            "lambda": lambda_,
            "maximum": maximum,
            "short": short,
            "seconds": {
                solver: [total(run[:n]) for n in range(1, len(run) + 1)] for solver, run in runs.items()
            },
            "bcpl_above_frank_wolfe": sum(a < b for a, b, _ in below),
            "frank_wolfe_above_oeg": sum(b < c for _, b, c in below),
            "passes": len(below),
        }
        results.append(found)
        print_table(
            f"{found['set']}, λ = {lambda_:g}: dual below its maximum, relative, after passes\n"
            f"  BCPL above BCFW in {found['bcpl_above_frank_wolfe']} of {len(below)} passes,"
            f" BCFW above OEG in {found['frank_wolfe_above_oeg']}",
            ["", *map(str, after), "seconds"],
            [
                [solver, *(f"{values[n - 1]:.1e}" for n in after), found["seconds"][solver][-1]]
                for solver, values in short.items()
            ],
        )
    names = ", ".join(pair.name.split(".")[0] for pair in pairs)
    say_stand_ins(pairs, f"{names} stand in for images (PASCAL VOC, CIFAR-10) and gestures (MSRC-12)")
    finish(options, results)


def run(task: Task, passes: int, **settings: Any) -> History:
    return train(task, loss="cs", dtype="float64", passes=passes, gap="none", **settings)


def best_dual(task: Task, passes: int) -> float:
    """The maximum of the dual, to a relative gap of 1e-6 or as near as the passes come."""
    history = train(task, loss="cs", dtype="float64", passes=passes, tol=TOL, inner_passes="auto")
    return max(record["dual"] for record in history)


if __name__ == "__main__":
    main()
