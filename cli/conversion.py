"""Print conversion reports and reading statistics."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm_cli.console import Console, warn
from streamsvm_cli.wording import count, size_of_data

_COUNTS = {  # noun, and what happened to the items
    "empty_rows": ("row", "without a non-zero value"),
    "n_groups": ("group", "of rows"),
    "skipped": ("row", "skipped"),
    "repaired": ("row", "repaired"),
    "explicit_zeros": ("explicit zero", "dropped"),
    "qids": ("qid field", "ignored"),
    "unseen_features": ("value", "of unseen features dropped"),
    "unlabelled": ("row", "left out for lack of a label"),
    "missing_values": ("missing number", "replaced"),
    "unseen_values": ("value", "of unseen categories dropped"),
    "unseen_labels": ("row", "with unseen labels kept, and counted as wrong"),
}


def print_report(console: Console, report: Any) -> None:
    for warning in report.warnings:
        warn(warning)
    for note in report.notes:
        console.say(note)
    size = f"{size_of_data(report.n, report.d, report.n_classes, report.nnz)} in {report.seconds:.1f} s"
    console.say(f"{size}: {report.path}")
    if report.index_base is not None:
        console.say(f"feature numbers start at {report.index_base}")
    if report.n_labels is not None:
        console.say(f"  {count(report.n_labels, 'label')}, {report.n_labels / report.n:.2f} per row")
    print_counts(console, dataclasses.asdict(report))


def print_counts(console: Console, counts: dict[str, Any]) -> None:
    """Print the messages about skipped rows, and the numbers of rows and values dropped or changed."""
    for line in counts["first_errors"]:
        warn(f"skipped: {line}")
    for name, (noun, done) in _COUNTS.items():
        if counts.get(name):
            console.say(f"  {count(counts[name], noun)} {done}")
