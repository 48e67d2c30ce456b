"""`StreamSVMClassifier` and `tune` against scikit-learn, in memory, all at their defaults.

Processor seconds, the least of some rounds in which all take turns, and accuracy on the test set. Kernels are
loaded before. With --tune the same values of C are compared: by `streamsvm.tune`, which makes one path over
them, on rows held out or folds, and by GridSearchCV.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from common import Data, Sets, choose, print_table, start
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC
from tasks import Task, load_task
from typer import Option

import streamsvm
from streamsvm.sklearn import StreamSVMClassifier

C_EXPONENTS = -7, 2  # of the values of C to choose from
Way = Callable[[Task], Any]  # trains, and returns what predicts


def fitted(make: Callable[..., Any], *args: Any, **options: Any) -> Way:
    return lambda task: make(*args, **options).fit(task.X, task.y)


def tuned(**options: Any) -> Way:
    grid = "2^{}:2^{}".format(*C_EXPONENTS)
    return lambda task: streamsvm.tune(task.X, task.y, C=grid, transform="none", **options).model


DEFAULTS = {
    "StreamSVMClassifier": fitted(StreamSVMClassifier),
    "without intercept": fitted(StreamSVMClassifier, fit_intercept=False),
    "LinearSVC": fitted(LinearSVC),
    "SGDClassifier": fitted(SGDClassifier),
    "LogisticRegression": fitted(LogisticRegression),
}
CHOOSING_C = {
    "tune, 1/10 held out": tuned(hold_out="1/10"),
    "tune, 5 folds": tuned(folds=5),
    "GridSearchCV, 5 folds": fitted(
        GridSearchCV, LinearSVC(), {"C": 2.0 ** np.arange(C_EXPONENTS[0], C_EXPONENTS[1] + 1)}, cv=5
    ),
}


def main(
    data: Data,
    sets: Sets = "mnist,letter,news20,sector,clinc150",
    tune: Annotated[bool, Option("--tune", help="compare ways to choose C")] = False,
    rounds: Annotated[int, Option(help="of which the fastest counts")] = 3,
    without: Annotated[list[str] | None, Option(help="a way to leave out; can be repeated")] = None,
) -> None:
    warnings.simplefilter("ignore")  # of those that do not converge at their defaults
    ways = {
        name: way for name, way in (CHOOSING_C if tune else DEFAULTS).items() if name not in (without or ())
    }
    for pair in choose(data, sets):
        task = load_task(pair)
        for matrix in (task.X, task.X_test):  # LinearSVC takes no others
            matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
        next(iter(ways.values()))(task._replace(X=task.X[:1000], y=task.y[:1000]))
        best: dict[str, tuple[float, float]] = {}
        for _ in range(rounds):
            for name, way in ways.items():
                if best.get(name, (0.0, 0.0))[0] > 60:  # once is enough
                    continue
                began = time.process_time()
                model = way(task)
                seconds = time.process_time() - began
                accuracy = float(np.mean(np.asarray(model.predict(task.X_test)) == task.y_test))
                best[name] = min(best.get(name, (np.inf, 0.0)), (seconds, accuracy))
        first = next(iter(best.values()))[0]
        print_table(
            pair.name,
            ["", "accuracy", "CPU s", "times the first"],
            [[name, accuracy, seconds, seconds / first] for name, (seconds, accuracy) in best.items()],
        )


if __name__ == "__main__":
    start(main, __doc__)
