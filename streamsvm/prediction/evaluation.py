"""Evaluate a model on labelled data: accuracy, F1, costs and calibration."""

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

_BINS = 15


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(ReadableByClass):
    """Metrics of a model on rows with one label each.

    Accuracies and F1 are between 0 and 1, not percentages. Rows with unknown labels count as wrong, but are
    left out of the log loss, the calibration error and the mean cost.

    Attributes
    ----------
    n : int
        Number of labelled rows.
    accuracy : float
        Fraction of rows predicted correctly.
    top_k : dict of int to float
        For each k, the fraction of rows whose true class is among the k highest-scoring classes.
    macro_f1 : float
        Mean F1 of the classes that occur in the labels or predictions.
    micro_f1 : float
        F1 over all rows, which equals the accuracy.
    log_loss : float or None
        Mean negative log probability of the true class; infinite if one of these probabilities is 0, as
        ``sparsemax`` allows. None if the model has no probabilities.
    calibration_error : float or None
        Expected calibration error (Guo et al. 2017, equation 3) with 15 bins of equal width for the largest
        probability; None if the model has no probabilities.
    mean_cost : float or None
        Mean cost of the predicted classes; None if there is no table of costs. With a tree of classes, this
        is the mean length of the path from the true class to the predicted class.
    sequence_accuracy : float or None
        Fraction of sequences predicted entirely correctly; None if the model is not a sequence model.
    unlabelled : int
        Number of rows left out because they have no label.
    unknown : list of dict
        Effect of the parameter `unknown` of `streamsvm.predict` on these rows, in the form of
        `Calibration.unknown`; empty if the model is not calibrated.
    answered : Answered or None
        Number of rows whose largest probability reaches each threshold, and of correct predictions among
        them; None if the model has no probabilities.
    counts : ClassCounts
        Counts from which ``classes`` and ``confusion`` are computed.
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
        """Number of rows for each pair of true and predicted class, as a DataFrame.

        Correct predictions come first, then errors in order of frequency. Unknown labels are left out.
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
    """Measure how well a model predicts the labels of data.

    Parameters
    ----------
    model : Model or path
        Model, or path of its run directory or model folder.
    data : path, Store, iterable of Rows, or matrix
        Labelled data: a store, AnnData or a file that `convert` accepts, all of which are read in blocks; an
        iterable of blocks of rows, or of pairs of a block and its row names; or anything that `Model.predict`
        accepts. In blocks, features are untransformed, and labels are the model's class codes.
    y : array_like, shape (n,), or str, optional
        Labels of a matrix, or their name in AnnData or a DataFrame, as for the setting `label`. For rows
        with several labels, pass a list of lists, or an array, sparse matrix or DataFrame of zeros and ones,
        whose columns are the classes (named in a DataFrame, otherwise numbered from 0).
    top_k : int or iterable of int, optional
        Values of k for top-k accuracy; by default 1, and also 5 if there are more than 5 classes. For rows
        with several labels, values of k for precision@k; by default 1, 3 and 5. Sequence models accept only
        1.
    threshold : float, optional
        Score above which a class is predicted for rows with several labels. By default 0 for ``ovr`` and
        ``ovr2``; other losses have no default, because their scores only rank the classes.
    n_labels : int, optional
        Number of highest-scoring classes to predict for each row with several labels, instead of a threshold.
    costs : path, DataFrame or array_like, shape (k, k), optional
        Costs to use instead of the model's costs. The entry in row a and column b is the cost of predicting
        class b if the true class is a. See `streamsvm.data.class_costs.read_costs`.
    tree : path or mapping of str to str, optional
        Tree of the classes, with path lengths as costs. See `streamsvm.data.class_costs.read_tree`.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    **settings
        See `ScoringSettings`.
    groups, workers : as for `streamsvm.predict`
    progress : bool or callable, optional
        Whether to show a bar, or a callback, as in `streamsvm.fit`; the stage is "evaluate".

    Returns
    -------
    Evaluation, or LabelSetEvaluation if rows may have several labels each

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model or data cannot be read, if the data does not fit the model or has no rows with known
        labels, or if a score overflows.
    InputError
        If a file is malformed, if a matrix has no labels, or if `costs` or `tree` is not valid for the model.
    SettingsError
        If `top_k`, `threshold`, `n_labels` or `memory` is invalid, if `y`, `label`, `threshold`, `n_labels`,
        `costs` or `tree` does not apply to the data, or if both `threshold` and `n_labels`, or both `costs`
        and `tree`, are set.
    PlanError
        If the longest row does not fit into the memory budget; `PlanError.needed_memory` is sufficient.

    Warns
    -----
    StreamsvmWarning
        If the data contains labels, features or categories that the model does not know.
    """
    model, memory = as_model(model), parse_size(memory)
    n_workers, positive = count_workers(workers), checks.whole(1)
    if threshold is not None:
        threshold = checks.FINITE.checked("threshold", threshold)
    if n_labels is not None:
        n_labels = positive.checked("n_labels", n_labels)
    if threshold is not None and n_labels is not None:
        raise SettingsError("threshold and n_labels cannot be combined; leave one of them out")
    if top_k is not None:
        values = top_k if isinstance(top_k, Iterable) else [top_k]
        top_k = sorted({positive.checked("top_k", k) for k in values})
    classes = model.record["classes"]
    if costs is not None and tree is not None:
        raise wrong_setting("tree", f"must be {ONE_TABLE}")
    table = model.costs if costs is None else read_costs(costs, classes)
    if tree is not None:
        table = read_tree(tree, classes)
    one_label_options = {"costs": costs, "tree": tree}
    label_set_options: dict[str, Any] = {"threshold": threshold, "n_labels": n_labels}
    where = str(getattr(data, "path", data)) if isinstance(data, str | os.PathLike | Store) else "the data"
    if model.transitions_ is not None and top_k not in (None, [1]):
        raise wrong_setting("top_k", "must be 1 for a sequence model, which predicts one label per row")
    metrics: LabelMetrics | LabelSetMetrics | None = None
    n, options = 0, ScoringSettings(**settings)
    reader = RowsToScore(model, options, memory, workers=n_workers)
    with contextlib.ExitStack() as stack:
        report = stack.enter_context(shown(progress))
        threads = stack.enter_context(Threads(n_workers))
        data = copy_address(data, options.cache, report)
        for rows, _ in reader.read(data, y, groups, where):  # reading uses half of the memory
            has_label_sets = bool(len(rows.label_indptr))
            if rows.n_rows and metrics is None:
                if has_label_sets and model.transitions_ is not None:
                    raise ModelError("a sequence model needs one label per row, but some rows have several")
                for name, value in (one_label_options if has_label_sets else label_set_options).items():
                    if value is not None:
                        labels = "several labels" if has_label_sets else "one label"
                        raise wrong_setting(name, f"does not apply to rows with {labels} each; leave it out")
                if has_label_sets:
                    metrics = LabelSetMetrics(model, top_k or [1, 3, 5], **label_set_options)
                else:
                    default = [1, 5] if model.transitions_ is None and len(classes) > 5 else [1]
                    metrics = LabelMetrics(model, top_k or default, table)
            if has_label_sets and isinstance(metrics, LabelMetrics):
                raise ModelError(f"row {n + 1} has a label set; pass label sets for all rows or for none")
            # Ranks and probabilities take several times the memory of the scores.
            for begin, scores in model.scores(rows, memory // 32, first=n, where=where, workers=threads):
                assert metrics is not None
                metrics.add(rows, begin, scores)
                report("evaluate", n + begin + len(scores), reader.n_rows)
            n += rows.n_rows
    if metrics is None:
        raise ModelError("the data has no labelled rows to evaluate the model on; pass data with labels")
    if not metrics.n_known:
        raise ModelError(f"none of the {n:,} rows has a label that the model knows; check the labels")
    result = metrics.evaluation(n)
    if isinstance(result, Evaluation):
        warn_of_unknown(n - metrics.n_known, where)
        result = dataclasses.replace(result, unlabelled=reader.unlabelled)
    logger.info("%r", result)
    return result


class LabelMetrics:
    """Running counts for an `Evaluation`."""

    def __init__(self, model: Model, top_k: list[int], costs: np.ndarray | None) -> None:
        self._model = model
        self._top_k = top_k
        self._costs = costs
        self._hits = np.zeros(len(top_k), np.int64)
        self._counts = ClassCounts(model.record["classes"])
        self._cost = 0.0
        self._sequences = np.zeros(2, np.int64)
        self._answers = AnswerCounts()
        self._log_loss = 0.0
        self._surplus = np.zeros(_BINS)  # per bin: sum of largest probabilities minus number of correct rows

    def add(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
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
        target = scores[np.arange(len(labels)), labels]
        # Ties are broken in favour of the first class, as in argmax.
        columns = np.arange(scores.shape[1])
        ahead = (scores > target[:, None]) | ((scores == target[:, None]) & (columns < labels[:, None]))
        rank = ahead.sum(axis=1)
        self._hits += [(rank < k).sum() for k in self._top_k]

    @property
    def n_known(self) -> int:
        return int(self._counts.rows.sum())

    def _add_probabilities(self, scores: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
        logarithms, is_right = self._model.log_probabilities(scores), predicted == labels
        self._answers.add(logarithms.max(axis=1), is_right)
        known = np.flatnonzero(labels >= 0)
        self._log_loss -= float(logarithms[known, labels[known]].sum())
        largest = np.exp(logarithms[known].max(axis=1))
        bins = np.ceil(largest * _BINS).astype(np.int64).clip(1, _BINS) - 1  # a bin includes its upper end
        self._surplus += np.bincount(bins, weights=largest - is_right[known], minlength=_BINS)

    def evaluation(self, n: int) -> Evaluation:
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
