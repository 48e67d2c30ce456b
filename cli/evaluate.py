"""`streamsvm evaluate`: measure a model on labelled data."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from streamsvm_cli.console import Console, warn
from streamsvm_cli.options import FORCE, MEMORY, THREADS, Data, Model, Option, command
from streamsvm_cli.table import table_lines, unknown_lines
from streamsvm_cli.wording import count, fraction

from streamsvm.base import durable
from streamsvm.errors import InputError, wrong_setting
from streamsvm.settings import checks
from streamsvm.settings.scoring import TO_EVALUATE

_SHOWN_CLASSES, _SHOWN_CONFUSIONS = 10, 5
_OPTIONS = {
    "top_k": Option(
        checks.whole(1), None,
        "Also measure the accuracy of the best k labels (default: 5) or, for rows with several labels, "
        "their precision (default: 3 and 5).",
    ),
    "threshold": Option(
        checks.NUMBER, None,
        "For rows with several labels: predict labels with scores above this (default: 0 for ovr and ovr2).",
    ),
    "n_labels": Option(
        checks.whole(1), None, "For rows with several labels: predict this many of the best labels."
    ),
    "costs": Option(
        checks.PATH, None,
        "Also measure the mean cost, given by a table as in fit: CSV or .npy, with a row per true class.",
    ),
    "tree": Option(
        checks.PATH, None,
        "Also measure the mean cost, which is the path length between classes in a tree, as in fit.",
    ),
    "confusion": Option(
        checks.PATH._replace(metavar="CSV"), None,
        "Write each pair of true and predicted class that occurs, with its number of rows.",
    ),
    "workers": THREADS,
    "memory": MEMORY,
    "force": FORCE,
}  # fmt: skip


@command(_OPTIONS, TO_EVALUATE)
def evaluate(
    console: Console,
    model: Model,
    data: Data,
    *,
    top_k: int | None,
    confusion: Path | None,
    force: bool,
    **settings: Any,
) -> None:
    """Measure a model on labelled data.

    Example: streamsvm evaluate run test.zarr

    The command prints accuracy, top-k accuracy, and macro and micro F1; unknown labels count as wrong. It
    then prints precision, recall and F1 for the classes with the lowest F1 (in JSON, for all classes), and
    the most frequent confusions. For models with probabilities, it also prints log loss and expected
    calibration error. For models trained with costs or a tree of classes, it prints the mean cost of rows
    with known labels. For calibrated models, it prints the fraction of rows that predict --unknown would
    label, and the accuracy on these rows.

    If rows have several labels, the command prints the precision of the best k labels, the ranking loss, and
    macro F1, micro F1 and subset accuracy of the predicted label sets. Unknown labels are then ignored.
    """
    import streamsvm

    if confusion is not None:
        durable.check_replaceable(confusion, InputError, force=force)
    result: Any = streamsvm.evaluate(
        model, data, top_k=None if top_k is None else (1, top_k), progress=console.progress, **settings
    )
    if confusion is not None and not isinstance(result, streamsvm.Evaluation):
        raise wrong_setting("confusion", "applies only to rows with one label; leave it out for this data")
    console.say(f"{'rows':>18}  {result.n:,}")
    if getattr(result, "unlabelled", 0):
        console.say(f"{'':>18}  {count(result.unlabelled, 'row')} left out for lack of a label")
    for name, value in vars(result).items():
        for k, number in value.items() if isinstance(value, dict) else [("", value)]:
            if isinstance(number, float) and (name, k) not in (("top_k", 1), ("threshold", "")):
                console.say(f"{f'{name} {k}'.replace('_', ' ').strip():>18}  {number:.4f}")
    if getattr(result, "warning", None):
        warn(result.warning)
    record = {name: value for name, value in vars(result).items() if name != "answered"}
    for line in unknown_lines(record.get("unknown", [])):
        console.say(line)
    if (counts := record.pop("counts")) is not None:
        record |= _print_classes(console, counts)
    if confusion is not None:
        _write_confusion(confusion, counts.confusion())
        console.say(f"all pairs of true and predicted class: {confusion}")
    console.result(record)


def _print_classes(console: Console, counts: Any) -> dict[str, Any]:
    """Print the worst classes and confusions; return all classes and the printed confusions."""
    from streamsvm.prediction.class_counts import records_of

    worst = counts.worst()
    shown = records_of(counts.table(worst[:_SHOWN_CLASSES]))
    first = f"class ({len(shown)} of {len(worst):,})" if len(shown) < len(worst) else "class"
    cells = [
        (name, fraction(precision), fraction(recall), fraction(f1), f"{rows:,}")
        for name, precision, recall, f1, rows in map(dict.values, shown)
    ]
    lines = ["", *table_lines((f"{first}, lowest F1 first", "precision", "recall", "F1", "rows"), cells)]
    pairs, names = counts.pairs[:_SHOWN_CONFUSIONS].tolist(), counts.names
    if pairs:
        confusions = [(names[t], names[p], f"{n:,}", f"{n / counts.rows[t]:.1%}") for t, p, n in pairs]
        heads = ("most confused: class", "predicted", "rows", "of the class")
        lines += ["", *table_lines(heads, confusions, 2)]
    if counts.too_low:
        lines.append(f"there are too many pairs for exact counts: some are up to {counts.too_low:,} too low")
    for line in lines:
        console.say(line)
    confused = [{"true": names[t], "predicted": names[p], "rows": n} for t, p, n in pairs]
    return {"classes": records_of(counts.table()), "confused": confused}


def _write_confusion(path: Path, columns: dict[str, Any]) -> None:
    with (
        durable.os_errors_as(InputError, path, "written"),
        durable.replacing(path) as aside,
        aside.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
