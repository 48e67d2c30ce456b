"""Test errors and densities of four formulations, as in Table B.1 of Alber et al. 2017.

The paper compares its solvers (D) of Lee-Lin-Wahba and Weston-Watkins with Shark's (S); for Crammer-Singer
and one-vs-rest it has other data sets only, so these figures are ours alone. Ours are last iterates in
float64 of the default engine, to a relative gap of 1e-3 or after --max-passes. The density is the share of
non-zero weights, the paper's "model density".
"""

from __future__ import annotations

import itertools

import numpy as np
from paper import (
    Data,
    MaxPasses,
    Out,
    Sets,
    Task,
    choose,
    fit_task,
    load_task,
    percent,
    print_table,
    say_stand_ins,
    start,
    write_json,
)

LOSSES = ("llw", "ww", "cs", "ovr")
COSTS = (0.1, 1.0, 10.0)
TOL = 1e-3
# By data set, loss and C: error and density of D, error and density of S, in per cent.
PUBLISHED = {
    ("letter", "llw"): [(87.04, 100, 87.04, 100), (87.24, 100, 87.24, 100), (61.91, 100, 87.24, 100)],
    ("letter", "ww"): [(28.25, 100, 28.26, 100), (29.04, 100, 29.03, 100), (28.92, 100, 28.93, 100)],
    ("satimage", "llw"): [(26.75, 100, 26.73, 100), (26.80, 100, 26.80, 100), (26.90, 100, 26.90, 100)],
    ("satimage", "ww"): [(15.80, 100, 15.80, 100), (15.47, 100, 15.53, 100), (15.96, 100, 16.00, 100)],
    ("news20", "llw"): [
        (29.23, 97.24, 29.23, 97.24),
        (22.97, 97.24, 22.97, 97.24),
        (16.15, 97.17, 16.15, 97.04),
    ],
    ("news20", "ww"): [
        (15.32, 51.16, 15.30, 49.72),
        (14.80, 44.74, 14.80, 42.70),
        (15.98, 45.97, 15.98, 43.47),
    ],
}
PAPERS_FEATURES = {"letter": "unit variance", "satimage": "unit variance", "news20": "rows of norm 1"}


def main(data: Data, sets: Sets = "satimage,letter", max_passes: MaxPasses = 1000, out: Out = None) -> None:
    pairs = choose(data, sets)
    settings = {"dtype": "float64", "inner_passes": "auto", "tol": TOL, "gap": "pass", "passes": max_passes}
    results = []
    for pair in pairs:
        name, task = pair.name, load_task(pair)
        variants = {"as they are": task}
        if how := PAPERS_FEATURES.get(name):
            variants[how] = scaled(task, how)
        for (features, variant), loss in itertools.product(variants.items(), LOSSES):
            for at, C in enumerate(COSTS):
                result, coef = fit_task(variant, loss=loss, C=C, **settings)
                as_published = PUBLISHED.get((name, loss)) if features == PAPERS_FEATURES.get(name) else None
                results.append(
                    {
                        "set": name,
                        "features": features,
                        "loss": loss,
                        "C": C,
                        "published": as_published[at] if as_published else None,
                        "error": 1 - variant.accuracy(coef),
                        "density": np.count_nonzero(coef) / coef.size,
                        "relative_gap": result.relative_gap,
                        "passes": result.passes,
                    }
                )
    print_table(
        f"test error and density of the weights in per cent; ours to a relative gap of {TOL:g},"
        f" or {max_passes} passes\n  published: D, the authors' solver, and S, Shark's",
        ["", "features", "loss", "C", *"DS", "ours", "D density", "S density", "ours", "rel. gap", "passes"],
        [
            [
                row["set"], row["features"], row["loss"], f"{row['C']:g}",
                *_published(row["published"], 0), percent(row["error"]),
                *_published(row["published"], 1), percent(row["density"]),
                f"{row['relative_gap']:.1e}", row["passes"],
            ]
            for row in results
        ],
    )  # fmt: skip
    print("  the paper scales letter and satimage to unit variance, and news20's rows to norm 1")
    print("  its LLW error of 61.91 on letter is not that of the optimum, as Shark's beside it shows")
    say_stand_ins(pairs)
    write_json(out, {"results": results})


def scaled(task: Task, how: str) -> Task:
    """The rows with each feature divided by its standard deviation in training, or each row by its norm."""
    from sklearn.preprocessing import StandardScaler, normalize

    if how == "rows of norm 1":
        return task._replace(X=normalize(task.X), X_test=normalize(task.X_test))
    scaler = StandardScaler(with_mean=False).fit(task.X)
    return task._replace(X=scaler.transform(task.X), X_test=scaler.transform(task.X_test))


def _published(row: tuple[float, ...] | None, part: int) -> list[str]:
    return ["-", "-"] if row is None else [f"{row[part]:.2f}", f"{row[part + 2]:.2f}"]


if __name__ == "__main__":
    start(main, __doc__)
