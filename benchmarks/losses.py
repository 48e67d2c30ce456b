"""What each loss costs: a pass against one of Weston-Watkins, and training against others' solvers.

See README.md. Rows are in memory, in float32, and everything runs in one thread.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from statistics import median
from typing import Annotated, Any

import numpy as np
from common import Data, Losses, Out, Pair, Sets, choose, print_table, start, write_json
from others import liblinear_weights
from tasks import Task, fit_task, load_task, total, train, usual_C
from threadpoolctl import threadpool_limits
from typer import Option

from streamsvm.errors import StreamsvmError
from streamsvm.losses import ROW_LOSSES as LOSSES

ALL = ",".join(LOSSES)
STEADY, PASSES = 3, 7  # the first pass to be timed, and the last
GAP = 1e-2
OURS = {"tol": GAP, "gap": "pass", "passes": 1000, "average": True, "inner_passes": "auto"}  # the defaults
LIBLINEAR = {"cs": "-s 4", "ovr": "-s 3", "ovr2": "-s 1"}  # the same problems as ours
LIBLINEAR_STOPS = (10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 1e-3, 1e-4)
SKLEARN_ITERATIONS = (1, 2, 3, 4, 6, 8, 10, 13, 16, 20, 25, 32, 40, 50, 64, 80, 100, 150, 250, 500, 1000)
LBFGS_VECTORS = 30  # of the size of the weights, in float64: what SciPy's L-BFGS keeps
Reference = tuple[str, Callable[[], tuple[np.ndarray, float]]]  # its name, and a training


def main(
    data: Data,
    sets: Sets = "letter,mnist,sector,news20,clinc150,wn1000",
    losses: Losses = ALL,
    against: Annotated[bool, Option("--against", help="compare with LIBLINEAR and scikit-learn")] = False,
    repeat: Annotated[int, Option(help="turns, of which medians")] = 3,
    C: Annotated[float | None, Option("--C", help="by default 1 above 26 classes, else 1/16")] = None,
    out: Out = None,
) -> None:
    chosen = [name for name in LOSSES if name in losses.split(",")]
    measure = measure_against if against else measure_passes
    with threadpool_limits(1):
        results = {pair.name: measure(load(pair, C), chosen, repeat) for pair in choose(data, sets)}
    print_summary(results, against=against)
    write_json(out, {"sets": results})


def load(pair: Pair, C: float | None) -> Task:
    """The rows but for those of norm zero, which LIBLINEAR would count in its objective."""
    task = load_task(pair, dtype="float32")
    some = np.diff(task.X.indptr) > 0
    task = task._replace(X=task.X[some], y=task.y[some], C=C or usual_C(pair, task.n_classes))
    print(f"\n{pair.name}: {len(task.y):,} rows, {task.n_classes:,} classes, C {task.C:g}", flush=True)
    return task


# -- a pass -------------------------------------------------------------------------------------------


def measure_passes(task: Task, losses: list[str], repeat: int) -> dict[str, Any]:
    """Seconds of a steady pass of each loss, and its ratio to that of Weston-Watkins in the same turn."""
    turns: dict[str, list[float]] = {}
    for turn in range(repeat + 1):  # of which the first compiles
        for loss in dict.fromkeys(["ww", *losses]):
            try:
                history = train(task, loss=loss, gap="none", passes=PASSES if turn else 1)
            except StreamsvmError as error:
                if not turn:
                    print(f"  {loss} is left out: {error}")
                continue
            if turn:
                steady = [total([record], "waited_seconds") for record in history[STEADY - 1 :]]
                turns.setdefault(loss, []).append(median(steady))
    found = {
        loss: {
            "seconds": median(seconds),
            "ratio": median(a / b for a, b in zip(seconds, turns["ww"], strict=True)),
        }
        for loss, seconds in turns.items()
    }
    print_table(
        f"a pass of each loss, without inner passes, from the third on (medians of {repeat} turns)",
        ["", "ms", "ratio to ww"],
        [[loss, 1e3 * row["seconds"], row["ratio"]] for loss, row in found.items()],
    )
    return found


# -- against others -----------------------------------------------------------------------------------


def measure_against(task: Task, losses: list[str], repeat: int) -> dict[str, Any]:
    """Seconds to a relative gap, ours and of a reference solver with the same problem, in turns."""
    found = {}
    for loss in (loss for loss in losses if loss in (*LIBLINEAR, "logistic")):
        try:
            fit_task(task, loss=loss, **OURS | {"passes": 1})  # compiles
        except StreamsvmError as error:
            print(f"  {loss} is left out: {error}")
            continue
        bound, bound_gap = lower_bound(task, loss)
        name, reference, tried = fastest_reference(task, loss, bound)
        turns = []
        for _ in range(repeat):
            begin = time.perf_counter()
            result, coef = fit_task(task, loss=loss, **OURS)
            whole, (_, theirs) = time.perf_counter() - begin, reference() if reference else (None, None)
            turns.append((result.seconds, whole, theirs))
        ours, whole, theirs = (median(t) if t[0] is not None else None for t in zip(*turns, strict=True))
        found[loss] = {
            "passes": result.passes,
            "ours": ours,
            "whole": whole,
            "ours_gap": relative_gap(task, coef, loss, bound),
            "reference": name,
            "theirs": theirs,
            "speed_up": theirs and median(t[2] / t[0] for t in turns),
            "whole_speed_up": theirs and median(t[2] / t[1] for t in turns),
            "bound_gap": bound_gap,
            "tried": tried,
        }
    print_table(
        f"seconds to a relative gap of {GAP:g}, rows in memory, one thread (medians of {repeat} turns)\n"
        "  ours: training; whole: all of fit, which measures its gap after each pass; gap: of our weights\n"
        "  to the bound, the dual of a long run, whose own gap is the last column",
        ["", "passes", "ours", "whole", "gap", "reference", "theirs", "times", "of whole", "bound's gap"],
        [
            [
                loss, row["passes"], row["ours"], row["whole"], f"{row['ours_gap']:.1e}", row["reference"],
                row["theirs"], row["speed_up"], row["whole_speed_up"], f"{row['bound_gap']:.0e}",
            ]
            for loss, row in found.items()
        ],
    )  # fmt: skip
    return found


def lower_bound(task: Task, loss: str) -> tuple[float, float]:
    """The largest dual of a long run in float64, and the relative gap of that run."""
    settings = {"loss": loss, "tol": GAP / 100, "passes": 500, "inner_passes": "auto", "dtype": "float64"}
    history = train(task, **settings)
    dual, primal = max(r["dual"] for r in history), min(r["primal"] for r in history)
    return dual, (primal - dual) / primal


def fastest_reference(task: Task, loss: str, bound: float) -> tuple[str, Any, list[dict[str, Any]]]:
    """Of each kind of reference the loosest stopping test that comes near enough; the fastest of these."""
    tried, near = [], []
    for ladder in [liblinear_ladder(task, loss)] if loss in LIBLINEAR else sklearn_ladders(task):
        for name, solve in ladder:
            coef, seconds = solve()
            gap = relative_gap(task, coef, loss, bound)
            tried.append({"reference": name, "gap": gap, "seconds": seconds})
            if gap <= GAP:
                near.append((seconds, name, solve))
                break
    if not near:
        return "none came near enough", None, tried
    _, name, solve = min(near, key=lambda found: found[0])
    return name, solve, tried


def liblinear_ladder(task: Task, loss: str) -> Iterator[Reference]:
    """LIBLINEAR by dual coordinate descent, with its stopping test more and more strict."""
    for stop in LIBLINEAR_STOPS:
        options = f"{LIBLINEAR[loss]} -e {stop:g}"
        yield f"LIBLINEAR {options}", lambda options=options: liblinear_weights(task, options)


def sklearn_ladders(task: Task) -> Iterator[Iterator[Reference]]:
    """scikit-learn's LogisticRegression in both dtypes, by L-BFGS if that has the memory.

    Its tolerance stops either at once or late, so the ladder is of numbers of iterations.
    """
    n_weights = task.X.shape[1] * task.n_classes
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    solver = "lbfgs" if 8 * LBFGS_VECTORS * n_weights < memory / 2 else "newton-cg"
    for dtype in ("float64", "float32"):
        X = task.X.astype(dtype)
        yield (
            (
                f"sklearn {solver} {dtype}, {most} iterations",
                lambda X=X, most=most: sklearn(task, X, solver, most),
            )
            for most in SKLEARN_ITERATIONS
        )


def sklearn(task: Task, X: Any, solver: str, most: int) -> tuple[np.ndarray, float]:
    """Multinomial logistic regression without intercept; the weights and the seconds of training."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=task.C, fit_intercept=False, solver=solver, tol=1e-12, max_iter=most)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it did not converge: the objective says how near it came
        model.fit(X, task.y)
    return model.coef_.T, time.perf_counter() - begin


