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

from streamsvm.base.label_values import class_name
from streamsvm.base.text import shortened
from streamsvm.errors import ModelError, RunError, StreamsvmError, extra, wrong_setting
from streamsvm.model.strongest import strongest_features
from streamsvm.prediction.outcomes import model_of, outcomes_of
from streamsvm.reporting.history import History, history_of, number, points, with_seconds

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

# Colours that colour-blind people tell apart, dark enough on white.
_BLUE, _ORANGE, _GREEN, _GREY = "#0067a5", "#b84a00", "#00785a", "#6e7781"
_STYLES = ((_BLUE, "-"), (_ORANGE, "--"), (_GREY, ":"), (_GREEN, "-."))
MAX_PATHS = len(_STYLES)  # settings whose accuracies are drawn as curves
_MAX_POINTS = 300  # of a curve
_MAX_MARKERS = 30
_MAX_DOTS = 400  # classes that are drawn one by one


def check_matplotlib() -> None:
    """Raise `StreamsvmError` unless matplotlib can be imported."""
    with extra(StreamsvmError, "pictures are drawn by matplotlib, which is not installed", "plot"):
        import matplotlib.axes  # noqa: F401


# -- training --------------------------------------------------------------------------------------


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
            raise wrong_setting(name, f"must be {' or '.join(choices)}, not {value!r}")
    passes = with_seconds(_passes(history))
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
    ax = _curves(ax, passes, x, names, f"{history.name} has no figures of its {of} by {by}")
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
    """Draw ``train_accuracy`` and ``valid_accuracy`` by pass; the former is measured with the gap.

    Parameters
    ----------
    run, ax
        As for `convergence`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    RunError
        If there is no such run, or it measured no accuracy of a pass.
    """
    history = history_of(run)
    names = {"last_iterate_valid_accuracy": "valid, last iterate", "valid_accuracy": "valid"}
    names["train_accuracy"] = "train"
    empty = "measured no accuracy of its passes; give it a validation store, or measure the gap of each pass"
    ax = _curves(ax, _passes(history), "pass", names, f"{history.name} {empty}")
    return _finish(ax, "pass", "accuracy", percent=True)


