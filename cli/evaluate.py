"""`streamsvm evaluate`: how good a model is on labelled data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.inputs import data_to_score
from streamsvm_cli.options import Json, Label, Memory, Quiet


def evaluate(
    model: Annotated[Path, typer.Argument(help="Run directory or model folder.")],
    data: Annotated[Path, typer.Argument(help="Store or LIBSVM text (- for standard input).")],
    top_k: Annotated[int, typer.Option(min=1, help="Also measure the accuracy of the best k labels.")] = 5,
    memory: Memory = "256M",  # type: ignore[assignment]
    label: Label = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure a model on labelled data.

    Prints accuracy, top-k accuracy, macro and micro F1; unknown labels count as wrong. If the model has
    probabilities, also their log loss and expected calibration error, over the rows with known labels.
    """
    console = Console(quiet=quiet, json=json)
    import streamsvm

    loaded = streamsvm.load_model(model)
    rows = data_to_score(console, loaded, data, memory)
    result = streamsvm.evaluate(loaded, rows, top_k=(1, top_k), memory=memory, label=label)
    console.say(f"{'rows':>12}  {result.n:,}")
    console.say(f"{'accuracy':>12}  {result.accuracy:.4f}")
    for k, value in result.top_k.items():
        if k > 1:
            console.say(f"{f'top-{k}':>12}  {value:.4f}")
    console.say(f"{'macro F1':>12}  {result.macro_f1:.4f}")
    console.say(f"{'micro F1':>12}  {result.micro_f1:.4f}")
    if result.log_loss is not None:
        console.say(f"{'log loss':>12}  {result.log_loss:.4f}")
        console.say(f"{'calib. error':>12}  {result.calibration_error:.4f}")
    console.result(dataclasses.asdict(result))
