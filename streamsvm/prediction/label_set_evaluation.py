"""Evaluate predictions for rows with any number of labels."""

from __future__ import annotations

import dataclasses

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import Message, Option, Remedy
from streamsvm.model.model import Model
from streamsvm.prediction.class_counts import ClassCounts, ReadableByClass


@dataclasses.dataclass(frozen=True, repr=False)
class LabelSetEvaluation(ReadableByClass):
    """Metrics of a model on rows with several labels each; all metrics are between 0 and 1.

    Labels that the model does not know are left out, even if a row then has no labels. Metrics of predicted
    label sets are None if neither a threshold nor `n_labels` selects the predicted classes.

    Attributes
    ----------
    n : int
        Number of rows.
    precision : dict of int to float
        For each k, the mean fraction of the k highest-scoring classes of a row that are labels of the row.
    ranking_loss : float
        Fraction of (label, other class) pairs in which the label does not score higher, averaged over rows;
        0 for rows with no labels or all labels (`sklearn.metrics.label_ranking_loss`).
    micro_f1 : float or None
        F1 over all pairs of a row and a class.
    macro_f1 : float or None
        Mean F1 of the classes that occur in the labels or predictions.
    subset_accuracy : float or None
        Fraction of rows whose predicted label set is exactly correct.
    threshold : float or None
        Score above which classes are predicted.
    n_labels : int or None
        Number of highest-scoring classes predicted for each row.
    warning : str or None
        Reason why no label sets are predicted, and the remedy.
    counts : ClassCounts or None
        Counts from which ``classes`` is computed.
    """

    n: int
    precision: dict[int, float]
    ranking_loss: float
    micro_f1: float | None
    macro_f1: float | None
    subset_accuracy: float | None
    threshold: float | None
    n_labels: int | None
    warning: str | None = None
    counts: ClassCounts | None = dataclasses.field(default=None, compare=False)


class LabelSetMetrics:
    """Running counts for a `LabelSetEvaluation`; by default, the model's threshold is used."""

    def __init__(self, model: Model, top_k: list[int], threshold: float | None, n_labels: int | None) -> None:
        self._top_k = top_k
        self._threshold = model.threshold if threshold is None and n_labels is None else threshold
        self._n_labels = n_labels
        loss = model.record.get("loss")
        self._name = "the model" if loss is None else f"a model with the loss {loss}"
        self._hits = np.zeros(len(top_k), np.int64)
        self.n_known = 0
        self._counts = ClassCounts(model.record["classes"])
        self._ranking_loss = 0.0
        self._exact = 0

    def add(self, rows: Rows, begin: int, scores: np.ndarray) -> None:
        is_label = _label_mask(rows, begin, scores)
        order = np.argsort(-scores, axis=1, kind="stable")
        sorted_labels = np.take_along_axis(is_label, order, axis=1)
        self._hits += [int(sorted_labels[:, :k].sum()) for k in self._top_k]
        self._ranking_loss += _ranking_loss(np.take_along_axis(scores, order, axis=1), sorted_labels)
        self.n_known += int(is_label.sum())
        if self._threshold is not None:
            predicted = scores > self._threshold
        elif self._n_labels is not None:
            predicted = np.zeros_like(is_label)
            np.put_along_axis(predicted, order[:, : self._n_labels], True, axis=1)
        else:
            return
        self._counts.add_sets(is_label, predicted)
        self._exact += int((is_label == predicted).all(axis=1).sum())

    def evaluation(self, n: int) -> LabelSetEvaluation:
        micro = macro = exact = warning = counts = None
        if self._threshold is None and self._n_labels is None:
            warning = Message(
                f"the scores of {self._name} only rank the classes, so no label sets are predicted, and F1 "
                "and subset accuracy are left out",
                Remedy("choose the labels with {} or {}", Option("threshold"), Option("n_labels")),
            )
        else:
            counts = self._counts
            micro = float(2 * counts.correct.sum() / (counts.rows + counts.predicted).sum())
            macro = float(np.nanmean(counts.f1))
            exact = self._exact / n
        return LabelSetEvaluation(
            n=n,
            precision={k: float(h / (n * k)) for k, h in zip(self._top_k, self._hits, strict=True)},
            ranking_loss=self._ranking_loss / n,
            micro_f1=micro,
            macro_f1=macro,
            subset_accuracy=exact,
            threshold=self._threshold,
            n_labels=self._n_labels,
            warning=warning,
            counts=counts,
        )


def _label_mask(rows: Rows, begin: int, scores: np.ndarray) -> np.ndarray:
    is_label = np.zeros(scores.shape, bool)
    if len(rows.label_indptr):
        ends = rows.label_indptr[begin : begin + len(scores) + 1]
        row_numbers = np.repeat(np.arange(len(scores)), np.diff(ends))
        is_label[row_numbers, rows.label_codes[ends[0] : ends[-1]]] = True
    else:
        labels = rows.labels[begin : begin + len(scores)]
        known = np.flatnonzero(labels >= 0)
        is_label[known, labels[known]] = True
    return is_label


def _ranking_loss(scores: np.ndarray, is_label: np.ndarray) -> float:
    """Sum the ranking losses of rows whose scores are sorted in descending order."""
    n_labels = is_label.sum(axis=1)
    n_non_labels = scores.shape[1] - n_labels
    counted = np.flatnonzero((n_labels > 0) & (n_non_labels > 0))
    # A label is ranked wrongly against each non-label whose score is at least as high.
    non_labels = np.cumsum(~is_label, axis=1, dtype=np.int32)
    is_last = np.ones(scores.shape, bool)
    np.not_equal(scores[:, :-1], scores[:, 1:], out=is_last[:, :-1])
    columns = np.where(is_last, np.arange(scores.shape[1], dtype=np.int32), np.int32(scores.shape[1] - 1))
    last = np.minimum.accumulate(columns[:, ::-1], axis=1)[:, ::-1]
    wrong = np.where(is_label, np.take_along_axis(non_labels, last, axis=1), 0).sum(axis=1, dtype=np.int64)
    return float((wrong[counted] / (n_labels * n_non_labels)[counted]).sum())
