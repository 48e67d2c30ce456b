"""Results that training, tuning and calibration return."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm.base.progress import of_model
from streamsvm.base.repr import Readable, html_table

_SHOWN_PASSES = 10
_HEADINGS = {
    "pass": "pass",
    "relative gap": "relative_gap",
    "estimated gap": "relative_gap_estimate",
    "primal": "primal",
    "train accuracy": "train_accuracy",
    "valid accuracy": "valid_accuracy",
    "seconds": "seconds",
}


@dataclasses.dataclass(frozen=True, repr=False)
class Calibration(Readable):
    """Result of fitting the temperature of a model.

    Attributes
    ----------
    temperature : float
        Divisor of the scores before the softmax.
    log_loss_before, log_loss : float
        Mean log loss with the old temperature (1 if there was none), and with the new temperature.
    rows : int
        Number of rows whose label the model knows; the temperature is fitted to these rows.
    warning : str or None
        Reason why the temperature does not minimise the log loss; None if it does.
    unknown : list of dict
        Effect of the parameter `unknown` of `streamsvm.predict`, for six accuracies. Each dict contains
        ``unknown`` (the target accuracy), ``probability`` (the threshold below which rows are unknown),
        ``answered`` (the fraction of held-out rows at or above it) and ``accuracy`` (that of these rows).
    """

    temperature: float
    log_loss_before: float
    log_loss: float
    rows: int
    warning: str | None = None
    unknown: list[dict[str, float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, repr=False)
class _TrainingResult(Readable):
    """Base class of `FitResult` and `OnlineResult`, which document the fields."""

    status: str
    C: float
    progressive_accuracy: float | None
    rows_per_second: float
    waited_fraction: float
    seconds: float
    peak_memory_bytes: int
    checkpoints: int
    checkpoint_seconds: float
    checkpoint_bytes: int
    empty_rows: int
    model: str
    history: list[dict[str, Any]]
    warnings: list[str]


@dataclasses.dataclass(frozen=True, repr=False)
class FitResult(_TrainingResult):
    """Result of `streamsvm.fit`.

    Attributes
    ----------
    status : {"done", "converged"}
        "converged" if the relative gap reached ``tol``, "done" if all passes were made.
    passes : int
        Number of passes made.
    C : float
        C of the settings, or the value chosen from the data.
    dual, primal, gap, relative_gap : float or None
        Exact values for the model; None if not measured, as with ``gap="none"``. The gap is an upper bound on
        the distance of the primal from its minimum, up to the rounding of the weights.
    gap_decay : float or None
        Gap of the last iterate divided by the gap after the first pass.
    train_accuracy : float or None
        Fraction of the training rows predicted correctly; None with ``gap="none"``.
    valid_accuracy : float or None
        Fraction of the validation or held-out rows predicted correctly; None if there are none.
    last_iterate : dict or None
        The dual, primal, gap and relative_gap of the last iterate, if the model is the average.
    averaged : bool
        Whether the model is the average of the last pass's iterates rather than the last iterate.
    progressive_accuracy : float or None
        Fraction of the rows predicted correctly in the first pass, just before training on them. None if a
        warning says that the order of the labels invalidates it, or if training began at the class means.
    rows_per_second : float
        Number of rows visited per second of training.
    waited_fraction : float
        Fraction of the training time spent waiting for the store.
    seconds : float
        Time spent in this process, plus the time of interrupted processes up to their last commit.
    peak_memory_bytes : int
        Largest private memory observed, excluding memory-mapped files.
    checkpoints : int
        Number of commits by this process; 0 if the run was already finished.
    checkpoint_seconds : float
        Total duration of these commits.
    checkpoint_bytes : int
        Total size of the weights that these commits wrote, in bytes.
    empty_rows : int
        Number of rows left out of the objective because they have norm zero or lack a required label.
    unweighted_rows : int
        Number of rows with weight zero, left out of the objective and the training accuracies.
    model : str
        Folder of the model.
    settings : dict
        Settings of the run, including defaults.
    history : list of dict
        Report on each pass.
    warnings : list of str
        Faults that were repaired, such as a damaged commit, and causes of a worse model, such as rows sorted
        by label.
    hint : str or None
        Advice on how to lower the gap, if it is large and the last pass still lowered it.
    """

    passes: int
    dual: float | None
    primal: float | None
    gap: float | None
    relative_gap: float | None
    gap_decay: float | None
    train_accuracy: float | None
    valid_accuracy: float | None
    last_iterate: dict[str, float] | None
    averaged: bool
    unweighted_rows: int
    settings: dict[str, Any]
    hint: str | None

    def _facts(self) -> dict[str, Any]:
        names = (
            "C", "passes", "relative_gap", "train_accuracy", "valid_accuracy", "averaged",
            "progressive_accuracy", "seconds",
        )  # fmt: skip
        return {
            "status": self.status,
            "loss": self.settings.get("loss"),
            **{name: getattr(self, name) for name in names},
            "model": self.model or None,
            "warnings": self.warnings or None,
            "hint": self.hint,
        }

    def _more_html(self) -> str:
        shown = [of_model(report) for report in self.history[-_SHOWN_PASSES:]]
        known = {key for report in shown for key, value in report.items() if value is not None}
        columns = {title: key for title, key in _HEADINGS.items() if key in known}
        rows = [[*(report.get(key) for key in columns.values()), ""] for report in shown]
        rows[-1][-1] = "the model"
        return html_table(rows, headings=[*columns, ""], marked=len(rows) - 1)


@dataclasses.dataclass(frozen=True, repr=False)
class TuneResult(Readable):
    """Result of a search for settings.

    Attributes
    ----------
    C : float
        Best value of C.
    settings : dict
        Best values of the other settings for which several values were tried.
    valid_accuracy : float
        Held-out accuracy of the best combination. The final model is trained on the held-out rows, too.
    valid_passes : int
        Number of passes of the trial with that accuracy, including its earlier passes with smaller C.
    tried : list of dict
        A dict for each combination of settings tried, with ``C``, ``settings``, ``valid_accuracy``,
        ``valid_accuracy_std`` (over the folds, if any), ``passes`` and ``seconds``.
    result : FitResult
        Result of training with the best settings.
    model : Model or None
        Model trained on a matrix; None for a store, whose model is in the run directory.
    """

    C: float
    settings: dict[str, Any]
    valid_accuracy: float
    valid_passes: int
    tried: list[dict[str, Any]]
    result: FitResult
    model: Any = dataclasses.field(default=None, repr=False)

    def _facts(self) -> dict[str, Any]:
        return {
            "C": self.C,
            "settings": self.settings or None,
            "valid_accuracy": self.valid_accuracy,
            "valid_passes": self.valid_passes,
            "tried": len(self.tried),
            "passes": self.result.passes,
            "model": self.result.model or None,
        }

    def _more_html(self) -> str:
        possible = ("C", "settings", "valid_accuracy", "valid_accuracy_std", "passes", "seconds")
        names = [name for name in possible if self.tried[0].get(name) not in (None, {})]
        best = (self.C, self.settings)
        chosen = [(row["C"], row["settings"]) for row in self.tried].index(best)
        rows = [[*(row[name] for name in names), ""] for row in self.tried]
        rows[chosen][-1] = "chosen"
        headings = [*(name.replace("_", " ") for name in names), ""]
        return html_table(rows, headings=headings, marked=chosen)


@dataclasses.dataclass(frozen=True, repr=False)
class OnlineResult(_TrainingResult):
    """Result of `streamsvm.online`.

    Attributes
    ----------
    status : {"done", "stopped"}
        "done" if the stream ended, "stopped" if `resume` could not read the rest of a pipe.
    C : float
        Value of C; with "auto", it is fixed after the first 1,000 rows.
    rows, classes, features : int
        Numbers of rows, classes and features.
    progressive_accuracy : float or None
        Fraction of the rows predicted correctly just before training on them; the first row of a class counts
        as wrong. None if a warning says that the order of the labels invalidates it.
    recent_accuracy : float or None
        The same fraction for the rows since the previous line of the report.
    rows_per_second, waited_fraction, seconds, peak_memory_bytes, checkpoints, checkpoint_seconds,
    checkpoint_bytes, model, warnings
        As in `FitResult`.
    empty_rows : int
        Number of rows skipped because they have norm zero or no known label.
    input : dict
        Counts that describe the input, up to the last row trained on.
    history : list of dict
        Lines of the report since this process began.
    """

    rows: int
    classes: int
    features: int
    recent_accuracy: float | None
    input: dict[str, Any]

    def _facts(self) -> dict[str, Any]:
        names = ("status", "C", "rows", "classes", "features", "progressive_accuracy", "seconds", "model")
        return {**{name: getattr(self, name) for name in names}, "warnings": self.warnings or None}
