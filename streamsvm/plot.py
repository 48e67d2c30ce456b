"""Pictures of runs and models, as matplotlib axes (extra ``plot``).

Each function draws into `ax`, or into new axes, and returns them::

    from streamsvm import plot

    plot.convergence("run")
    plot.confusion("run", "test.zarr").figure.savefig("confusion.svg")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streamsvm.errors import ModelError, RunError, SettingsError
from streamsvm.label_values import class_name
from streamsvm.reporting.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Curve,
    as_percent,
    axes_or_new,
    draw_bars,
    draw_curves,
    label_dots,
    label_ends,
    needs_matplotlib,
    plain_log,
    whole_numbers,
)
from streamsvm.reporting.features import top_features as _top_features
from streamsvm.reporting.history import History, history_of, number, points, with_seconds
from streamsvm.reporting.names import shown
from streamsvm.reporting.outcomes import model_of, outcomes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "accuracy",
    "class_accuracy",
    "confusion",
    "convergence",
    "pass_times",
    "progressive",
    "top_features",
    "tune_path",
]


_MOST_DOTS = 400  # classes that are drawn one by one
_MOST_NAMED = 12  # classes that are named beside their dots
MOST_PATHS = 4  # settings whose accuracies are drawn as curves


# -- training --------------------------------------------------------------------------------------


@needs_matplotlib
def convergence(
    run: Any,
    ax: Axes | None = None,
    *,
    of: Literal["gap", "objective"] = "gap",
    by: Literal["pass", "seconds"] = "pass",
) -> Axes:
    """Draw how the relative duality gap, or the primal and dual objectives, went in a fit.

    Parameters
    ----------
    run : path, FitResult or Model
        A run directory, also of a run in progress, or what `streamsvm.fit` returned.
    ax : matplotlib Axes, optional
    of : {"gap", "objective"}
        The gap is on a log scale, which leaves out values that are not above 0. The exact one is drawn where
        it was measured, for the average of the iterates as well, and an estimate from the passes themselves
        in grey. A primal that was measured only once is drawn by its estimates.
    by : {"pass", "seconds"}
        Against passes, or against seconds of training; measuring is not counted.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    RunError
        If there is no such run, or no pass is done.
    SettingsError
        If `of` or `by` is not valid.
    """
    history = history_of(run)
    for name, value, choices in (("of", of, ("gap", "objective")), ("by", by, ("pass", "seconds"))):
        if value not in choices:
            raise SettingsError(f"{name} must be {' or '.join(choices)}, not {value!r}", setting=name)
    passes = with_seconds(_passes(history))
    x = "pass" if by == "pass" else "trained_seconds"
    ax = axes_or_new(ax)
    if of == "gap":
        curves = [
            Curve("estimate", points(passes, x, "relative_gap_estimate"), GREY, ":"),
            Curve("average", points(passes, x, "average_relative_gap"), ORANGE, "--"),
            Curve("last iterate", points(passes, x, "relative_gap"), BLUE, "-"),
        ]
        curves = [curve.above_zero() for curve in curves]
        ax.set_ylabel("relative gap")
        ends = draw_curves(ax, curves)
        if ends:
            ax.set_yscale("log")
            plain_log(ax.yaxis)
        tol = number(history.settings, "tol")
        if tol is not None and tol > 0:
            ax.axhline(tol, color=GREY, linewidth=1)
            ends.append((f"tol {tol:g}", tol, GREY))
    else:
        primal = Curve("primal", points(passes, x, "primal"), BLUE, "-")
        if len(primal.x) < 2 <= len(passes):  # it was measured at the end, if at all
            estimate = points(passes, x, "primal_estimate")
            primal = Curve("primal (estimate)", estimate, BLUE, "-") if estimate[0] else primal
        dual = Curve("dual", points(passes, x, "dual"), ORANGE, "--")
        ax.set_ylabel("objective")
        ends = draw_curves(ax, [primal, dual])
        values = [*primal.y, *dual.y]
        if values and min(values) > 0 and max(values) > 50 * min(values):
            ax.set_yscale("log")
            plain_log(ax.yaxis)
    if not ends:
        raise RunError(f"{history.name} has no figures of its {of} by {by}")
    if by == "pass":
        whole_numbers(ax)
    else:
        ax.set_xlim(left=0)
        ax.locator_params(axis="x", nbins=6)
    ax.set_xlabel("pass" if by == "pass" else "training time (seconds)")
    label_ends(ax, ends)
    return ax


@needs_matplotlib
def accuracy(run: Any, ax: Axes | None = None) -> Axes:
    """Draw ``train_accuracy`` and ``valid_accuracy`` by pass; the former is measured with the gap.

    Parameters
    ----------
    run : path, FitResult or Model
        As for `convergence`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    RunError
        If there is no such run, or it measured no accuracy of a pass.
    """
    history = history_of(run)
    passes = _passes(history)
    curves = [
        Curve("train", points(passes, "pass", "train_accuracy"), GREY, ":"),
        Curve("valid,\nlast iterate", points(passes, "pass", "last_iterate_valid_accuracy"), BLUE, "-"),
        Curve("valid", points(passes, "pass", "valid_accuracy"), ORANGE, "--"),
    ]
    ax = axes_or_new(ax)
    ends = draw_curves(ax, curves)
    if not ends:
        raise RunError(
            f"{history.name} measured no accuracy of its passes; give it a validation "
            "store, or measure the gap of each pass"
        )
    ax.set_xlabel("pass")
    ax.set_ylabel("accuracy")
    whole_numbers(ax)
    as_percent(ax.yaxis)
    label_ends(ax, ends)
    return ax


@needs_matplotlib
def pass_times(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the seconds of each pass, and how many of them the training waited for rows or for workers.

    Parameters
    ----------
    run : path, FitResult or Model
        As for `convergence`.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    RunError
        If there is no such run, or no pass is done.
    """
    history = history_of(run)
    passes = _passes(history)
    curves = [
        Curve("whole pass", points(passes, "pass", "seconds"), BLUE, "-"),
        Curve("waiting for\nworkers", points(passes, "pass", "waited_for_workers_seconds"), ORANGE, "--"),
        Curve("waiting for\nrows", points(passes, "pass", "waited_seconds"), GREY, ":"),
    ]
    ax = axes_or_new(ax)
    ends = draw_curves(ax, curves)
    if not ends:
        raise RunError(f"{history.name} has no seconds of its passes")
    ax.set_xlabel("pass")
    ax.set_ylabel("seconds")
    ax.set_ylim(bottom=0)
    whole_numbers(ax)
    label_ends(ax, ends)
    return ax


