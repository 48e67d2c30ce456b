"""Test accuracy of `streamsvm.fit` and of other trainers, all by their defaults.

Others get the preparation that their users give: cells are normalised and log1p, tables are standardised. A
star marks sets where our accuracy is more than one standard error below the best of LinearSVC, LIBLINEAR and
CellTypist. Cells need scanpy; LIBLINEAR and CellTypist are compared if they are installed.
"""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import sklearn.datasets
from common import Data, Pair, choose, print_records, start
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from tasks import load_task
from typer import Option

import streamsvm

CELLS = {"pbmc": 0, "pbmc, 165 genes missing": 165}
TABLES = ("wine", "breast_cancer", "iris", "digits")
FILES = "letter,news20,satimage,sector,clinc150,dna,pendigits"
OURS, HELD_AGAINST = "streamsvm", ("LinearSVC", "LIBLINEAR -s 4", "CellTypist")


class Split(NamedTuple):
    """Rows to train on and to test on, as others take them; and trainers that take data of their own kind."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    trainers: dict[str, Callable[[], float]]  # each returns the accuracy on the test rows

    def accuracies(self) -> dict[str, float]:
        others = {"LinearSVC": LinearSVC, "LogisticRegression": LogisticRegression}
        found = {name: train() for name, train in self.trainers.items()}
        for name, kind in others.items():
            found[name] = float(kind().fit(self.X, self.y).score(self.X_test, self.y_test))
        if importlib.util.find_spec("liblinear"):
            found["LIBLINEAR -s 4"] = self._liblinear()
        return found

    def _liblinear(self) -> float:
        from liblinear import liblinearutil

        classes, codes = np.unique(self.y, return_inverse=True)
        X, X_test = (sparse.csr_matrix(each, dtype=np.float64) for each in (self.X, self.X_test))
        model = liblinearutil.train(codes.astype(float), X, "-s 4 -q")
        predicted, _, _ = liblinearutil.predict([], X_test, model, "-q")
        return float(np.mean(classes[np.array(predicted, int)] == self.y_test))


def quarters(X: Any, y: np.ndarray, splits: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the numbers of the rows to train on, three quarters, and to test on."""
    return StratifiedShuffleSplit(splits, test_size=0.25, random_state=0).split(X, y)


def tables(name: str, splits: int) -> Iterator[Split]:
    frame, target = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True, as_frame=True)
    y = target.to_numpy()
    for train, test in quarters(frame, y, splits):
        known, new = frame.iloc[train], frame.iloc[test]
        scaler = StandardScaler().fit(known)
        ours = partial(_table_accuracy, known, y[train], new, y[test])
        yield Split(scaler.transform(known), y[train], scaler.transform(new), y[test], {OURS: ours})


def _table_accuracy(known: Any, y: np.ndarray, new: Any, y_new: np.ndarray) -> float:
    return float(np.mean(streamsvm.fit(known, y).predict(new) == y_new))


def cells(missing: int, splits: int) -> Iterator[Split]:
    """700 cells of blood of ten types, whose counts follow from the logarithms that scanpy holds."""
    import scanpy as sc

    source = sc.datasets.pbmc68k_reduced()
    X = sparse.csr_matrix(source.raw.X, dtype=np.float32)
    np.expm1(X.data, out=X.data)
    molecule = np.minimum.reduceat(X.data, X.indptr[:-1])
    X.data = np.rint(X.data / np.repeat(molecule, np.diff(X.indptr)))
    y = source.obs["bulk_labels"].astype(str).to_numpy()
    kept = np.sort(np.random.default_rng(0).permutation(X.shape[1])[missing:])
    for parts in quarters(X, y, splits):
        known, new = (sc.AnnData(X[part], {"type": y[part]}, source.raw.var[[]]) for part in parts)
        logs, new_logs = known.copy(), new[:, kept].copy()
        for each in (logs, new_logs):
            sc.pp.normalize_total(each, target_sum=1e4)
            sc.pp.log1p(each)
        X_test = sparse.csr_matrix(new.shape, dtype=np.float32).tolil()
        X_test[:, kept] = new_logs.X
        trainers = {OURS: partial(_cells_accuracy, known, new[:, kept].copy())}
        if importlib.util.find_spec("celltypist"):
            trainers["CellTypist"] = partial(_celltypist_accuracy, logs, new_logs)
        yield Split(logs.X, y[parts[0]], X_test.tocsr(), y[parts[1]], trainers)


def _cells_accuracy(known: Any, new: Any) -> float:
    with tempfile.TemporaryDirectory() as folder:
        for name, adata in {"known": known, "new": new}.items():
            adata.write_h5ad(Path(folder, f"{name}.h5ad"))
        run = streamsvm.fit(Path(folder, "known.h5ad"), label="type", out=Path(folder, "run"))
        return streamsvm.evaluate(run.model, Path(folder, "new.h5ad"), label="type").accuracy


def _celltypist_accuracy(known: Any, new: Any) -> float:
    import celltypist

    model = celltypist.train(known, labels="type", check_expression=False)
    found = celltypist.annotate(new, model=model).predicted_labels["predicted_labels"]
    return float(np.mean(found.astype(str).to_numpy() == new.obs["type"].astype(str).to_numpy()))


def files(pair: Pair) -> Iterator[Split]:
    task = load_task(pair)
    for matrix in (task.X, task.X_test):  # LinearSVC takes no others
        matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
    yield Split(task.X, task.y, task.X_test, task.y_test, {OURS: partial(_file_accuracy, pair)})


def _file_accuracy(pair: Pair) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = streamsvm.fit(pair.train, out=Path(folder, "run"))
        return streamsvm.evaluate(run.model, pair.test).accuracy


def compare(name: str, splits: Iterator[Split]) -> dict[str, Any]:
    """Return a row of the table: mean accuracies, and a star where ours is too low."""
    found, n_test = [], 0
    for split in splits:
        found.append(split.accuracies())
        n_test = len(split.y_test)
    mean = {kind: float(np.mean([each[kind] for each in found])) for kind in found[0]}
    best = max(mean[kind] for kind in HELD_AGAINST if kind in mean)
    ours = [each[OURS] for each in found]
    if len(found) > 1:
        error = float(np.std(ours, ddof=1) / np.sqrt(len(found)))
    else:
        error = float(np.sqrt(ours[0] * (1 - ours[0]) / n_test))
    return {"": name, **mean, "standard error": error, "below": "*" if mean[OURS] < best - error else ""}


def main(
    data: Data,
    sets: Annotated[str, Option(metavar="A,B", help="files to compare")] = FILES,
    splits: Annotated[int, Option(help="of cells and tables, by random")] = 5,
) -> None:
    warnings.simplefilter("ignore")  # of those that do not converge at their defaults
    rows = [compare(name, tables(name, splits)) for name in TABLES]
    if importlib.util.find_spec("scanpy"):
        rows += [compare(name, cells(missing, splits)) for name, missing in CELLS.items()]
    rows += [compare(pair.name, files(pair)) for pair in choose(data, sets)]
    print_records("accuracy by defaults", rows)


if __name__ == "__main__":
    start(main, __doc__)
