"""Plot runs and evaluations with matplotlib (extra ``plot``).

Each function draws on the matplotlib axes `ax`, by default on new ones, and returns them::

    from streamsvm import evaluate, plot

    plot.convergence("run")
    plot.confusion(evaluate("run", "test.zarr")).figure.savefig("confusion.svg")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamsvm.base.text import shortened
from streamsvm.errors import ModelError, RunError, StreamsvmError, extra, wrong_setting
from streamsvm.prediction.evaluation import Evaluation
from streamsvm.reporting.history import history_of, number, points, with_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["accuracy", "answered", "confusion", "convergence", "progressive"]

# Colours that colour-blind people can distinguish, and that are dark enough on white.
_BLUE, _ORANGE, _GREY = "#0067a5", "#b84a00", "#6e7781"
_STYLES = ((_BLUE, "-"), (_ORANGE, "--"), (_GREY, ":"))
_MAX_CLASSES = 20  # so that a confusion matrix fits a screen of 1,280 pixels
_MAX_MARKERS = 30


def check_matplotlib() -> None:
    with extra(StreamsvmError, "plots need matplotlib, which is not installed", "plot"):
        import matplotlib.axes  # noqa: F401


def convergence(
    run: Any,
    ax: Axes | None = None,
    *,
    of: Literal["gap", "objective"] = "gap",
    by: Literal["pass", "seconds"] = "pass",
) -> Axes:
    """Draw the relative duality gap of a fit, or its primal and dual objectives.

    Parameters
    ----------
    run : path, FitResult or Model
        Run directory, also while the run is in progress, or the result of `streamsvm.fit`.
    ax : matplotlib Axes, optional
    of : {"gap", "objective"}
        Quantity to draw. The gap is drawn on a log scale, on which values of 0 or less are left out. Exact
        gaps of the last iterate and the average are drawn where they were measured, and estimates made during
        the passes are grey. If the primal was measured at most once, its estimates are drawn.
    by : {"pass", "seconds"}
        Horizontal axis: passes, or seconds of training, excluding the time for measurements.

    Raises
    ------
    RunError
        If the run does not exist, or contains no measurements to draw.
    SettingsError
        If `of` or `by` is invalid.
    """
    history = history_of(run)
    for name, value, choices in (("of", of, ("gap", "objective")), ("by", by, ("pass", "seconds"))):
        if value not in choices:
            raise wrong_setting(name, f"must be {' or '.join(choices)}, not {value!r}")
    passes = with_seconds(history.passes)
    x = "pass" if by == "pass" else "trained_seconds"
    if of == "gap":
        names = {"relative_gap": "last iterate", "average_relative_gap": "average"}
        names["relative_gap_estimate"] = "estimate"
        for each in passes:
            each.update({key: None for key in names if (number(each, key) or 0.0) <= 0})
    else:
        few = len(points(passes, x, "primal")[0]) < min(len(passes), 2)
        estimated = few and any("primal_estimate" in each for each in passes)
        names = {"primal_estimate": "primal (estimate)"} if estimated else {"primal": "primal"}
        names["dual"] = "dual"
    ax = _curves(ax, passes, x, names, f"{history.name} contains no values of the {of} to draw")
    lowest, highest = ax.dataLim.intervaly
    if of == "gap" or highest > 50 * lowest > 0:
        ax.set_yscale("log")
    tol = number(history.settings, "tol") or 0.0
    if of == "gap" and tol > 0:
        ax.axhline(tol, color=_GREY, linewidth=1, label=f"tol {tol:g}")
    if by == "seconds":
        ax.set_xlim(left=0)
    return _finish(
        ax, "pass" if by == "pass" else "training time (seconds)", "relative gap" if of == "gap" else of
    )


def accuracy(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the accuracies on the validation rows and, where measured, on the training rows, by pass.

    Raises `RunError` if the run does not exist, or contains no accuracy for any pass.

    Parameters
    ----------
    run, ax
        As for `convergence`.
    """
    history = history_of(run)
    names = {"last_iterate_valid_accuracy": "valid, last iterate", "valid_accuracy": "valid"}
    names["train_accuracy"] = "train"
    empty = "contains no accuracy for any pass; train with a validation store, or with gap='pass'"
    ax = _curves(ax, history.passes, "pass", names, f"{history.name} {empty}")
    return _finish(ax, "pass", "accuracy", percent=True)


