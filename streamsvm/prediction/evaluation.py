"""Evaluation of a model on labelled data: accuracies, F1, costs, and how good its probabilities are."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import warn_of_unknown
from streamsvm.base.progress import Progress, logger, shown
from streamsvm.base.text import parse_size
from streamsvm.base.threads import Threads, count_workers
from streamsvm.data.class_costs import read_costs, read_tree
from streamsvm.data.groups import group_starts
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, SettingsError, wrong_setting
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.doubt import AnswerCounts, Answered
from streamsvm.model.model import Model
from streamsvm.prediction.class_counts import ClassCounts, ReadableByClass, data_frame
from streamsvm.prediction.label_set_evaluation import LabelSetEvaluation, LabelSetMetrics
from streamsvm.prediction.predictions import as_model
from streamsvm.settings import checks
from streamsvm.settings.rules import ONE_TABLE
from streamsvm.settings.scoring import TO_EVALUATE, ScoringSettings
from streamsvm.settings.signature import takes
from streamsvm.store import Store
from streamsvm.store.addresses import copy_address

_BINS = 15  # for the expected calibration error


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(ReadableByClass):
    """Metrics of a model on rows with one label each; accuracies and F1 are fractions.

    A row whose label the model does not know counts as wrong. Such rows are left out of log loss, calibration
    error and mean cost.

    Attributes
    ----------
    n : int
        Number of rows.
    accuracy : float
        Fraction of rows whose highest-scoring class is their own.
    top_k : dict of int to float
        Fraction of rows whose own class is among the k highest-scoring.
    macro_f1 : float
        Mean F1 of the classes that occur among labels or predictions.
    micro_f1 : float
        F1 over all decisions: the accuracy, as each row has one label and one prediction.
    log_loss : float or None
        Mean of −log of the probability of the own class, infinite if one of these is 0, as with the loss
        ``sparsemax``; None if the model has no probabilities.
    calibration_error : float or None
        Expected calibration error: rows are put into 15 bins of equal width by their largest probability, and
        the difference between its mean and the accuracy in each bin is averaged over the rows (Guo et al.
        2017, equation 3).
    mean_cost : float or None
        Mean of the cost of the predicted class, from a table of costs; None without one. With a tree of
        classes it is the mean length of the path from the own class to the predicted one.
    sequence_accuracy : float or None
        Fraction of sequences whose labels are all predicted; None unless it is a model of sequences. That has
        no top-k accuracy but for k = 1.
    unlabelled : int
        Rows without a label, which are left out.
    unknown : list of dict
        What `unknown` of `streamsvm.predict` does to the rows, if the model was calibrated: see
        `Calibration`. Rows whose label the model does not know, if they are answered, count as wrong.
    answered : Answered or None
        Rows that reach each probability, and those that are predicted rightly; None if the model has no
        probabilities.
    counts : ClassCounts
        Counts behind the tables ``classes`` and ``confusion``, which are made when they are asked for.
    """

    n: int
    accuracy: float
    top_k: dict[int, float]
    macro_f1: float
    micro_f1: float
    log_loss: float | None = None
    calibration_error: float | None = None
    mean_cost: float | None = None
    sequence_accuracy: float | None = None
    unlabelled: int = 0
    unknown: list[dict[str, float]] = dataclasses.field(default_factory=list)
    answered: Answered | None = dataclasses.field(default=None, compare=False, repr=False)
    counts: ClassCounts | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def confusion(self) -> Any:
        """Rows of each pair of true and predicted class that has any, as a DataFrame.

        Right predictions come first, then the most frequent errors. Rows of unknown labels are left out.
        """
        assert self.counts is not None
        return data_frame(self.counts.confusion())

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "unlabelled": self.unlabelled or None}


@takes(TO_EVALUATE, after="memory")
def evaluate(
    model: Model | str | Path,
    data: Any,
    y: Any = None,
    *,
    top_k: int | Iterable[int] | None = None,
    threshold: float | None = None,
    n_labels: int | None = None,
    costs: Any = None,
    tree: Any = None,
    memory: int | str = 2**28,
    groups: Any = None,
    workers: int | None = None,
    progress: bool | Progress | None = None,
    **settings: Any,
) -> Evaluation | LabelSetEvaluation:
    """Compare the predictions for labelled data with its labels.

    Parameters
    ----------
    model : Model or path
        A model, or the run directory or model folder to load it from.
    data : path, Store, iterable of Rows, or matrix
        Labelled data: a store, AnnData, or a file of any kind that `convert` takes, which is read in blocks;
        blocks of rows with the features of the training data, as they were before the transforms, and codes
        of the model's classes, or pairs of such a block and its rows' names; or anything that `Model.predict`
        takes.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix, which has none of its own. Or what `label` is, for AnnData and DataFrames.
        For several labels a row: a list with a list of labels for each row; or an indicator matrix (array,
        sparse or DataFrame) of zeros and ones, whose classes are the numbers of its columns, or their names
        in a DataFrame.
    top_k : int or iterable of int, optional
        The numbers k of best classes to measure the top-k accuracy for, or, if rows have several labels,
        precision@k: 1 or more. By default 1 and, of more than 5 classes, 5; and 1, 3 and 5.
    threshold : float, optional
        For rows with several labels: classes with scores above it are predicted. By default 0 for models of
        ``ovr`` and ``ovr2``. Those of other losses only rank the classes.
    n_labels : int, optional
        For rows with several labels: predict this many of the best classes, and not those above a threshold.
    costs : path, DataFrame or array_like, shape (k, k), optional
        What predicting each class costs for rows of each class (in rows), in place of the costs of the
        model: see `streamsvm.data.class_costs.read_costs`.
    tree : path or mapping of str to str, optional
        A tree of the classes instead, whose paths are the costs: see `streamsvm.data.class_costs.read_tree`.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    **settings
        As `ScoringSettings` declares them.
    groups : array_like, shape (n,), or str, optional
        The group that each row of a matrix belongs to, for a model of sequences: see `streamsvm.fit`. A store
        has its own.
    workers : int, optional
        Threads that score, as for `streamsvm.predict`.
    progress : bool or callable, optional
        Whether there is a bar, or a function, as in `streamsvm.fit`; the stage is "evaluate".

    Returns
    -------
    Evaluation, or LabelSetEvaluation if rows may have several labels each

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read, or the data cannot be read, does not fit the model, has no rows, or
        has no label that the model knows, or a score overflows.
    InputError
        If a file of text or a table is malformed; a matrix has no labels: neither `y`, `labels` nor, for
        AnnData, `label`; or `costs` or `tree` cannot be read or does not fit the classes.
    SettingsError
        If `top_k`, `threshold`, `n_labels` or `memory` is not valid, or `y`, `label`, `threshold`,
        `n_labels`, `costs` or `tree` does not apply to the data, or both of these are given.
    PlanError
        If the memory budget cannot hold the longest row; `PlanError.needed_memory` is enough.

    Warns
    -----
    StreamsvmWarning
        If labels are unknown to the model; counts the rows, or, of several labels a row, the labels of a
        matrix or of text that are left out. If a file has features or categories that are.
    """
    model, memory = as_model(model), parse_size(memory)
    n_workers, whole = count_workers(workers), checks.whole(1)
    if threshold is not None:
        threshold = checks.FINITE.checked("threshold", threshold)
    if n_labels is not None:
        n_labels = whole.checked("n_labels", n_labels)
    if threshold is not None and n_labels is not None:
        raise SettingsError("threshold and n_labels both say what is predicted; leave one of them out")
    if top_k is not None:
        each_k = top_k if isinstance(top_k, Iterable) else [top_k]
        top_k = sorted({whole.checked("top_k", k) for k in each_k})
    classes = model.record["classes"]
    if costs is not None and tree is not None:
        raise wrong_setting("tree", f"must be {ONE_TABLE}")
    table = model.costs if costs is None else read_costs(costs, classes)
    if tree is not None:
        table = read_tree(tree, classes)
    for_one = {"costs": costs, "tree": tree}
    for_several: dict[str, Any] = {"threshold": threshold, "n_labels": n_labels}
    where = str(getattr(data, "path", data)) if isinstance(data, str | os.PathLike | Store) else "the data"
    if model.transitions_ is not None and top_k not in (None, [1]):
        raise wrong_setting("top_k", "does not apply to models of sequences, which predict one label a row")
    metrics: LabelMetrics | LabelSetMetrics | None = None
    n, asked = 0, ScoringSettings(**settings)
    reader = RowsToScore(model, asked, memory, workers=n_workers)
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(shown(progress))
        threads = stack.enter_context(Threads(n_workers))
        data = copy_address(data, asked.cache, report)
        for rows, _ in reader.read(data, y, groups, where):  # in half of the memory
            several = bool(len(rows.label_indptr))
            if rows.n_rows and metrics is None:
                if several and model.transitions_ is not None:
                    raise ModelError("models of sequences predict one label a row, and the data has several")
                for name, value in (for_one if several else for_several).items():
                    if value is not None:
                        have = "have" if several else "do not have"
                        raise wrong_setting(name, f"does not apply: the rows {have} several labels each")
                if several:
                    metrics = LabelSetMetrics(model, top_k or [1, 3, 5], **for_several)
                else:
                    default = [1, 5] if model.transitions_ is None and len(classes) > 5 else [1]
                    metrics = LabelMetrics(model, top_k or default, table)
            if several and isinstance(metrics, LabelMetrics):
                raise ModelError(f"row {n + 1} may have several labels, and the rows before have one each")
            # Ranking scores, and their probabilities, take several times as much as they do.
            for begin, scores in model.scores(rows, memory // 32, first=n, where=where, workers=threads):
                assert metrics is not None
                metrics.add(rows, begin, scores)
                report("evaluate", n + begin + len(scores), reader.n_rows)
            n += rows.n_rows
    if metrics is None:
        raise ModelError("the data has no rows with labels to evaluate the model on")
    if not metrics.n_known:
        raise ModelError(f"none of the {n:,} rows has a label that the model knows")
    result = metrics.evaluation(n)
    if isinstance(result, Evaluation):
        warn_of_unknown(n - metrics.n_known, where)
        result = dataclasses.replace(result, unlabelled=reader.unlabelled)
    logger.info("%r", result)
    return result


class LabelMetrics:
    """Running counts for an `Evaluation`, of rows with one label each."""

    def __init__(self, model: Model, top_k: list[int], costs: np.ndarray | None) -> None:
        self._model = model
        self._top_k = top_k
        self._costs = costs
        self._hits = np.zeros(len(top_k), np.int64)
        self._counts = ClassCounts(model.record["classes"])
        self._cost = 0.0
        self._sequences = np.zeros(2, np.int64)  # all, and those whose labels are all predicted
        self._answers = AnswerCounts()
        self._log_loss = 0.0
        self._surplus = np.zeros(_BINS)  # of the largest probabilities over the correct predictions, by bin

    def add(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
        """Add the rows from `begin` on that have these scores."""
        labels = rows.labels[begin : begin + len(scores)]
        best = self._model.best_classes(rows, begin, scores)
        known = np.flatnonzero(labels >= 0)
        self._counts.add(labels, best)
        if self._model.transitions_ is not None:
            self._add_sequences(best == labels, rows.qid[begin : begin + len(scores)])
        else:
            self._add_ranks(scores[known], labels[known])
        if self._costs is not None:
            self._cost += float(self._costs[labels[known], best[known]].sum(dtype=np.float64))
        if self._model.temperature is not None:
            self._add_probabilities(scores, labels, best)

    def _add_sequences(self, is_correct: np.ndarray, qid: np.ndarray) -> None:
        starts = group_starts(qid)[:-1]
        whole = np.logical_and.reduceat(is_correct, starts)
        self._sequences += len(starts), int(whole.sum())
        self._hits += int(is_correct.sum())

    def _add_ranks(self, scores: np.ndarray, labels: np.ndarray) -> None:
        """Count the rows, of known labels, whose label is among the best k."""
        own = scores[np.arange(len(labels)), labels]
        # Of equal scores the first class ranks first, as in argmax.
        columns = np.arange(scores.shape[1])
        ahead = (scores > own[:, None]) | ((scores == own[:, None]) & (columns < labels[:, None]))
        rank = ahead.sum(axis=1)
        self._hits += [(rank < k).sum() for k in self._top_k]

    @property
    def n_known(self) -> int:
        """Number of rows whose label the model knows."""
        return int(self._counts.rows.sum())

    def _add_probabilities(self, scores: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
        logarithms, is_right = self._model.log_probabilities(scores), predicted == labels
        self._answers.add(logarithms.max(axis=1), is_right)
        known = np.flatnonzero(labels >= 0)
        self._log_loss -= float(logarithms[known, labels[known]].sum())
        largest = np.exp(logarithms[known].max(axis=1))
        bins = np.ceil(largest * _BINS).astype(np.int64).clip(1, _BINS) - 1  # a bin contains its upper end
        self._surplus += np.bincount(bins, weights=largest - is_right[known], minlength=_BINS)

    def evaluation(self, n: int) -> Evaluation:
        """Return the metrics of all `n` rows that were added."""
        counts, known = self._counts, self.n_known
        accuracy = float(counts.correct.sum() / n)
        has_probabilities = self._model.temperature is not None
        answered = self._answers.answered() if has_probabilities else None
        chosen = self._model.record.get(format.ANSWERED)
        return Evaluation(
            n=n,
            accuracy=accuracy,
            top_k={k: float(h / n) for k, h in zip(self._top_k, self._hits, strict=True)},
            macro_f1=float(np.nanmean(counts.f1)),
            micro_f1=accuracy,
            log_loss=self._log_loss / known if has_probabilities else None,
            calibration_error=float(np.abs(self._surplus).sum() / known) if has_probabilities else None,
            mean_cost=None if self._costs is None else self._cost / known,
            sequence_accuracy=float(self._sequences[1] / self._sequences[0]) if self._sequences[0] else None,
            unknown=answered.by_threshold(Answered(**chosen)) if answered and chosen else [],
            answered=answered,
            counts=counts,
        )
