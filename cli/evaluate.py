"""`streamsvm evaluate`: how good a model is on labelled data."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console, Json, Memory, Quiet
from streamsvm_cli.predict import batches


def evaluate(
    model: Annotated[Path, typer.Argument(help="Run directory or model folder.")],
    data: Annotated[Path, typer.Argument(help="Store or LIBSVM text (- for stdin).")],
    top_k: Annotated[int, typer.Option(min=1, help="Also the accuracy of the best so many labels.")] = 5,
    memory: Memory = "256M",  # type: ignore[assignment]
    label: Annotated[str | None, typer.Option(help="Label column of obs, for foreign AnnData.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure a model on labelled data.

    Prints accuracy, top-k accuracy, macro and micro F1; unknown labels count as wrong.
    """
    console = Console(quiet=quiet, json=json)
    from streamsvm import evaluate as measure
    from streamsvm import load_model

    loaded = load_model(model)
    with ExitStack() as stack:
        rows = batches(loaded, data, memory, label, stack, console)
        result = measure(loaded, rows, top_k=(1, top_k), memory=memory // 2)
    console.say(f"{'rows':>12}  {result.n:,}")
    console.say(f"{'accuracy':>12}  {result.accuracy:.4f}")
    for k, value in result.top_k.items():
        if k > 1:
            console.say(f"{f'top-{k}':>12}  {value:.4f}")
    console.say(f"{'macro F1':>12}  {result.macro_f1:.4f}")
    console.say(f"{'micro F1':>12}  {result.micro_f1:.4f}")
    console.result(dataclasses.asdict(result))
