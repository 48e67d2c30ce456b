"""Choose thresholds for selective prediction, which leaves rows with small probabilities unanswered.

Rows are counted in bins of the log-odds of their largest probability, so memory does not grow with the number
of rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.errors import Call, ModelError, Remedy, wrong_setting
from streamsvm.settings import checks

ACCURACIES = (0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
_STEPS, _MAX_ODDS = 10, 20  # bins per unit of log-odds; largest log-odds, where the last bin starts


@dataclasses.dataclass(frozen=True)
class Answered:
    """Number of rows answered at each threshold, and number of those that are predicted correctly."""

    thresholds: list[float]  # increasing probabilities; all rows reach the first one
    rows: list[int]
    right: list[int]  # number of these rows that are predicted correctly

    def __post_init__(self) -> None:
        table = np.array([self.thresholds, self.rows, self.right])  # unequal lengths: ValueError
        is_ordered = (np.diff(table) * [[1], [-1], [-1]] >= 0).all()
        if not (table.size and is_ordered and (table[1] >= table[2]).all() and (table >= 0).all()):
            raise ValueError("thresholds must not decrease, and rows and right must not increase")

    def threshold(self, accuracy: float) -> float:
        """Return the smallest threshold at which the accuracy of the answered rows is at least `accuracy`.

        It is 0 if all rows can be answered, and NaN if no threshold suffices. One additional error is
        assumed, because a few correct predictions prove little.
        """
        reached = np.flatnonzero(np.array(self.right) >= accuracy * (np.array(self.rows) + 1))
        if not len(reached):
            return np.nan
        return self.thresholds[reached[0]] if reached[0] else 0.0

    def by_threshold(self, chosen: Answered) -> list[dict[str, float]]:
        """Apply the thresholds that `chosen` selects for `ACCURACIES` to these counts.

        Return a dict for each accuracy, with ``unknown`` (the accuracy), ``probability`` (the threshold, or
        NaN), ``answered`` (the fraction of rows answered) and ``accuracy`` (that of these rows, or NaN).
        """
        thresholds = [chosen.threshold(accuracy) for accuracy in ACCURACIES]
        positions = np.searchsorted(self.thresholds, thresholds)
        rows, right = np.append(self.rows, 0)[positions], np.append(self.right, 0)[positions]
        accuracies = np.where(rows, right / np.maximum(rows, 1), np.nan)
        columns = ACCURACIES, thresholds, (rows / self.rows[0]).tolist(), accuracies.tolist()
        names = "unknown", "probability", "answered", "accuracy"
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


class AnswerCounts:
    """Accumulate the counts of `Answered` over batches of rows."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, 2 * _STEPS * _MAX_ODDS + 1), np.int64)

    def add(self, logarithms: np.ndarray, is_right: np.ndarray) -> None:
        logarithms = np.minimum(logarithms, 0.0)
        with np.errstate(divide="ignore"):
            odds = logarithms - np.log(-np.expm1(logarithms))
        bins = np.floor(_STEPS * (odds.clip(-_MAX_ODDS, _MAX_ODDS) + _MAX_ODDS)).astype(np.int64)
        self._counts += [np.bincount(b, minlength=self._counts.shape[1]) for b in (bins, bins[is_right])]

    def answered(self) -> Answered:
        used = np.flatnonzero(self._counts[0])
        reached = self._counts[:, ::-1].cumsum(axis=1)[:, ::-1][:, used]
        thresholds = 1 / (1 + np.exp(_MAX_ODDS - used / _STEPS))
        return Answered(thresholds.tolist(), *reached.tolist())


def probability_threshold(record: dict[str, Any], unknown: float | None, label: Any) -> float | None:
    """Return the threshold for the accuracy `unknown` from a model's record; None if `unknown` is None.

    Raises `SettingsError` if `unknown` is not an accuracy, or if `label`, the label for unknown rows, is a
    class. Raises `ModelError` if the model is not calibrated, or if no threshold reaches the accuracy.
    """
    if unknown is None:
        return None
    accuracy = checks.ACCURACY.checked("unknown", unknown)
    if str(label) in record["classes"]:
        raise wrong_setting("unknown_label", f"must not be a class of the model, but {str(label)!r} is one")
    if format.ANSWERED not in record:
        remedy = Remedy("calibrate it with {}, on rows that it was not trained on", Call("calibrate"))
        raise ModelError("unknown needs a calibrated model, but this one is not calibrated", remedy=remedy)
    answered = Answered(**record[format.ANSWERED])
    if np.isnan(threshold := answered.threshold(accuracy)):
        problem = (
            f"no threshold reaches an accuracy of {accuracy:g} on the {answered.rows[0]:,} held-out rows"
        )
        raise ModelError(problem, remedy=Remedy("choose a lower accuracy, or calibrate on more rows"))
    return threshold
