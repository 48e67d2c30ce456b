"""Other trainers of linear multi-class models, on rows in memory; each is optional."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from tasks import Task


class Outcome(NamedTuple):
    """Accuracy on the test rows, and seconds."""

    accuracy: float
    training: float
    whole: float | None = None


def liblinear_weights(task: Task, options: str) -> tuple[np.ndarray, float]:
    """Train LIBLINEAR on three classes or more; return its weights and the seconds of training.

    The weights have the shape (n_features, n_classes).
    """
    from liblinear import liblinearutil

    problem = liblinearutil.problem(task.y.astype(np.float64), task.X.astype(np.float64))
    parameter = liblinearutil.parameter(f"{options} -c {task.C} -q")
    begin = time.perf_counter()
    model = liblinearutil.train(problem, parameter)
    seconds = time.perf_counter() - begin
    shape = model.get_nr_feature(), model.get_nr_class()
    coef = np.zeros((task.X.shape[1], task.n_classes))  # the last features may have no value
    coef[: shape[0], model.get_labels()] = np.ctypeslib.as_array(model.w, shape)
    return coef, seconds


def liblinear(task: Task) -> Outcome:
    """Crammer & Singer's SVM by dual coordinate descent, stopped by its own default test."""
    coef, seconds = liblinear_weights(task, "-s 4")
    return Outcome(task.accuracy(coef), seconds)


def sgd_classifier(task: Task) -> Outcome:
    """One-against-all hinge loss by averaged stochastic gradients, with the same weight of the loss."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(average=True, alpha=1 / (task.C * len(task.y)), fit_intercept=False, random_state=0)
    begin = time.perf_counter()
    model.fit(task.X, task.y)
    seconds = time.perf_counter() - begin
    return Outcome(float(np.mean(model.predict(task.X_test) == task.y_test)), seconds)


def vowpal_wabbit(task: Task, passes: int = 3) -> Outcome:
    """One-against-all hinge loss, its default online updates over rows parsed beforehand."""
    from vowpalwabbit import Workspace

    bits = max(18, int(np.ceil(np.log2(task.X.shape[1] * task.n_classes))))
    vw = Workspace(f"--oaa {task.n_classes} --loss_function hinge --noconstant -b {bits} --quiet")

    def examples(X: sp.csr_matrix, y: np.ndarray) -> list:
        ends = zip(X.indptr[:-1], X.indptr[1:], y + 1, strict=True)
        return [
            vw.example(f"{label} | " + " ".join(map("{}:{}".format, X.indices[a:b], X.data[a:b])))
            for a, b, label in ends
        ]

    train = examples(task.X, task.y)
    orders = [np.random.default_rng(seed).permutation(len(train)) for seed in range(passes)]
    begin = time.perf_counter()
    for order in orders:
        for i in order:
            vw.learn(train[i])
    seconds = time.perf_counter() - begin
    test = examples(task.X_test, np.maximum(task.y_test, 0))
    right = [vw.predict(example) - 1 == label for example, label in zip(test, task.y_test, strict=True)]
    for example in train + test:
        vw.finish_example(example)
    vw.finish()
    return Outcome(float(np.mean(right)), seconds)


OTHERS: dict[str, Callable[[Task], Outcome]] = {
    "LIBLINEAR -s 4": liblinear,
    "SGDClassifier, averaged": sgd_classifier,
    "Vowpal Wabbit --oaa, 3 passes": vowpal_wabbit,
}