@needs_matplotlib
def progressive(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the progressive accuracy: of each row of the first pass, just before it was learned from.

    Parameters
    ----------
    run : path, FitResult, OnlineResult or Model
        Also a run over a stream.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        With the rows on a log scale.

    Raises
    ------
    RunError
        If there is no such run, or it has no progressive accuracy: none was reported yet, or the order of the
        labels makes it no estimate.
    """
    history = history_of(run)
    first = [record for record in history.passes if record.get("pass") == 1]
    records = [each for each in (*history.rows, *first) if (number(each, "rows") or 0) > 0]
    curves = [
        Curve("since the last\npoint", points(records, "rows", "recent_accuracy"), ORANGE, "--"),
        Curve("all rows\nso far", points(records, "rows", "progressive_accuracy"), BLUE, "-"),
    ]
    if not curves[0].x:
        curves[1] = curves[1].renamed("")
    ax = axes_or_new(ax)
    ends = draw_curves(ax, curves)
    if not ends:
        raise RunError(
            f"{history.name} has no progressive accuracy: none was reported yet, or the order of the labels "
            "makes it no estimate"
        )
    ax.set_xscale("log")
    plain_log(ax.xaxis)
    ax.set_xlabel("rows learned from")
    ax.set_ylabel("progressive accuracy")
    as_percent(ax.yaxis)
    label_ends(ax, ends)
    return ax


@needs_matplotlib
def tune_path(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the ``valid_accuracy`` of each C that `streamsvm tune` tried, with a curve for other settings.

    Parameters
    ----------
    run : path
        Run directory with ``tune.jsonl``.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes
        With C on a log scale. Of more than four curves, those with the best accuracies are drawn.

    Raises
    ------
    RunError
        If nothing was tried there.
    """
    history = history_of(run)
    paths: dict[str, list[dict[str, Any]]] = {}
    for record in history.tried:
        if (number(record, "C") or 0) > 0 and number(record, "valid_accuracy") is not None:
            paths.setdefault(settings_text(record.get("settings")), []).append(record)
    if not paths:
        raise RunError(
            f"{history.name} has no accuracies of settings that were tried; `streamsvm tune` makes them"
        )
    best_first = sorted(paths, key=lambda name: -max(each["valid_accuracy"] for each in paths[name]))
    ax = axes_or_new(ax)
    styles = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (GREY, ":"))
    curves = []
    for name, (colour, style) in zip(best_first[:MOST_PATHS], styles, strict=False):
        x, y = points(sorted(paths[name], key=lambda each: each["C"]), "C", "valid_accuracy")
        curves.append(Curve(shown(name, 24) if len(paths) > 1 else "", (x, y), colour, style))
    ends = draw_curves(ax, curves)
    ax.set_xscale("log")
    plain_log(ax.xaxis)
    as_percent(ax.yaxis)
    best = max(paths[best_first[0]], key=lambda each: (each["valid_accuracy"], -each["C"]))
    ax.plot([best["C"]], [best["valid_accuracy"]], "o", color=BLUE, markersize=8, fillstyle="none")
    ax.annotate(
        f"C {best['C']:.3g}: {best['valid_accuracy']:.2%}".replace("%", " %"),
        (best["C"], best["valid_accuracy"]), xytext=(0, 8), textcoords="offset points", ha="center",
        color=BLUE,
    )  # fmt: skip
    ax.margins(y=0.2)
    ax.set_xlabel("C")
    ax.set_ylabel("valid accuracy")
    label_ends(ax, ends)
    return ax


