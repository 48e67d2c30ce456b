"""Metrics of a model on labelled data: accuracies, F1, and how good its probabilities are."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import ModelError
from streamsvm.model import Model
from streamsvm.predictions import as_model, checked_top_k, rows_to_score
from streamsvm.text import parse_size

_BINS = 15  # of the expected calibration error


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Metrics as fractions; a row whose label the model does not know counts as wrong.

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
        Mean of −log of the probability of the own class; None if the model has no probabilities. Rows whose
        label the model does not know are left out.
    calibration_error : float or None
        Expected calibration error of the same rows: these are put into 15 bins of equal width by their
        largest probability, and the difference between its mean and the accuracy in each bin is averaged
        over the rows (Guo et al. 2017, equation 3).
    """

    n: int
    accuracy: float
    top_k: dict[int, float]
    macro_f1: float
    micro_f1: float
    log_loss: float | None = None
    calibration_error: float | None = None


def evaluate(
    model: Model | str | Path,
    data: Any,
    y: Any = None,
    *,
    top_k: int | Iterable[int] = (1, 5),
    memory: int | str = 2**28,
    label: str | None = None,
) -> Evaluation:
    """Compare the predictions for labelled data with its labels.

    Parameters
    ----------
    model : Model or path
        A model, or the run directory or model folder to load it from.
    data : path, Store, iterable of Rows, or matrix
        Labelled data: a store or AnnData file, which is read in blocks; blocks of rows with the model's
        features and codes of its classes; or anything that `Model.predict` takes.
    y : array_like, shape (n,), optional
        Labels of a matrix, which has none of its own.
    top_k : int or iterable of int
        The numbers k of best classes to measure the top-k accuracy for: 1 or more.
    memory : int or str
        Memory budget in bytes, or as text such as 500M or 2G.
    label : str, optional
        Column of ``obs`` with the labels, for AnnData that was not written by convert, or is in memory.

    Returns
    -------
    Evaluation

    Raises
    ------
    ModelError, FeatureError, StoreError
        If the model cannot be read, or the data cannot be read, does not fit the model, has no rows, or
        has no label that the model knows, or a score overflows.
    InputError
        If a matrix has no labels: neither `y` nor, for AnnData, `label`.
    SettingsError
        If `top_k` or `memory` is not valid, or `y` or `label` does not apply to the data.
    PlanError
        If the memory budget cannot hold the longest row; `PlanError.needed_memory` is enough.
    """
    model, memory = as_model(model), parse_size(memory)
    n_classes = len(model.classes_)
    wanted = sorted({checked_top_k(k) for k in (top_k if isinstance(top_k, Iterable) else [top_k])})
    hits = np.zeros(len(wanted), np.int64)
    true, predicted, both = (np.zeros(n_classes, np.int64) for _ in range(3))
    n = 0
    probabilities = None if model.temperature is None else _Probabilities()
    for rows in rows_to_score(model, data, y, memory=memory, label=label):  # in half of the memory
        # Ranking them, and their probabilities, take several times as much.
        for begin, scores in model.finite_scores(rows, memory // 32, first=n):
            labels = rows.labels[begin : begin + len(scores)]
            best = scores.argmax(axis=1)
            known = np.flatnonzero(labels >= 0)
            true += np.bincount(labels[known], minlength=n_classes)
            predicted += np.bincount(best, minlength=n_classes)
            both += np.bincount(best[best == labels], minlength=n_classes)
            own = scores[known, labels[known]]
            # Of equal scores the first class ranks first, as in argmax.
            columns = np.arange(n_classes)
            ahead = (scores[known] > own[:, None]) | (
                (scores[known] == own[:, None]) & (columns < labels[known, None])
            )
            rank = ahead.sum(axis=1)
            hits += [(rank < k).sum() for k in wanted]
            if probabilities is not None:
                probabilities.add(model.log_probabilities(scores[known]), labels[known], best[known])
        n += rows.n_rows
    if n == 0:
        raise ModelError("the data has no rows to evaluate the model on")
    if not true.any():
        raise ModelError(f"none of the {n:,} rows has a label that the model knows")
    occurs = (true + predicted) > 0
    f1 = 2 * both[occurs] / (true + predicted)[occurs]
    return Evaluation(
        n=n,
        accuracy=float(both.sum() / n),
        top_k={k: float(h / n) for k, h in zip(wanted, hits, strict=True)},
        macro_f1=float(f1.mean()),
        micro_f1=float(both.sum() / n),
        log_loss=None if probabilities is None else probabilities.log_loss(),
        calibration_error=None if probabilities is None else probabilities.calibration_error(),
    )


class _Probabilities:
    """Sums over rows of what their probabilities are judged by."""

    def __init__(self) -> None:
        self._loss = 0.0
        self._rows = 0
        self._surplus = np.zeros(_BINS)  # of the largest probabilities over the correct predictions, by bin

    def add(self, log_probabilities: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
        """Add rows, of which the labels are known."""
        self._rows += len(labels)
        self._loss -= float(log_probabilities[np.arange(len(labels)), labels].sum())
        largest = np.exp(log_probabilities.max(axis=1))
        bins = np.ceil(largest * _BINS).astype(np.int64).clip(1, _BINS) - 1  # a bin contains its upper end
        self._surplus += np.bincount(bins, weights=largest - (predicted == labels), minlength=_BINS)

    def log_loss(self) -> float:
        return self._loss / self._rows

    def calibration_error(self) -> float:
        return float(np.abs(self._surplus).sum() / self._rows)
