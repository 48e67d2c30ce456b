"""Doubt: which share of rows a model answers above a probability, and how many of these answers are right.

Probabilities are counted in bins of their log-odds, so that memory does not grow with the rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.errors import Call, ModelError, Remedy, wrong_setting
from streamsvm.settings import checks

ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)  # whose thresholds are shown
_STEPS, _MOST = 10, 20  # bins of one unit, and the largest log-odds: one bin has all above


@dataclasses.dataclass(frozen=True)
class Answered:
    """Rows whose largest probability is at least a threshold.

    Attributes
    ----------
    thresholds : list of float
        Increasing; all rows reach the first one.
    rows : list of int
        Rows that reach each threshold.
    right : list of int
        Rows among these whose label is predicted.
    """

    thresholds: list[float]
    rows: list[int]
    right: list[int]

    def __post_init__(self) -> None:
        table = np.array([self.thresholds, self.rows, self.right])  # or ValueError
        is_ordered = (np.diff(table) * [[1], [-1], [-1]] >= 0).all()
        if not (table.size and is_ordered and (table[1] >= table[2]).all() and (table >= 0).all()):
            raise ValueError("thresholds must increase, rows and right decrease")

    def threshold(self, accuracy: float) -> float:
        """Return the smallest threshold above which rows are predicted with this accuracy; NaN without one.

        One more error is assumed than there was, so that few rows do not promise much. If all rows are
        predicted so well, the threshold is 0.
        """
        reached = np.flatnonzero(np.array(self.right) >= accuracy * (np.array(self.rows) + 1))
        if not len(reached):
            return np.nan
        return self.thresholds[reached[0]] if reached[0] else 0.0

    def by_threshold(self, chosen: Answered) -> list[dict[str, float]]:
        """Return the share of rows answered, and their accuracy, for thresholds that other rows chose.

        There is a dict for each of `ACCURACIES`: ``unknown`` (the accuracy), ``probability`` (the threshold),
        ``answered`` and ``accuracy``. NaN stands for no threshold, and for the accuracy of no rows.
        """
        thresholds = [chosen.threshold(accuracy) for accuracy in ACCURACIES]
        at = np.searchsorted(self.thresholds, thresholds)
        rows, right = np.append(self.rows, 0)[at], np.append(self.right, 0)[at]
        accuracies = np.where(rows, right / np.maximum(rows, 1), np.nan)
        columns = ACCURACIES, thresholds, (rows / self.rows[0]).tolist(), accuracies.tolist()
        names = "unknown", "probability", "answered", "accuracy"
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class AnswerCounts:
    """Running counts for `Answered`."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, 2 * _STEPS * _MOST + 1), np.int64)  # of rows, and of right ones

    def add(self, logarithms: np.ndarray, is_right: np.ndarray) -> None:
        """Count rows by the logarithms of their largest probabilities."""
        logarithms = np.minimum(logarithms, 0.0)
        with np.errstate(divide="ignore"):
            odds = logarithms - np.log(-np.expm1(logarithms))
        bins = np.floor(_STEPS * (odds.clip(-_MOST, _MOST) + _MOST)).astype(np.int64)
        self._counts += [np.bincount(own, minlength=self._counts.shape[1]) for own in (bins, bins[is_right])]

    def answered(self) -> Answered:
        """Return the rows that reach each threshold at which there are rows."""
        used = np.flatnonzero(self._counts[0])
        reached = self._counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, used]
        thresholds = 1 / (1 + np.exp(_MOST - used / _STEPS))
        return Answered(thresholds.tolist(), *reached.tolist())


def least_probability(record: dict[str, Any], unknown: float | None, label: Any) -> float | None:
    """Return the threshold by a model's record for the accuracy `unknown`; None stays None.

    Raises `SettingsError` if it is no accuracy, or `label`, that of unknown rows, is a class; `ModelError` if
    the model has no threshold for it.
    """
    if unknown is None:
        return None
    accuracy = checks.ACCURACY.checked("unknown", unknown)
    if str(label) in record["classes"]:
        raise wrong_setting("unknown_label", f"must be no class of the model, and {str(label)!r} is one")
    if format.ANSWERED not in record:
        remedy = Remedy("{} does it, on rows that its run held out, or on other data", Call("calibrate"))
        raise ModelError("unknown needs a model that was calibrated", remedy=remedy)
    answered = Answered(**record[format.ANSWERED])
    if np.isnan(threshold := answered.threshold(accuracy)):
        problem = (
            f"no threshold reaches an accuracy of {accuracy:g} on the {answered.rows[0]:,} held-out rows"
        )
        raise ModelError(problem, remedy=Remedy("ask for less, or calibrate on more rows"))
    return threshold
