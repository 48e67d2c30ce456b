"""Partial linearization, Frank-Wolfe and exponentiated gradient, as in Mohapatra et al. 2016, Figure 1.

Crammer-Singer's dual by the block solvers bcpl (temperature 0.01, the paper's), frank-wolfe (BCFW) and oeg
(the best of eight temperatures, as the paper chooses it), in float64 and without inner passes. The paper's
λ is 1 / (n C). Shown is how far the dual is from its maximum, relative to it, after some passes; newton, the
exact solver, is there to compare with, and its long run gives the maximum. The paper has curves only, of
other data sets; its statement is the order BCPL, BCFW, OEG.
"""

from __future__ import annotations

import itertools
from functools import partial

import block_solvers  # noqa: F401 - adds them to the loss cs
from paper import (
    Data,
    MaxPasses,
    Out,
    Sets,
    best_dual,
    choose,
    load_task,
    order_of,
    print_shortfalls,
    say_stand_ins,
    start,
    train,
    write_json,
)

TEMPERATURE = 0.01  # of bcpl
OEG_TEMPERATURES = (100, 10, 1, 0.1, 0.01, 0.001, 1e-5, 1e-10)


def main(
    data: Data,
    sets: Sets = "dna,satimage,letter,sector",
    lambdas: str = "0.1,0.01,0.001",
    passes: int = 50,
    max_passes: MaxPasses = 2000,
    out: Out = None,
) -> None:
    pairs, results = choose(data, sets), []
    for pair, lambda_ in itertools.product(pairs, map(float, lambdas.split(","))):
        task = load_task(pair)
        task = task._replace(C=1 / (lambda_ * len(task.y)))
        run = partial(train, task, loss="cs", dtype="float64", passes=passes, gap="none")
        runs = {
            "newton": run(solver="newton"),
            "bcpl": run(solver="bcpl", temperature=TEMPERATURE),
            "frank-wolfe": run(solver="frank-wolfe"),
        }
        tried = {t: run(solver="oeg", temperature=t) for t in OEG_TEMPERATURES}
        chosen = max(tried, key=lambda temperature: tried[temperature][-1]["dual"])
        oeg = f"oeg, τ = {chosen:g}"
        runs[oeg] = tried[chosen]
        found = print_shortfalls(f"{pair.name}, λ = {lambda_:g}", runs, best_dual(task, max_passes))
        order = order_of(runs, "bcpl", "frank-wolfe", oeg)
        print(f"  {order}")
        results.append({"set": pair.name, "lambda": lambda_, "order": order, **found})
    names = ", ".join(pair.name for pair in pairs)
    say_stand_ins(pairs, f"{names} stand in for images (PASCAL VOC, CIFAR-10) and gestures (MSRC-12)")
    write_json(out, {"results": results})


if __name__ == "__main__":
    start(main, __doc__)
