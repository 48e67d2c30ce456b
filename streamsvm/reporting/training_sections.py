"""Sections of a report on training: convergence, accuracies, and settings that were tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamsvm import plot
from streamsvm.reporting import html
from streamsvm.reporting.history import History, number, with_seconds
from streamsvm.reporting.svg import Pictures
from streamsvm.reporting.words import first_of, number_text

_MOST_ROWS = 30  # of a table


def training(history: History, pictures: Pictures) -> Iterator[str]:
    """The section on convergence and accuracies."""
    yield html.heading("Training")
    if not history.passes and not history.rows:
        yield html.paragraph("Nothing has been reported yet.")
        return
    figures = []
    for title, options in (
        ("Relative gap by pass", {"of": "gap", "by": "pass"}),
        ("Relative gap by second", {"of": "gap", "by": "seconds"}),
        ("Objective by pass", {"of": "objective", "by": "pass"}),
        ("Objective by second", {"of": "objective", "by": "seconds"}),
    ):
        figures += pictures.card(
            title,
            lambda ax, options=options: plot.convergence(history, ax, **options),  # type: ignore[misc]
        )
    measured = [each for each in history.passes if {"train_accuracy", "valid_accuracy"} & each.keys()]
    if len(measured) > 1:  # the table has the only one
        figures += pictures.card("Accuracy by pass", lambda ax: plot.accuracy(history, ax))
    if len(history.passes) > 1:
        figures += pictures.card("Seconds of each pass", lambda ax: plot.pass_times(history, ax))
    figures += pictures.card(
        "Progressive accuracy",
        lambda ax: plot.progressive(history, ax),
        "Each row is predicted just before it is learned from, in the first pass.",
    )
    if figures:
        yield html.cards(figures)
    shares = {number(each, "C") for each in history.passes}
    if len(shares) > 1:
        yield html.paragraph("C grew from pass to pass, so their objectives and gaps are not of one problem.")
    if history.passes and not any(number(each, "gap") is not None for each in history.passes):
        yield html.paragraph("The exact gap was not measured; estimates come from the passes themselves.")
    yield _table_of_passes(history) if history.passes else _table_of_rows(history)
    if any("workers" in each for each in history.passes):
        yield _table_of_workers(history)


def tuning(history: History, pictures: Pictures) -> Iterator[str]:
    """The section on settings that were tried; nothing if none were."""
    tried = history.tried
    if not tried:
        return
    yield html.heading("Tuning")
    several = len({plot.settings_text(each.get("settings")) for each in tried})
    few = f"The {plot.MOST_PATHS} best of {several} settings besides C." if several > plot.MOST_PATHS else ""
    yield html.cards(
        pictures.card("Valid accuracy by C", lambda ax: plot.tune_path(history, ax), caption=few)
    )
    best_first = sorted(tried, key=lambda each: -(number(each, "valid_accuracy") or 0.0))
    columns = {"C": ".4g", "valid_accuracy": ".4f", "passes": ",.0f", "seconds": ",.2f"}
    columns = {
        name: form for name, form in columns.items() if any(number(each, name) is not None for each in tried)
    }
    rows = [
        [plot.settings_text(each.get("settings"))]
        + [number_text(number(each, name), form) or "-" for name, form in columns.items()]
        for each in best_first[:_MOST_ROWS]
    ]
    caption = first_of(_MOST_ROWS, len(tried), "settings that were tried, the best first")
    headings = [name.replace("_", " ") for name in columns]
    yield html.table(["settings", *headings], rows, texts=1, caption=caption)


def _table_of_passes(history: History) -> str:
    columns = {
        "pass": ("pass", ",.0f"),
        "primal": ("primal", ".6g"),
        "primal (est.)": ("primal_estimate", ".6g"),
        "dual": ("dual", ".6g"),
        "relative gap": ("relative_gap", ".3g"),
        "gap (est.)": ("relative_gap_estimate", ".3g"),
        "gap of average": ("average_relative_gap", ".3g"),
        "train accuracy": ("train_accuracy", ".4f"),
        "valid accuracy": ("valid_accuracy", ".4f"),
        "valid, last iterate": ("last_iterate_valid_accuracy", ".4f"),
        "seconds": ("trained_seconds", ",.2f"),
    }
    return _table_of("Passes; training seconds are the sum up to the end of each", columns,
                     with_seconds(history.passes))  # fmt: skip


def _table_of_workers(history: History) -> str:
    columns = {
        "pass": ("pass", ",.0f"),
        "workers": ("workers", ",.0f"),
        "tasks": ("worker_tasks", ",.0f"),
        "seconds of work": ("worker_seconds", ",.2f"),
        "seconds waited for them": ("waited_for_workers_seconds", ",.2f"),
        "bytes between workers": ("moved_bytes", ",.0f"),
        "bytes read": ("worker_bytes_read", ",.0f"),
        "bytes to the command": ("gathered_bytes", ",.0f"),
        "peak memory of a worker, bytes": ("worker_peak_memory_bytes", ",.0f"),
    }
    return _table_of("Work of the workers of a cluster", columns, history.passes)


def _table_of_rows(history: History) -> str:
    columns = {
        "rows": ("rows", ",.0f"),
        "progressive accuracy": ("progressive_accuracy", ".4f"),
        "since the last line": ("recent_accuracy", ".4f"),
        "classes": ("classes", ",.0f"),
        "features": ("features", ",.0f"),
        "seconds": ("seconds", ",.2f"),
    }
    return _table_of("Reports so far", columns, history.rows)


def _table_of(title: str, columns: dict[str, tuple[str, str]], records: list[dict[str, Any]]) -> str:
    """Numbers of reports, of columns that any of them has; of many reports the first and the last."""
    used = {
        name: at for name, at in columns.items() if any(number(each, at[0]) is not None for each in records)
    }
    few = records
    if len(records) > _MOST_ROWS:
        few = [*records[: _MOST_ROWS // 3], *records[-(_MOST_ROWS - _MOST_ROWS // 3) :]]
        title += (
            f"; of {len(records):,}, the first {_MOST_ROWS // 3} and the last {_MOST_ROWS - _MOST_ROWS // 3}"
        )
    rows = [[number_text(number(each, key), form) or "-" for key, form in used.values()] for each in few]
    return html.table(list(used), rows, caption=title)
