"""Results of training, tuning and calibration: how they ended, and the evidence."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm.base.progress import of_model
from streamsvm.base.repr import Readable, html_table

_SHOWN_PASSES = 10  # last passes that a notebook shows
_HEADINGS = {  # headings of the table of passes, and their keys in a report
    "pass": "pass",
    "relative gap": "relative_gap",
    "its estimate": "relative_gap_estimate",
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
        Divisor of the scores before their softmax.
    log_loss_before, log_loss : float
        Mean over the rows of −log of the probability of the own class: with the model's temperature before
        (1 if it had none), and with the new one.
    rows : int
        Rows with a label that the model knows; the others took no part.
    warning : str or None
        Reason why the temperature is not the minimum of the log loss.
    unknown : list of dict
        What `streamsvm.predict` does with `unknown`, for six accuracies: ``probability``, the threshold below
        which rows are unknown, and, of all hold-out rows, the share ``answered`` and its ``accuracy``.
    """

    temperature: float
    log_loss_before: float
    log_loss: float
    rows: int
    warning: str | None = None
    unknown: list[dict[str, float]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, repr=False)
class _TrainingResult(Readable):
    """What results of a fit and of a pass over a stream have in common; `FitResult` explains it."""

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
    """Result of a fit: how it ended, and the evidence.

    Attributes
    ----------
    status : {"done", "converged"}
        "done" if all passes were made, "converged" if the relative gap reached ``tol`` before.
    passes : int
        Passes over the data.
    C : float
        The C of the settings, or the one chosen from the data.
    dual, primal, gap, relative_gap : float or None
        Of the model, exact; None if they were not measured, as with ``gap="none"``. The gap bounds how far
        the primal is from its minimum, up to the rounding of the weights' dtype.
    gap_decay : float or None
        Gap of the last iterate divided by that after the first pass.
    train_accuracy : float or None
        Fraction of the training rows that the model classifies correctly; None if ``gap="none"``, as it is
        measured with the gap.
    valid_accuracy : float or None
        The same fraction of the validation rows, or of those held out; None without such rows.
    last_iterate : dict or None
        The dual, primal, gap and relative_gap of the last iterate, if the model is the average instead.
    averaged : bool
        True if the model is the average of the iterates of the last pass, False if it is the last one.
    progressive_accuracy : float or None
        Fraction of the rows of the first pass that were predicted correctly, each before it was learned
        from; None where the order of the labels makes it no estimate, as a warning says, and where training
        began at the means of the classes.
    rows_per_second : float
        Mean over the training time of all passes.
    waited_fraction : float
        Fraction of the training time that was spent waiting for the store.
    seconds : float
        Time spent in this process and, in earlier ones that were interrupted, up to their last commit.
    peak_memory_bytes : int
        Largest private memory observed; memory-mapped files are not counted.
    checkpoints : int
        Commits made by this process; 0 if nothing was left to do.
    checkpoint_seconds : float
        Time that these commits took together.
    checkpoint_bytes : int
        Bytes of weights that they wrote.
    empty_rows : int
        Rows of norm zero, from which nothing can be learned, and rows without a label if the loss needs one;
        they are left out of the objective.
    unweighted_rows : int
        Rows of weight zero, which are left out of the objective and of the training accuracies.
    model : str
        Folder of the model.
    settings : dict
        The settings of the run, with the defaults filled in.
    history : list of dict
        The report of each pass.
    warnings : list of str
        Faults that were repaired, such as a damaged commit that was passed over on resuming, and
        conditions that make a worse model, such as rows sorted by label.
    hint : str or None
        How to lower the gap, if it is large and the last pass still lowered it; the accuracy may be fine.
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
        C of the best setting.
    settings : dict
        The other settings of the best, those of which several were tried.
    valid_accuracy : float
        Accuracy of the best setting on the held-out rows. The model itself was trained on these rows, too,
        by other passes.
    valid_passes : int
        Passes of the trial with that accuracy, including those at smaller C before.
    tried : list of dict
        Each setting: ``C``, ``settings``, ``valid_accuracy`` on the held-out rows, with folds its standard
        deviation over them, ``valid_accuracy_std``, and the ``passes`` and ``seconds`` that it took.
    result : FitResult
        Result of the training with the best settings.
    model : Model or None
        The model of a matrix; that of a store is in the run directory.
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
    """Result of a pass over a stream.

    Attributes
    ----------
    status : {"done", "stopped"}
        "done" if the stream ended, "stopped" if it could not be read any further; then the model is that of
        the rows before.
    C : float
        The C that trained the rows, from the first 1,000 of them on.
    rows, classes, features : int
    progressive_accuracy : float or None
        Fraction of the rows that were predicted correctly by the weights before them; the first row of a
        class counts as wrong. None where the order of the labels makes it no estimate, as a warning says.
    recent_accuracy : float or None
        The same fraction since the previous line of the report.
    rows_per_second, waited_fraction, seconds, peak_memory_bytes, checkpoints, checkpoint_seconds,
    checkpoint_bytes
        As in `FitResult`.
    empty_rows : int
        Rows of norm zero, or without a known label, from which nothing was learned.
    input : dict
        Counts of the input's contents, as far as it was learned from.
    model : str
        Folder of the model.
    history : list of dict
        The lines of the report since this process began.
    warnings : list of str
    """

    rows: int
    classes: int
    features: int
    recent_accuracy: float | None
    input: dict[str, Any]

    def _facts(self) -> dict[str, Any]:
        names = ("status", "C", "rows", "classes", "features", "progressive_accuracy", "seconds", "model")
        return {**{name: getattr(self, name) for name in names}, "warnings": self.warnings or None}
