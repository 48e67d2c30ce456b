"""Rows with several of thousands of labels, as they are used: ours, and PECOS' linear model.

See README.md. Rows are generated, and in memory; everything runs in one thread.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import Losses, Out, print_records, start, write_json
from measured import size_of
from sklearn.metrics import f1_score, label_ranking_loss
from threadpoolctl import threadpool_limits
from typer import Option

from streamsvm import fit

BY_SCORE = ("ovr", "ovr2")  # a label is a class with a score above 0
TOP = (1, 3, 5)
Measures = dict[str, Any]


class Task(NamedTuple):
    """Rows in float32, and indicators of their labels."""

    X: sp.csr_matrix
    Y: sp.csr_matrix
    X_test: sp.csr_matrix
    Y_test: sp.csr_matrix


def main(
    losses: Losses = "ovr2,ovr,ww,cs",
    rows: Annotated[int, Option(help="to train on")] = 30_000,
    classes: int = 4000,
    passes: int = 3,
    C: Annotated[float, Option("--C")] = 1.0,
    pecos: Annotated[str | None, Option(help="interpreter that has PECOS, to compare with it")] = None,
    out: Out = None,
) -> None:
    task = generate(rows, classes)
    with threadpool_limits(1):
        results = measure(task, losses.split(","), C, passes, pecos)
    write_json(out, {"results": results})


def generate(n: int, k: int, *, features: int = 30_000, own_words: int = 30) -> Task:
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
    return Task(X[:n], Y[:n], X[n:], Y[n:])


def measure(task: Task, losses: list[str], C: float, passes: int, pecos: str | None) -> list[Measures]:
    """Ours with the defaults, and PECOS as a tree of classes and as one-vs-rest; times against the first."""
    found = []
    constant = task._replace(X=with_constant(task.X), X_test=with_constant(task.X_test))
    of_one = {f"{loss}, constant feature": (loss, constant) for loss in losses if loss in BY_SCORE}
    for name, (loss, rows) in ({loss: (loss, task) for loss in losses} | of_one).items():
        settings: dict[str, Any] = {"loss": loss, "C": C, "gap": "none", "transform": "none"}
        fit(rows.X[:50], rows.Y[:50], passes=1, **settings)  # compiles
        model, seconds = timed(lambda X=rows.X, s=settings: fit(X, task.Y, passes=passes, **s))
        coef = model.weights()
        measures = measures_of(task.Y_test, rows.X_test @ coef, decides=loss in BY_SCORE)
        with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
            model.save(Path(folder) / "model")
            size = {"MB": size_of(Path(folder)) / 1e6}
        found.append({"trainer": name} | measures | seconds | size)
    if pecos:
        found += measure_pecos(task, C, pecos)
    for row in found:
        row["time"], row["CPU time"] = (row[n] / found[0][n] for n in ("seconds", "CPU seconds"))
    n, k = task.Y.shape
    print_records(
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
            found.append(measures | way | {"MB": size_of(Path(folder) / str(number)) / 1e6})
    return found


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


if __name__ == "__main__":
    start(main, __doc__)
