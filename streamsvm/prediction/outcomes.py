"""Counts of predictions by class and of confused pairs of classes, of a run's held-out data or any other."""

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
from streamsvm.prediction.class_counts import ClassCounts, Counts
from streamsvm.prediction.label_metrics import Evaluation
from streamsvm.prediction.label_set_metrics import LabelSetEvaluation, own_classes
from streamsvm.prediction.metrics import evaluate
from streamsvm.prediction.predictions import as_model
from streamsvm.run.directory import RunDir
from streamsvm.settings.fit import Settings
from streamsvm.training.held_out import open_held_out


@dataclasses.dataclass(frozen=True)
class Outcomes(ClassCounts):
    """Counts of a model's predictions for labelled rows.

    A row with several labels has as many predictions, the highest-scoring classes. A label that is not among
    them is confused with the highest-scoring class that is no label of the row.

    Attributes
    ----------
    evaluation : Evaluation or LabelSetEvaluation
    """

    evaluation: Evaluation | LabelSetEvaluation

    @property
    def several(self) -> bool:
        """True if rows have several labels."""
        return isinstance(self.evaluation, LabelSetEvaluation)


def count_outcomes(model: Model, data: Any, **options: Any) -> Outcomes:
    """Score labelled data once and count; data, options and errors are as for `streamsvm.evaluate`."""
    best = _BestClasses(model)
    evaluation = evaluate(model, data, observe=best.add, **options)
    counts = evaluation.counts if isinstance(evaluation, Evaluation) else best.counts.result()
    assert counts is not None
    return Outcomes(**vars(counts), evaluation=evaluation)


class _BestClasses:
    """Counter of the best classes of rows with several labels, as many as each row has."""

    def __init__(self, model: Model) -> None:
        self.counts = Counts(model.record["classes"])

    def add(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
        """Count the rows from `begin` on that have these scores, if they have several labels."""
        if not len(rows.label_indptr):
            return
        own = own_classes(rows, begin, scores)
        order = np.argsort(-scores, axis=1, kind="stable")
        predicted = np.zeros_like(own)
        among_best = np.arange(own.shape[1]) < own.sum(axis=1)[:, None]
        np.put_along_axis(predicted, order, among_best, axis=1)
        self.counts.add_sets(own, predicted)
        row, missed = np.nonzero(own & ~predicted)
        best_other = order[np.arange(len(order)), np.take_along_axis(own, order, axis=1).argmin(axis=1)]
        self.counts.add_pairs(missed, best_other[row])


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
