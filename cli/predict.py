"""`streamsvm predict`: write labels, or the best labels with scores, as lines or a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import MEMORY, THREADS, Model, Option, command
from streamsvm_cli.wording import count

from streamsvm.errors import SettingsError
from streamsvm.settings import checks
from streamsvm.settings.scoring import TO_PREDICT

_OPTIONS = {
    "out": Option(
        checks.PATH, None,
        "File to write: .csv, .tsv, .jsonl or .parquet for a table with row names, labels, scores and "
        "margins; .txt or no suffix for one line per row. The default, or -, is standard output.", letter="o",
    ),
    "top_k": Option(checks.whole(1), None, "Number of best labels to write, separated by tabs (default: 1)."),
    "threshold": Option(
        checks.NUMBER, None,
        "Write all labels whose score (with --proba: probability) is above this value, best first, separated "
        "by tabs; a line may be empty.",
    ),
    "unknown": Option(
        checks.ACCURACY, None,
        "Required accuracy, such as 0.95. A row is labelled as unknown if its probability is below the "
        "threshold at which held-out rows reached this accuracy. The model must be calibrated.",
    ),
    "unknown_label": Option(checks.TEXT, "unknown", "Label for unknown rows."),
    "scores": Option(checks.FLAG, False, "Write the score after each label."),
    "proba": Option(checks.FLAG, False, "Write the probability after each label."),
    "explain": Option(
        checks.whole(1), None,
        "Write this many features that support the label, each with its fraction of the margin.",
    ),
    "workers": THREADS,
    "memory": MEMORY,
    "force": Option(checks.FLAG, False, "Replace the file at --out."),
}  # fmt: skip


@command(_OPTIONS, TO_PREDICT)
def predict(
    console: Console,
    model: Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help="Stores, or files of any kind that convert reads (- for LIBSVM text on standard input); "
            "their labels are not used.",
        ),
    ],
    *,
    out: Path | None,
    **settings: Any,
) -> None:
    """Predict labels, and write them as lines or a table.

    Example: streamsvm predict run test.zarr --out labels.csv

    Predictions are in the order of the rows. Several inputs are read one after another.
    """
    out = None if str(out) == "-" else out
    if console.json and out is None:
        raise SettingsError("--json needs --out, because the JSON object is printed to standard output")
    if out is None:
        console.leave()  # otherwise progress would appear between predictions
    import streamsvm

    result = streamsvm.predict(
        model, data, sys.stdout if out is None else out,
        progress=False if out is None else console.progress, **settings,
    )  # fmt: skip
    if out:
        console.say(f"{count(result.n, 'prediction')}: {out}")
    console.result({"n": result.n, "out": str(out)})
