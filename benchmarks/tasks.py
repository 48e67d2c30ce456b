"""Data sets as stores and as matrices in memory, and training that is watched pass by pass."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from common import Pair
from streamsvm_converters import convert

from streamsvm import fit, open_store
from streamsvm.data.rows import Rows
from streamsvm.model.results import FitResult

History = list[dict[str, Any]]  # the reports of the passes


class Stores(NamedTuple):
    """A training and a test file as shuffled stores, and all of their rows in memory."""

    train: Path
    test: Path
    rows: Rows
    test_rows: Rows
    n_features: int
    n_classes: int

    @classmethod
    def create(cls, pair: Pair, folder: Path, *, dtype: str = "float32") -> Stores:
        train, test = folder / "train.zarr", folder / "test.zarr"
        convert([pair.train], train, dtype=dtype)
        convert([pair.test], test, like=train, unseen_label="keep", dtype=dtype)
        with open_store(train) as store, open_store(test) as test_store:
            rows, test_rows = store.rows(0, store.n_rows), test_store.rows(0, test_store.n_rows)
            return cls(train, test, rows, test_rows, store.n_features, store.n_classes)


class Task(NamedTuple):
    """Rows and class codes, shared by all trainers; a test label of -1 is one that training does not have."""

    X: sp.csr_matrix
    y: np.ndarray
    X_test: sp.csr_matrix
    y_test: np.ndarray
    n_classes: int
    C: float

    @classmethod
    def create(cls, stores: Stores, C: float) -> Task:
        def matrix(part: Rows) -> sp.csr_matrix:
            return sp.csr_matrix((part.data, part.indices, part.indptr), (part.n_rows, stores.n_features))

        rows, test = stores.rows, stores.test_rows
        return cls(matrix(rows), rows.labels, matrix(test), test.labels, stores.n_classes, C)

    def accuracy(self, coef: np.ndarray) -> float:
        """Of the weights `coef`, shape (n_features, n_classes), on the test rows."""
        return float(np.mean(np.argmax(self.X_test @ coef, axis=1) == self.y_test))


def load_task(pair: Pair, *, C: float = 1.0, dtype: str = "float64") -> Task:
    """Read a pair of files by way of stores in a temporary folder, which shuffles them."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-") as folder:
        return Task.create(Stores.create(pair, Path(folder), dtype=dtype), C)


def usual_C(pair: Pair, n_classes: int) -> float:
    """1 above 26 classes and 1/16 otherwise; 1e-4 for pendigits, whose features are not scaled."""
    if n_classes > 26:
        return 1.0
    return 1e-4 if pair.name.startswith("pendigits") else 1 / 16


# Last iterates, one visit of each row a pass, and no intercept.
_PLAIN = {"average": False, "inner_passes": 0, "transform": "none"}


def fit_task(task: Task, **settings: Any) -> tuple[FitResult, np.ndarray]:
    """Train on the rows in memory; return the result and the coefficients, shape (n_features, n_classes).

    Parameters
    ----------
    task : Task
    **settings
        As `streamsvm.fit` takes them. By default the last iterate counts, inner passes are not made, and the
        gap is not measured.
    """
    model = fit(task.X, task.y, **{"C": task.C, "gap": "none", **_PLAIN, **settings})
    return model.result, model.weights()


class _Enough(Exception):
    """Training has come as far as it was to come."""


def watch(fit: Callable[..., Any], *, until: Callable[[History], bool] | None = None) -> History:
    """Call ``fit(report=...)``, until the reports of its passes are enough; return them."""
    history: History = []

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "pass":
            history.append(event)
            if until is not None and until(history):
                raise _Enough

    with contextlib.suppress(_Enough):
        fit(report=report)
    return history


def train(task: Task, *, until: Callable[[History], bool] | None = None, **settings: Any) -> History:
    """Train as `fit_task` does, but with the gap after each pass; return the reports of the passes."""
    return watch(partial(fit_task, task, **{"gap": "pass", **settings}), until=until)


def total(history: History, less: str | None = None) -> float:
    """Training seconds of the passes, less another time if one is named."""
    return sum(record["seconds"] - (record[less] if less else 0.0) for record in history)


def passes_to(history: History, gap: float) -> int | None:
    """The number of passes until the gap was at most `gap`; None if it never was."""
    return next((n for n, record in enumerate(history, 1) if record["gap"] <= gap), None)