def progressive(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the progressive accuracy, measured by predicting each row just before first learning from it.

    Raises `RunError` if the run does not exist, or contains no progressive accuracy. It is not measured if it
    would be biased by the order of the labels, or by starting at the class means.

    Parameters
    ----------
    run : path, FitResult, OnlineResult or Model
        As for `convergence`, or an online run.
    ax : matplotlib Axes, optional
    """
    history = history_of(run)
    first = [record for record in history.passes if record.get("pass") == 1]
    records = [each for each in (*history.rows, *first) if (number(each, "rows") or 0) > 0]
    names = {"progressive_accuracy": "all rows so far", "recent_accuracy": "since the last point"}
    empty = (
        "contains no progressive accuracy: none was reported yet, or it would be biased by the order of the "
        "labels or by starting at the class means; wait for a report, or call plot.accuracy instead"
    )
    ax = _curves(ax, records, "rows", names, f"{history.name} {empty}")
    ax.set_xscale("log")
    return _finish(ax, "rows learned from", "progressive accuracy", percent=True)


def confusion(evaluation: Evaluation, ax: Axes | None = None) -> Axes:
    """Draw a confusion matrix: a row for each true class and a column for each predicted class.

    Raises `ModelError` if `evaluation` is not an evaluation of rows with one label each.

    Parameters
    ----------
    evaluation : Evaluation
        Result of `streamsvm.evaluate` for rows with one label each.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Axes with the matrix. If there are more than 20 classes, only the 20 with the lowest F1 are drawn.
        Rows are labelled with class names and numbers, and columns only with numbers. A cell is darker if it
        contains a larger fraction of the rows of its true class.
    """
    check_matplotlib()
    counts = getattr(evaluation, "counts", None)
    if not isinstance(evaluation, Evaluation) or counts is None:
        raise ModelError("evaluation must be the result of evaluate for rows that have one label each")
    from scipy.sparse import coo_array

    k = len(counts.names)
    codes = np.arange(k) if k <= _MAX_CLASSES else np.sort(counts.worst()[:_MAX_CLASSES])
    true, predicted, errors = counts.pairs.T
    pairs = coo_array((errors, (true, predicted)), shape=(k, k)).tocsr()
    matrix = pairs[codes][:, codes].toarray() + np.diag(counts.correct[codes])
    fractions = matrix / np.maximum(counts.rows[codes, None], 1)
    ax = _axes(ax, matrix_size(k))
    ax.pcolormesh(fractions, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            colour = "white" if fractions[row, column] > 0.5 else "black"
            ax.text(column + 0.5, row + 0.5, str(count), color=colour, fontsize=7, ha="center", va="center")
    names = [f"{shortened(counts.names[code], 30)} ({at})" for at, code in enumerate(codes, 1)]
    middles = np.arange(len(codes)) + 0.5
    ax.set_xticks(middles, [str(at) for at in range(1, len(codes) + 1)])
    ax.set_yticks(middles, names, parse_math=False)
    ax.invert_yaxis()
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.grid(visible=False)
    return ax


def answered(evaluation: Evaluation, ax: Axes | None = None) -> Axes:
    """Draw the accuracy of the rows with the largest probabilities against the fraction of rows answered.

    Raises `ModelError` if the evaluation has no probabilities.

    Parameters
    ----------
    evaluation : Evaluation
        Result of `streamsvm.evaluate` for a model with probabilities.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        Axes with the curve. For a calibrated model, each threshold is marked with its target accuracy.
    """
    curve = getattr(evaluation, "answered", None)
    if curve is None:
        raise ModelError("evaluation has no probabilities; calibrate the model, then evaluate it again")
    ax = _axes(ax)
    rows = np.array(curve.rows)
    ax.plot(rows / rows[0], np.array(curve.right) / rows, color=_BLUE)
    for each in evaluation.unknown:
        if each["answered"]:
            ax.plot(each["answered"], each["accuracy"], "o", color=_ORANGE)
            ax.annotate(f"{each['unknown']:g}", (each["answered"], each["accuracy"]))
    return _finish(ax, "fraction of rows answered", "accuracy of answered rows", percent=True)


def matrix_size(n_classes: int) -> tuple[float, float]:
    """Return the width and height of a confusion matrix in inches."""
    n = min(n_classes, _MAX_CLASSES)
    return 3.2 + 0.45 * n, 1.1 + 0.28 * n


def _axes(ax: Axes | None, size: tuple[float, float] = (5, 3.2)) -> Axes:
    check_matplotlib()
    if ax is None:
        import matplotlib.pyplot

        _, ax = matplotlib.pyplot.subplots(figsize=size, layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis="y", alpha=0.4)
    return ax


def _curves(
    ax: Axes | None, records: list[dict[str, Any]], x: str, names: dict[str, str], empty: str
) -> Axes:
    """Draw a curve for each key in `names` against `x`; raise ``RunError(empty)`` if there are no values."""
    curves = {name: points(records, x, key) for key, name in names.items()}
    if not any(xs for xs, _ in curves.values()):
        raise RunError(empty)
    ax = _axes(ax)
    for (name, (xs, ys)), (colour, style) in zip(curves.items(), _STYLES, strict=False):
        if xs:
            marker = "o" if len(xs) <= _MAX_MARKERS else ""
            ax.plot(xs, ys, color=colour, linestyle=style, marker=marker, markersize=4, label=name)
    return ax


def _finish(ax: Axes, x: str, y: str, *, percent: bool = False) -> Axes:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

    ax.set(xlabel=x, ylabel=y)
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            low, high = sorted(axis.get_view_interval())
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter("{x:g}")
    if x == "pass":
        ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
    if percent:
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    if len(ax.get_legend_handles_labels()[0]) > 1:
        ax.legend()
    return ax