def settings_text(settings: Any) -> str:
    """Settings that `streamsvm tune` varied besides C, as text."""
    if not isinstance(settings, dict) or not settings:
        return "defaults"
    return ", ".join(f"{name} {value}" for name, value in sorted(settings.items()))


# -- classes ---------------------------------------------------------------------------------------


@needs_matplotlib
def confusion(run: Any, data: Any = None, ax: Axes | None = None, *, n: int = 12, **options: Any) -> Axes:
    """Draw the most confused pairs of classes in labelled data as bars.

    Parameters
    ----------
    run : path, FitResult, OnlineResult, Model or Outcomes
        A run directory or model folder, what training returned, or predictions that were counted.
    data : as for `streamsvm.evaluate`, optional
        By default the validation store of the run. It is read once, in blocks.
    ax : matplotlib Axes, optional
    n : int
        How many pairs.
    **options
        As for `streamsvm.evaluate`, such as `label` or `memory`.

    Returns
    -------
    matplotlib Axes
        A bar for each pair: rows of the first class for which the second one is predicted.

    Raises
    ------
    ModelError
        If there is no model, no held-out data, or no error to draw. Also as in `streamsvm.evaluate`.
    """
    outcomes = outcomes_of(run, data, **options)
    if not len(outcomes.pairs):
        raise ModelError("no classes are confused: all predictions are right")
    pairs = outcomes.pairs[: max(n, 1)]
    names = [
        f"{shown(outcomes.classes[true], 15)} → {shown(outcomes.classes[predicted], 15)}"
        for true, predicted, _ in pairs
    ]
    shares = [f"{count:,} ({count / outcomes.rows[true]:.1%})".replace("%", " %") for true, _, count in pairs]
    ax = draw_bars(axes_or_new(ax), names, pairs[:, 2], shares, ORANGE)
    ax.set_xlabel("labels" if outcomes.several else "rows")
    return ax


