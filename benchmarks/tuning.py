"""`streamsvm.tune` over 10 values of C, against cold trainings and GridSearchCV over LinearSVC.

In memory, on LIBSVM's data sets in the folder that STREAMSVM_DATA names. Processor seconds; the accuracy is
that on the test set, of a model of 3 passes with the chosen C, and of the best C in the grid (which only the
test set knows). Kernels are loaded before.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from estimators import SETS
from sklearn.datasets import load_svmlight_files
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from streamsvm import fit, tune

TOLERANCE = 1e-2  # of the cold trainings
PLAIN = {"transform": "none"}  # no intercept


def accuracy(model, X, y) -> float:
    return float((model.predict(X).astype(float) == y).mean())


def gaps_of_path(X, y, grid: list[float]) -> list[float]:
    """The relative gaps after 2 passes of each C of a path: of iterate or average, the smaller one."""
    path = ",".join(repr(C / grid[0]) for C in grid)
    ends = fit(X, y, C=grid[0], C_path=path, passes=2 * len(grid), gap="pass", **PLAIN).result.history[1::2]
    return [
        min(end[name] for name in ("relative_gap", "average_relative_gap") if name in end) for end in ends
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", default=["letter", "clinc150", "sector", "mnist"])
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--without-grid-search", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ["STREAMSVM_DATA"])
    warnings.simplefilter("ignore")
    for name in options.sets:
        X, y, X_test, y_test = load_svmlight_files([str(folder / file) for file in SETS[name]])
        for matrix in (X, X_test):
            matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
        tune(X[:500], y[:500], passes=1, **PLAIN)
        for how in ({"hold_out": "1/10"}, {"folds": options.folds}):
            began = time.process_time()
            found = tune(X, y, **how, **PLAIN)
            seconds = time.process_time() - began
            passes = sum(row["passes"] for row in found.tried)
            print(
                f"{name:10} {how!s:22} {passes:4} passes {seconds:8.2f} s  C {found.C:8.4g}  "
                f"{accuracy(found.model, X_test, y_test):.4f}",
                flush=True,
            )
        grid = [row["C"] for row in found.tried]
        for passes, tols in ((3, None), (200, gaps_of_path(X, y, grid)), (200, [TOLERANCE] * len(grid))):
            began = time.process_time()
            models = [
                fit(X, y, C=C, passes=passes, tol=tols and tols[at], gap=None if tols else "none", **PLAIN)
                for at, C in enumerate(grid)
            ]
            seconds = time.process_time() - began
            made = sum(model.result.passes for model in models)
            best = max(accuracy(model, X_test, y_test) for model in models)
            what = "cold, to a gap of 1 %" if tols else f"cold, {passes} passes"
            if tols and tols[0] != TOLERANCE:
                what = "cold, to path's gaps"
            print(
                f"{name:10} {what:22} {made:4} passes {seconds:8.2f} s  {'':10}  {best:.4f} (best)",
                flush=True,
            )
        if not options.without_grid_search:
            began = time.process_time()
            search = GridSearchCV(LinearSVC(), {"C": np.array(grid)}, cv=options.folds).fit(X, y)
            seconds = time.process_time() - began
            print(
                f"{name:10} {'GridSearchCV LinearSVC':22} {'':11} {seconds:8.2f} s  "
                f"C {search.best_params_['C']:8.4g}  {search.score(X_test, y_test):.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
