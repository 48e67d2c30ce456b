"""Rows with several labels: against scikit-learn on few classes, and against PECOS on thousands.

See README.md. Rows are generated, and in memory; everything runs in one thread.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import print_table, write_json
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score, label_ranking_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from streamsvm import fit

LOSSES = "ovr2,ovr,ww,cs"
SAME_PROBLEM = {"ovr": "hinge", "ovr2": "squared_hinge"}  # as scikit-learn calls them
TOP = (1, 3, 5)
Measures = dict[str, Any]


class Task(NamedTuple):
    """Rows in float32, and indicators of their labels."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix

    @classmethod
    def split(cls, X: sp.csr_matrix, Y: sp.csr_matrix, n: int) -> Task:
        return cls(X[:n], Y[:n], X[n:], Y[n:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", metavar="A,B", default=LOSSES, help=f"losses ({LOSSES})")
    parser.add_argument("--rows", type=int, default=30_000, help="training rows of many classes (30,000)")
    parser.add_argument("--classes", type=int, default=4000, help="many classes (4,000)")
    parser.add_argument("--passes", type=int, default=3, help="passes over the rows of many classes (3)")
    parser.add_argument("--C", type=float, default=1.0, help="of many classes (1)")
    parser.add_argument("--pecos", metavar="PYTHON", help="interpreter that has PECOS, to compare with it")
    parser.add_argument("--quick", action="store_true", help="small data, to see that it works")
    parser.add_argument("--out", metavar="FILE", help="write the results as JSON, too")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.classes = 2000, 300
    losses = options.losses.split(",")
    with threadpool_limits(1):
        few = measure_few(losses, 500 if options.quick else 5000)
        task = many_classes(options.rows, options.classes)
        many = measure_many(task, losses, options.C, options.passes, options.pecos)
    write_json(options.out, {"options": vars(options), "few": few, "many": many})


# -- few classes, to the optimum ----------------------------------------------------------------------


def measure_few(losses: list[str], n: int) -> list[Measures]:
    """Ours and scikit-learn's one-vs-rest, which solves the problem of `ovr` or of `ovr2`."""
    X, Y = make_multilabel_classification(
        2 * n, 200, n_classes=20, n_labels=3, length=60, allow_unlabeled=True, random_state=0
    )
    X = sp.csr_matrix(X.astype(np.float32))
    X = X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))).tocsr().astype(np.float32)
    task, C = Task.split(X, sp.csr_matrix(Y), n), 1.0
    settings: dict[str, Any] = {"C": C, "dtype": "float64", "average": False, "transform": "none"}
    found = []
    for loss in losses:
        fit(task.X[:100], task.Y[:100], loss=loss, passes=1, **settings)  # compiles
        model, seconds = timed(
            lambda loss=loss: fit(task.X, task.Y, loss=loss, passes=1000, tol=1e-4, **settings)
        )
        coef = np.asarray(model.coef_.T)
        measures = {"loss": loss, "of": "streamsvm"} | few_measures(task, coef, loss, C) | seconds
        found.append(measures)
        if loss not in SAME_PROBLEM:
            continue
        machine = LinearSVC(
            loss=SAME_PROBLEM[loss], C=C, fit_intercept=False, dual=True, max_iter=10_000, random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            other, seconds = timed(lambda machine=machine: OneVsRestClassifier(machine).fit(task.X, task.Y))
        theirs = np.vstack([each.coef_ for each in other.estimators_]).T
        found.append({"loss": loss, "of": "scikit-learn"} | few_measures(task, theirs, loss, C) | seconds)
    show(
        f"{n:,} generated rows, {Y.shape[1]} classes, {Y.mean(axis=0).sum():.1f} labels a row, C {C:g}", found
    )
    return found


def few_measures(task: Task, coef: np.ndarray, loss: str, C: float) -> Measures:
    objective = None
    if loss in SAME_PROBLEM:
        signs = 2 * task.Y.toarray() - 1
        slacks = np.maximum(0, 1 - signs * (task.X.astype(float) @ coef))
        objective = 0.5 * (coef**2).sum() + C * (slacks if loss == "ovr" else slacks**2).sum()
    scores = task.X_test @ coef
    return {"objective": objective} | measures_of(task.Y_test, scores, decides=loss in SAME_PROBLEM)


# -- thousands of classes, as they are used -----------------------------------------------------------


def many_classes(n: int, k: int, *, features: int = 30_000, own_words: int = 30) -> Task:
    """Short texts as tf-idf, `n` to train and up to 5,000 to test.

    A row's words come from those of its labels and from all words, half from each on average. Words and
    labels follow Zipf's law: the label of rank r has a share of 1 / (r + 10). A row has one label and a
    Poisson number of others. Labels of one group share words, as do those of real subjects.
    """
    n_all = n + min(n, 5000)
    rng = np.random.default_rng(0)
    word_shares = 1 / (np.arange(features) + 3.0)
    word_shares /= word_shares.sum()
    label_shares = 1 / (np.arange(k) + 10.0)
    label_shares /= label_shares.sum()
    group_of = rng.permutation(k) // 20
    group_words = rng.integers(features, size=(-(-k // 20), own_words))
    words_of = np.hstack([rng.integers(features, size=(k, own_words)), group_words[group_of]])
    numbers = 1 + rng.poisson(1.5, n_all)
    label_of = rng.choice(k, size=int(numbers.sum()), p=label_shares)
    row_of = np.repeat(np.arange(n_all), numbers)
    lengths = rng.poisson(30, n_all) + 5
    of_labels = rng.binomial(lengths, 0.5)
    row_of_word = np.repeat(np.arange(n_all), of_labels)
    begins = np.concatenate([[0], np.cumsum(numbers)[:-1]])
    label = label_of[begins[row_of_word] + rng.integers(numbers[row_of_word])]
    topical = words_of[label, rng.integers(words_of.shape[1], size=len(label))]
    others = lengths - of_labels
    background = rng.choice(features, size=int(others.sum()), p=word_shares)
    counts = sp.csr_matrix(
        (
            np.ones(len(topical) + len(background)),
            (
                np.concatenate([row_of_word, np.repeat(np.arange(n_all), others)]),
                np.concatenate([topical, background]),
            ),
        ),
        (n_all, features),
    )
    counts.sum_duplicates()
    in_rows = np.bincount(counts[:n].indices, minlength=features)
    X = counts.multiply(np.log((n + 1) / (in_rows + 1)) + 1).tocsr()
    X = X.multiply(1 / np.sqrt(X.multiply(X).sum(axis=1))).tocsr().astype(np.float32)
    X.sort_indices()
    Y = sp.csr_matrix((np.ones(len(label_of), np.float32), (row_of, label_of)), (n_all, k))
    Y.sum_duplicates()
    Y.data[:] = 1
    return Task.split(X, Y, n)


def measure_many(task: Task, losses: list[str], C: float, passes: int, pecos: str | None) -> list[Measures]:
    """Ours with the defaults, and PECOS as a tree of classes and as one-vs-rest; times against the first."""
    found = []
    constant = task._replace(X=with_constant(task.X), X_test=with_constant(task.X_test))
    of_one = {f"{loss}, constant feature": (loss, constant) for loss in losses if loss in SAME_PROBLEM}
    for name, (loss, rows) in ({loss: (loss, task) for loss in losses} | of_one).items():
        settings: dict[str, Any] = {"loss": loss, "C": C, "gap": "none", "transform": "none"}
        fit(rows.X[:50], rows.Y[:50], passes=1, **settings)  # compiles
        model, seconds = timed(lambda X=rows.X, s=settings: fit(X, task.Y, passes=passes, **s))
        coef = model.weights()
        measures = measures_of(task.Y_test, rows.X_test @ coef, decides=loss in SAME_PROBLEM)
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            model.save(Path(folder) / "model")
            size = {"MB": folder_bytes(Path(folder)) / 1e6}
        found.append({"trainer": name} | measures | seconds | size)
    if pecos:
        found += measure_pecos(task, C, pecos)
    for row in found:
        row["time"], row["CPU time"] = (row[n] / found[0][n] for n in ("seconds", "CPU seconds"))
    n, k = task.Y.shape
    show(
        f"{n:,} generated rows, {k:,} classes, {task.Y.nnz / n:.1f} labels a row, "
        f"{task.X.nnz / n:.0f} of {task.X.shape[1]:,} features, C {C:g}, {passes} passes, averaged",
        found,
    )
    return found


def with_constant(X: sp.csr_matrix) -> sp.csr_matrix:
    """Another feature, 1 in each row: its coefficients are intercepts, regularised as the others."""
    return sp.csr_matrix(sp.hstack([X, np.ones((X.shape[0], 1), X.dtype)]))


def measure_pecos(task: Task, C: float, python: str) -> list[Measures]:
    """PECOS' linear model, by an interpreter that has it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        for name in ("X", "Y", "X_test"):
            sp.save_npz(Path(folder) / f"{name}.npz", getattr(task, name), compressed=False)
        here = Path(__file__).with_name("train_pecos.py")
        subprocess.run([python, here, folder, str(C)], check=True)
        for number, way in enumerate(json.loads((Path(folder) / "ways.json").read_text())):
            given = sp.load_npz(Path(folder) / f"{number}.npz").tocsr()
            scores = np.full(given.shape, -np.inf, np.float32)
            scores[np.repeat(np.arange(given.shape[0]), np.diff(given.indptr)), given.indices] = given.data
            measures = {"trainer": f"PECOS, {way.pop('name')}"}
            measures |= measures_of(task.Y_test, scores, decides=way.pop("decides"))
            found.append(measures | way | {"MB": folder_bytes(Path(folder) / str(number)) / 1e6})
    return found


# -- what is measured ---------------------------------------------------------------------------------


def measures_of(Y: sp.csr_matrix, scores: np.ndarray, *, decides: bool) -> Measures:
    """By scikit-learn, of the scores and of predicted sets: as many of the best as rows have on average.

    If the score `decides`, another set has the classes with scores above 0. Without a score, -inf, classes
    come last, and there is no ranking loss.
    """
    own = Y.toarray().astype(bool)
    n_labels = round(own.sum(axis=1).mean())
    best = np.argsort(-scores, axis=1, kind="stable")[:, : max(n_labels, *TOP)]
    hits = np.take_along_axis(own, best, axis=1)
    measures: Measures = {f"P@{k}": float(hits[:, :k].mean()) for k in TOP}
    all_scored = np.isfinite(scores).all()
    measures["ranking loss"] = float(label_ranking_loss(own, scores)) if all_scored else None
    top = np.zeros_like(own)
    np.put_along_axis(top, best[:, :n_labels], True, axis=1)
    occurs = own.any(axis=0)  # the F1 of other classes would count as 0
    for name, sets in {f"top {n_labels}": top, **({"above 0": scores > 0} if decides else {})}.items():
        both = sp.csr_matrix(own[:, occurs]), sp.csr_matrix(sets[:, occurs])
        for average in ("micro", "macro"):
            measures[f"{average} F1, {name}"] = float(f1_score(*both, average=average, zero_division=0))
    return measures


def timed(train: Callable[[], Any]) -> tuple[Any, Measures]:
    """What a training returns, and its seconds by the clock and of all its threads."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = train()
    return result, {
        "seconds": time.perf_counter() - begin,
        "CPU seconds": time.process_time() - begin_cpu,
    }


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def show(title: str, rows: list[Measures]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print_table(title, columns, [[row.get(name) for name in columns] for row in rows])


if __name__ == "__main__":
    main()