@needs_matplotlib
def class_accuracy(run: Any, data: Any = None, ax: Axes | None = None, **options: Any) -> Axes:
    """Draw the accuracy of each class in labelled data against its number of rows.

    Parameters
    ----------
    run, data, ax, **options
        As for `confusion`.

    Returns
    -------
    matplotlib Axes
        With the rows on a log scale. Of more than 400 classes the medians, and the ranges in which 80 % of
        the classes are, by numbers of rows that are within a factor of two.

    Raises
    ------
    ModelError
        As in `confusion`.
    """
    outcomes = outcomes_of(run, data, **options)
    occurs = np.flatnonzero(outcomes.rows)
    rows, share = outcomes.rows[occurs], outcomes.correct[occurs] / outcomes.rows[occurs]
    ax = axes_or_new(ax)
    ax.set_xscale("log")
    if len(occurs) <= _MOST_DOTS:
        ax.plot(rows, share, "o", color=BLUE, markersize=5, alpha=0.8, markeredgewidth=0)
        worst = np.argsort(share, kind="stable")
        named = worst if len(worst) <= _MOST_NAMED else worst[: _MOST_NAMED // 2]
        label_dots(ax, [(rows[i], share[i], outcomes.classes[occurs[i]]) for i in named])
    else:
        bins = np.floor(np.log2(rows)).astype(int)
        groups = [(rows[bins == b], share[bins == b]) for b in np.unique(bins)]
        middle = [float(np.exp(np.log(r).mean())) for r, _ in groups]
        low, median, high = (np.array([np.quantile(s, q) for _, s in groups]) for q in (0.1, 0.5, 0.9))
        ax.fill_between(middle, low, high, color=BLUE, alpha=0.2, linewidth=0)
        ax.plot(middle, median, "o-", color=BLUE, markersize=4)
        label_ends(
            ax,
            [("median", float(median[-1]), BLUE), ("10 to 90 %\nof classes", float(low[-1]), GREY)],
        )
    if rows.min() == rows.max():
        ax.set_xlim(rows.min() / 2, rows.max() * 2)
    plain_log(ax.xaxis)
    ax.set_xlabel("rows of the class")
    ax.set_ylabel("labels found" if outcomes.several else "accuracy of the class")
    as_percent(ax.yaxis)
    return ax


@needs_matplotlib
def top_features(run: Any, label: Any, ax: Axes | None = None, *, n: int = 10) -> Axes:
    """Draw the features that speak most for a class: those of its largest coefficients.

    Parameters
    ----------
    run : path, FitResult, OnlineResult or Model
        A run directory or model folder, or what training returned.
    label : str
        The class.
    ax : matplotlib Axes, optional
    n : int
        How many features.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ModelError
        If there is no model or class, or the class has no coefficient above 0.
    """
    model = model_of(run)
    classes, name = model.record["classes"], class_name(label)
    if name not in classes:
        raise ModelError(f"the model has no class {shown(name)!r}")
    [features] = _top_features(model, [classes.index(name)], n)
    return draw_features(name, features, ax)


def draw_features(label: Any, features: Sequence[tuple[str, float]], ax: Axes | None = None) -> Axes:
    """Draw features of a class and their coefficients, as `top_features` does."""
    if not features:
        raise ModelError(f"the class {shown(label)!r} has no coefficient above 0")
    values = np.array([value for _, value in features])
    ax = draw_bars(
        axes_or_new(ax), [shown(name, 24) for name, _ in features], values, [f"{v:.3g}" for v in values], BLUE
    )
    ax.set_xlabel("coefficient")
    return ax


def _passes(history: History) -> list[dict[str, Any]]:
    if not history.passes:
        raise RunError(f"{history.name} has no pass that is done yet")
    return history.passes
