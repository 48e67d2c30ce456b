"""`streamsvm predict`: labels, or the best few with scores, as lines, a table, or columns of obs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.options import Memory, ScoringThreads, with_settings
from streamsvm_cli.wording import count, wrong_usage

from streamsvm.settings.scoring import TO_PREDICT


@with_settings(TO_PREDICT)
def predict(
    console: Console,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Run directory or model folder.")],
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help="Stores, or files of any kind that convert takes (- for LIBSVM text on standard input); "
            "their labels are not used.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="File to write: .csv, .tsv or .parquet for a table with names of rows, labels, scores and "
            "margins; any other for one line a row. By default standard output.",
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            metavar="ANNDATA",
            help="Instead, add columns to the obs of this AnnData, .h5ad or .zarr, in place: DATA itself or "
            "another with the same obs names.",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="With --into: the columns are KEY_label, KEY_score and KEY_margin.")
    ] = "streamsvm",
    top_k: Annotated[
        int | None,
        typer.Option(min=1, help="How many of the best labels, separated by tabs (default: 1)."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="All labels with scores (with --proba: probabilities) above this, best first, separated by "
            "tabs; a line may be empty."
        ),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Follow each label by its score.")] = False,
    proba: Annotated[bool, typer.Option("--proba", help="Follow each label by its probability.")] = False,
    workers: ScoringThreads = None,
    memory: Memory = "256M",  # type: ignore[assignment]
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file of --out or, with --into, columns of --key.")
    ] = False,
    **settings: Any,
) -> None:
    """Predict labels: as lines, a table, or columns of AnnData.

    Example: streamsvm predict run test.zarr --out labels.csv

    Rows come in the order of the data, and several data one after the other.
    """
    place = out if into is None else into
    if console.json and place is None:
        raise wrong_usage("--json needs --out or --into: standard output cannot hold both")
    if len({str(path) for path in data}) < len(data):
        raise wrong_usage("DATA names the same file twice")
    if place is None:
        console.leave()  # or a sign of life would stand between predictions
    import streamsvm

    with terminate_as_interrupt():
        done = streamsvm.predict(
            model, data, sys.stdout if place is None else out, top_k=top_k, threshold=threshold,
            scores=scores, proba=proba, memory=memory, workers=workers, into=into, key=key, force=force,
            progress=False if place is None else console.bar, **settings,
        )  # fmt: skip
    if place:
        console.say(f"{count(done.n, 'prediction')}: {place}")
    console.result({"n": done.n, "out": str(place)})