def pass_times(run: Any, ax: Axes | None = None) -> Axes:
    """Draw the seconds of each pass, and how many of them the training waited for rows or for workers.

    Parameters
    ----------
    run, ax
        As for `convergence`.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    RunError
        If there is no such run, or no pass is done.
    """
    history = history_of(run)
    names = {"seconds": "whole pass", "waited_for_workers_seconds": "waiting for workers"}
    names["waited_seconds"] = "waiting for rows"
    ax = _curves(ax, _passes(history), "pass", names, f"{history.name} has no seconds of its passes")
    ax.set_ylim(bottom=0)
    return _finish(ax, "pass", "seconds")


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
        labels, or a start at the means of the classes, makes it no estimate.
    """
    history = history_of(run)
    first = [record for record in history.passes if record.get("pass") == 1]
    records = [each for each in (*history.rows, *first) if (number(each, "rows") or 0) > 0]
    names = {"progressive_accuracy": "all rows so far", "recent_accuracy": "since the last point"}
    empty = (
        "has no progressive accuracy: none was reported yet, or the order of the labels, or a start at the "
        "means of the classes, makes it no estimate"
    )
    ax = _curves(ax, records, "rows", names, f"{history.name} {empty}")
    ax.set_xscale("log")
    return _finish(ax, "rows learned from", "progressive accuracy", percent=True)


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
    paths: dict[str, list[tuple[float, float]]] = {}
    for record in history.tried:
        C, share = number(record, "C") or 0.0, number(record, "valid_accuracy")
        if C > 0 and share is not None:
            paths.setdefault(settings_text(record.get("settings")), []).append((C, share))
    if not paths:
        raise RunError(
            f"{history.name} has no accuracies of settings that were tried; `streamsvm tune` makes them"
        )
    best = {name: max(path, key=lambda at: (at[1], -at[0])) for name, path in paths.items()}
    best_first = sorted(paths, key=lambda name: -best[name][1])
    ax = _axes(ax)
    for name, style in zip(best_first, _STYLES, strict=False):
        xs, ys = zip(*sorted(paths[name]), strict=True)
        _curve(ax, xs, ys, shortened(name, 24), style)
    C, share = best[best_first[0]]
    ax.annotate(f"C {C:.3g}: {share:.2%}", (C, share), xytext=(0, 8), textcoords="offset points", ha="center")
    ax.set_xscale("log")
    ax.margins(y=0.2)
    return _finish(ax, "C", "valid accuracy", percent=True)


def settings_text(settings: Any) -> str:
    """Return settings that `streamsvm tune` varied besides C as text."""
    if not isinstance(settings, dict) or not settings:
        return "defaults"
    return ", ".join(f"{name} {value}" for name, value in sorted(settings.items()))


# -- classes ---------------------------------------------------------------------------------------


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
    check_matplotlib()
    outcomes = outcomes_of(run, data, **options)
    if not len(outcomes.pairs):
        raise ModelError("no classes are confused: all predictions are right")
    pairs = outcomes.pairs[: max(n, 1)]
    names = [" → ".join(shortened(outcomes.names[code], 15) for code in pair[:2]) for pair in pairs]
    texts = [f"{count:,} ({count / outcomes.rows[true]:.2%})" for true, _, count in pairs]
    ax = _bars(ax, names, pairs[:, 2], texts, _ORANGE)
    ax.set_xlabel("labels" if outcomes.several else "rows")
    return ax


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
    check_matplotlib()
    outcomes = outcomes_of(run, data, **options)
    occurs = np.flatnonzero(outcomes.rows)
    rows, share = outcomes.rows[occurs], outcomes.correct[occurs] / outcomes.rows[occurs]
    ax = _axes(ax)
    if len(occurs) <= _MAX_DOTS:
        ax.plot(rows, share, "o", color=_BLUE, markersize=5, alpha=0.8, markeredgewidth=0)
    else:
        bins = np.floor(np.log2(rows)).astype(int)
        groups = [(rows[bins == b], share[bins == b]) for b in np.unique(bins)]
        middle = [float(np.exp(np.log(r).mean())) for r, _ in groups]
        low, median, high = (np.array([np.quantile(s, q) for _, s in groups]) for q in (0.1, 0.5, 0.9))
        ax.plot(middle, median, "o-", color=_BLUE, markersize=4, label="median")
        ax.fill_between(
            middle, low, high, color=_BLUE, alpha=0.2, linewidth=0, label="10 to 90 % of the classes"
        )
    ax.set_xscale("log")
    if rows.min() == rows.max():
        ax.set_xlim(rows.min() / 2, rows.max() * 2)
    found = "labels found" if outcomes.several else "accuracy of the class"
    return _finish(ax, "rows of the class", found, percent=True)


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
        raise ModelError(f"the model has no class {shortened(name)!r}")
    code = classes.index(name)
    [features] = strongest_features(model, n, slice(code, code + 1))
    if not features:
        raise ModelError(f"the class {shortened(label)!r} has no coefficient above 0")
    names = [each if isinstance(each, str) else f"feature {each}" for each, _ in features]
    values = [value for _, value in features]
    ax = _bars(ax, [shortened(each, 24) for each in names], values, [f"{v:.3g}" for v in values], _BLUE)
    ax.set_xlabel("coefficient")
    return ax


# -- shared helpers --------------------------------------------------------------------------------


def _passes(history: History) -> list[dict[str, Any]]:
    if not history.passes:
        raise RunError(f"{history.name} has no pass that is done yet")
    return history.passes


def _axes(ax: Axes | None) -> Axes:
    check_matplotlib()
    if ax is None:
        import matplotlib.pyplot

        _, ax = matplotlib.pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis="y", alpha=0.4)
    return ax


def _curves(
    ax: Axes | None, records: list[dict[str, Any]], x: str, names: dict[str, str], empty: str
) -> Axes:
    """Draw numbers of `records`, by their `names`, against `x`; raise `RunError` if there are none."""
    curves = {name: points(records, x, key) for key, name in names.items()}
    if not any(xs for xs, _ in curves.values()):
        raise RunError(empty)
    ax = _axes(ax)
    for (name, (xs, ys)), style in zip(curves.items(), _STYLES, strict=False):
        if xs:
            _curve(ax, xs, ys, name, style)
    return ax


def _curve(ax: Axes, xs: Sequence[float], ys: Sequence[float], name: str, style: tuple[str, str]) -> None:
    """Draw a curve, thinned to what a picture can show; its last point stays."""
    kept = np.unique(np.linspace(0, len(xs) - 1, _MAX_POINTS).round().astype(int))
    marker = "o" if len(kept) <= _MAX_MARKERS else ""
    ax.plot(np.take(xs, kept), np.take(ys, kept), color=style[0], linestyle=style[1], marker=marker,
            markersize=4, label=name)  # fmt: skip


def _finish(ax: Axes, x: str, y: str, *, percent: bool = False) -> Axes:
    """Name the axes `x` and `y`, with plain numbers as ticks; add a legend unless there is only one curve."""
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
        for text in ax.legend().get_texts():
            text.set_parse_math(False)
    return ax


def _bars(ax: Axes | None, names: list[str], values: Any, texts: list[str], colour: str) -> Axes:
    """Draw horizontal bars, the first one on top, with texts at their ends."""
    ax = _axes(ax)
    bars = ax.barh(range(len(names)), values, color=colour, height=0.65)
    ax.bar_label(bars, texts, padding=4)
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False)
    ax.locator_params(axis="x", nbins=4)
    return ax
