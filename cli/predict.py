"""`streamsvm predict`: labels, or the best few with scores or probabilities, one line a row."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.inputs import data_to_score
from streamsvm_cli.options import Json, Label, Memory, Quiet
from streamsvm_cli.wording import count, wrong_usage


def predict(
    model: Annotated[Path, typer.Argument(help="Run directory or model folder.")],
    data: Annotated[
        Path, typer.Argument(help="Store or LIBSVM text (- for standard input); its labels are not used.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default standard output.")
    ] = None,
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
    memory: Memory = "256M",  # type: ignore[assignment]
    label: Label = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Print the predicted label of each row, or several.

    Rows come in the order of the data.
    """
    if json and out is None:
        raise wrong_usage("--json needs --out: standard output cannot hold both")
    console = Console(quiet=quiet, json=json)
    import streamsvm

    loaded = streamsvm.load_model(model)
    with terminate_as_interrupt():
        rows = data_to_score(console, loaded, data, memory, labelled=False)
        done = streamsvm.predict(
            loaded, rows, sys.stdout if out is None else out, top_k=top_k, threshold=threshold,
            scores=scores, proba=proba, memory=memory, label=label,
        )  # fmt: skip
    if out:
        console.say(f"{count(done.n, 'prediction')}: {out}")
    console.result({"n": done.n, "out": str(out)})
