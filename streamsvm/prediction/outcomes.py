"""Counts of right predictions by class and of confused pairs of classes, by streaming."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult, OnlineResult
from streamsvm.prediction.label_metrics import Evaluation
from streamsvm.prediction.label_set_metrics import LabelSetEvaluation, own_classes
from streamsvm.prediction.metrics import evaluate
from streamsvm.prediction.predictions import as_model
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import Settings
from streamsvm.training.held_out import open_held_out

MAX_PAIRS = 2**20  # of classes that are counted at a time: 16 MB
_BUFFERED_ERRORS = 2**16  # between two merges of their counts


@dataclasses.dataclass(frozen=True)
class Outcomes:
    """Counts of a model's predictions for labelled rows.

    A row with several labels has as many predictions, the highest-scoring classes. A label that is not among
    them is confused with the highest-scoring class that is no label of the row.

    Attributes
    ----------
    classes : list of str
    rows : ndarray of int64, shape (n_classes,)
        Rows that have each class as a label.
    correct : ndarray of int64, shape (n_classes,)
        Rows of each class for which that class is predicted.
    pairs : ndarray of int64, shape (n, 3)
        Class, class predicted in its place, and count: the most frequent pairs first.
    too_low : int
        Upper bound of the error of the counts of pairs, which may be too low if there were too many pairs.
    evaluation : Evaluation or LabelSetEvaluation
    """

    classes: list[str]
    rows: np.ndarray
    correct: np.ndarray
    pairs: np.ndarray
    too_low: int
    evaluation: Evaluation | LabelSetEvaluation

    @property
    def several(self) -> bool:
        """True if rows have several labels."""
        return isinstance(self.evaluation, LabelSetEvaluation)

    @property
    def errors(self) -> int:
        return int(self.rows.sum() - self.correct.sum())


def count_outcomes(model: Model, data: Any, **options: Any) -> Outcomes:
    """Score labelled data once and count; data, options and errors are as for `streamsvm.evaluate`.

    Memory is that of `evaluate`, 40 bytes a class, and at most 40 MB.
    """
    counter = _Counter(model)
    evaluation = evaluate(model, data, observe=counter.add, **options)
    return counter.outcomes(evaluation)


class PairCounts:
    """Counts of pairs in bounded memory: counts of frequent pairs stay right (Misra & Gries 1982).

    Attributes
    ----------
    too_low : int
        Upper bound of the error of any count, which may be too low. It is at most the number of pairs added,
        over half of `MAX_PAIRS`.
    """

    def __init__(self) -> None:
        self.too_low = 0
        self._codes = self._counts = np.zeros(0, np.int64)
        self._added: list[np.ndarray] = []
        self._n_added = 0

    def add(self, codes: np.ndarray) -> None:
        """Count pairs, each given as one number, int64."""
        if len(codes):
            self._added.append(codes)
            self._n_added += len(codes)
        if self._n_added >= _BUFFERED_ERRORS:
            self._merge()

    def most_frequent(self) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs and counts, the largest count first; of equal counts the smallest number."""
        self._merge()
        order = np.lexsort((self._codes, -self._counts))
        return self._codes[order], self._counts[order]

    def _merge(self) -> None:
        codes, at = np.unique(np.concatenate([self._codes, *self._added]), return_inverse=True)
        weights = np.ones(len(at), np.int64)
        weights[: len(self._counts)] = self._counts
        counts = np.zeros(len(codes), np.int64)
        np.add.at(counts, at, weights)
        self._added, self._n_added = [], 0
        if len(codes) > MAX_PAIRS:  # half of them stay, less the largest count of the others
            half = len(codes) - MAX_PAIRS // 2
            lost = int(np.partition(counts, half - 1)[half - 1])
            self.too_low += lost
            stay = counts > lost
            codes, counts = codes[stay], counts[stay] - lost
        self._codes, self._counts = codes, counts


class _Counter:
    """Counter of the outcomes of rows as they are scored."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._n_classes = len(model.classes_)
        self._rows, self._correct = (np.zeros(self._n_classes, np.int64) for _ in range(2))
        self._pairs = PairCounts()

    def add(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
        """Count the rows from `begin` on that have these scores."""
        if len(rows.label_indptr):
            self._add_sets(rows, begin, scores)
            return
        labels = rows.labels[begin : begin + len(scores)].astype(np.int64)
        best = self._model.best_classes(rows, begin, scores).astype(np.int64)
        known = labels >= 0
        labels, best = labels[known], best[known]
        right = labels == best
        self._rows += np.bincount(labels, minlength=self._n_classes)
        self._correct += np.bincount(labels[right], minlength=self._n_classes)
        self._pairs.add(labels[~right] * self._n_classes + best[~right])

    def _add_sets(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
        own = own_classes(rows, begin, scores)
        order = np.argsort(-scores, axis=1, kind="stable")
        predicted = np.zeros_like(own)
        among_best = np.arange(self._n_classes) < own.sum(axis=1)[:, None]
        np.put_along_axis(predicted, order, among_best, axis=1)
        self._rows += own.sum(axis=0)
        self._correct += (own & predicted).sum(axis=0)
        row, missed = np.nonzero(own & ~predicted)
        best_other = order[np.arange(len(order)), np.take_along_axis(own, order, axis=1).argmin(axis=1)]
        self._pairs.add(missed.astype(np.int64) * self._n_classes + best_other[row])

    def outcomes(self, evaluation: Evaluation | LabelSetEvaluation) -> Outcomes:
        codes, counts = self._pairs.most_frequent()
        pairs = np.stack([codes // self._n_classes, codes % self._n_classes, counts], axis=1)
        classes = self._model.record["classes"]
        return Outcomes(classes, self._rows, self._correct, pairs, self._pairs.too_low, evaluation)


def outcomes_of(run: Any, data: Any = None, **options: Any) -> Outcomes:
    """Count outcomes of the model of a run, or of a model, on `data` or the run's validation store.

    `run` is a run directory, a result of training or a model. Options are those of `count_outcomes`.

    Raises
    ------
    ModelError
        If there is no model, or neither data nor a validation store. Also as in `streamsvm.evaluate`.
    """
    if isinstance(run, Outcomes):
        return run
    model = model_of(run)
    if data is not None:
        return count_outcomes(model, data, **options)
    settings = _settings_of(run)
    if settings is None or settings.valid is None:
        raise ModelError("there is no validation store to count predictions for; give held-out data")
    with open_held_out("valid", settings) as store:
        return count_outcomes(model, store, where=settings.valid, **options)


def model_of(run: Any) -> Model:
    """Return the model of a run directory, a model folder or a result of training, or a model itself."""
    return as_model(run.model if isinstance(run, FitResult | OnlineResult) else run)


def _settings_of(run: Any) -> Settings | None:
    """Return the settings of a fit; None for anything else."""
    result = getattr(run, "result", run)  # of a model
    if isinstance(result, FitResult):
        return Settings.from_record(result.settings)
    if isinstance(run, str | os.PathLike) and RunDir(Path(run)).settings.exists():
        record = RunDir(Path(run)).read_settings()
        return None if record.get("kind") == format.ONLINE else Settings.from_record(record["settings"])
    return None
