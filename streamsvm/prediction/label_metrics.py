"""Metrics of predictions for rows with one label each."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from streamsvm.data.class_costs import ClassTree
from streamsvm.data.groups import group_starts
from streamsvm.data.rows import Rows
from streamsvm.model.model import Model
from streamsvm.prediction.class_counts import ClassCounts, Counts, ReadableByClass, data_frame

_BINS = 15  # for the expected calibration error


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(ReadableByClass):
    """Metrics of a model on rows with one label each; accuracies and F1 are fractions.

    A row whose label the model does not know counts as wrong. Such rows are left out of log loss, calibration
    error, mean cost and mean distance.

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
        Mean of the cost of the predicted class, from a table of costs; None without one.
    mean_distance : float or None
        Mean number of edges between the own class and the predicted one in a tree of classes; None without
        one.
    sequence_accuracy : float or None
        Fraction of sequences whose labels are all predicted; None unless it is a model of sequences. That has
        no top-k accuracy but for k = 1.
    unlabelled : int
        Rows without a label, which are left out.
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
    mean_distance: float | None = None
    sequence_accuracy: float | None = None
    unlabelled: int = 0
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


class LabelMetrics:
    """Counts over rows with one label each that `Evaluation` is made of."""

    def __init__(
        self, model: Model, top_k: list[int], costs: np.ndarray | None, tree: ClassTree | None
    ) -> None:
        self._model = model
        self._top_k = top_k
        self._costs = costs
        self._tree = tree
        self._hits = np.zeros(len(top_k), np.int64)
        self._counts = Counts(model.record["classes"])
        self._cost = 0.0
        self._distance = 0
        self._sequences = np.zeros(2, np.int64)  # all, and those whose labels are all predicted
        self._probabilities = None if model.temperature is None else _Probabilities()

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
            self._cost += float(self._costs[labels[known], best[known]].sum())
        if self._tree is not None:
            self._distance += int(self._tree.distance(labels[known], best[known]).sum())
        if self._probabilities is not None:
            self._probabilities.add(self._model.log_probabilities(scores[known]), labels[known], best[known])

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
        return self._counts.n_labels

    @property
    def has_labels(self) -> bool:
        """True if any row has a label that the model knows."""
        return self.n_known > 0

    def evaluation(self, n: int) -> Evaluation:
        """Return the metrics of all `n` rows that were added."""
        counts, probabilities = self._counts.result(), self._probabilities
        accuracy = float(counts.correct.sum() / n)
        return Evaluation(
            n=n,
            accuracy=accuracy,
            top_k={k: float(h / n) for k, h in zip(self._top_k, self._hits, strict=True)},
            macro_f1=float(np.nanmean(counts.f1)),
            micro_f1=accuracy,
            log_loss=None if probabilities is None else probabilities.log_loss(),
            calibration_error=None if probabilities is None else probabilities.calibration_error(),
            mean_cost=None if self._costs is None else self._cost / self.n_known,
            mean_distance=None if self._tree is None else self._distance / self.n_known,
            sequence_accuracy=float(self._sequences[1] / self._sequences[0]) if self._sequences[0] else None,
            counts=counts,
        )


class _Probabilities:
    """Sums over rows for the metrics of probabilities."""

    def __init__(self) -> None:
        self._loss = 0.0
        self._rows = 0
        self._surplus = np.zeros(_BINS)  # of the largest probabilities over the correct predictions, by bin

    def add(self, log_probabilities: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
        """Add rows, whose labels are known."""
        self._rows += len(labels)
        self._loss -= float(log_probabilities[np.arange(len(labels)), labels].sum())
        largest = np.exp(log_probabilities.max(axis=1))
        bins = np.ceil(largest * _BINS).astype(np.int64).clip(1, _BINS) - 1  # a bin contains its upper end
        self._surplus += np.bincount(bins, weights=largest - (predicted == labels), minlength=_BINS)

    def log_loss(self) -> float:
        return self._loss / self._rows

    def calibration_error(self) -> float:
        return float(np.abs(self._surplus).sum() / self._rows)