def relative_gap(task: Task, coef: np.ndarray, loss: str, bound: float) -> float:
    """How far the primal of weights is above a lower bound, by NumPy and SciPy alone."""
    coef = np.asarray(coef, dtype=np.float64)
    value = 0.0
    for begin in range(0, len(task.y), 4096):
        X, y = task.X[begin : begin + 4096].astype(np.float64), task.y[begin : begin + 4096]
        value += loss_sum(X @ coef, y, loss)
    primal = np.vdot(coef, coef) / 2 + task.C * value
    return float((primal - bound) / primal)


def loss_sum(scores: np.ndarray, y: np.ndarray, loss: str) -> float:
    """The sum of the losses of rows, of which `scores` has shape (n, k)."""
    own = np.arange(len(y)), y
    if loss == "logistic":
        top = scores.max(axis=1)
        return float((np.log(np.exp(scores - top[:, None]).sum(axis=1)) + top - scores[own]).sum())
    if loss == "cs":
        short = 1 + scores - scores[own][:, None]
        short[own] = 0
        return float(short.max(axis=1).sum())
    signs = np.full(scores.shape, -1.0)
    signs[own] = 1
    short = np.maximum(1 - signs * scores, 0)
    return float((short if loss == "ovr" else short**2).sum())


def print_summary(results: dict[str, dict[str, Any]], *, against: bool) -> None:
    """One line for each loss, one column for each data set."""
    what = "speed_up" if against else "ratio"
    losses = dict.fromkeys(loss for found in results.values() for loss in found)
    print_table(
        "times faster than the reference" if against else "ratio of a pass to that of ww",
        ["", *results],
        [[loss, *(found.get(loss, {}).get(what) for found in results.values())] for loss in losses],
    )


if __name__ == "__main__":
    start(main, __doc__)
