"""What a conversion did, as lines for people: of `convert`, and of `fit` of files that are no store."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm_cli.console import Console, print_text_counts
from streamsvm_cli.wording import count, size_of_data


def print_report(console: Console, report: Any, *, in_run: bool = False) -> None:
    """Print what a conversion did; `in_run` if the store is not what the command is about."""
    for warning in report.warnings:
        console.warn(warning)
    for note in report.notes:
        console.say(note)
    size = f"{size_of_data(report.n, report.d, report.n_classes, report.nnz)} in {report.seconds:.1f} s"
    console.say(f"{size}: {report.path}" if in_run else size)
    if report.index_base is not None and not in_run:
        console.say(f"feature numbers start at {report.index_base}")
    if report.empty_rows:
        console.say(f"  {count(report.empty_rows, 'row')} without a non-zero")
    if report.n_labels is not None:
        console.say(f"  {count(report.n_labels, 'label')}, {report.n_labels / report.n:.2f} a row")
    if report.n_groups is not None:
        console.say(f"  {count(report.n_groups, 'group')} of rows")
    print_text_counts(console, dataclasses.asdict(report))
    if not in_run:
        console.say(f"store: {report.path}")
