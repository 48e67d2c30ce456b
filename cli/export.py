"""`streamsvm export`: a model for another program, or a smaller one for this."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.options import Force

from streamsvm.base.text import format_size


def export(
    console: Console,
    model: Annotated[Path, typer.Argument(help="Run directory or model folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; of streamsvm, a folder.")],
    format: Annotated[
        Literal["liblinear", "npz", "sklearn", "onnx", "csv", "streamsvm"] | None,
        typer.Option(
            help="liblinear: text for its predict; npz: arrays; sklearn: a fitted LinearSVC for joblib; "
            "onnx: a graph; csv: the strongest features of each class; streamsvm: a model folder, smaller "
            "with --prune and --dtype. By default by the suffix: .txt or .model, .npz, .joblib, .onnx, .csv."
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Of csv: how many features of each class (default: 20).")
    ] = None,
    prune: Annotated[
        float, typer.Option(metavar="EPS", help="Coefficients of at most this absolute value become 0.")
    ] = 0.0,
    dtype: Annotated[
        Literal["float16", "float32"] | None,
        typer.Option(help="Of streamsvm: how coefficients are stored; scores are then in float32."),
    ] = None,
    force: Force = False,
) -> None:
    """Write a model for another program, or a smaller one for this.

    Weights of features, a selection and the bias become part of the coefficients. A format that cannot hold
    the other transforms of the model is refused.
    """
    import streamsvm

    with terminate_as_interrupt():
        done = streamsvm.export_model(model, out, format, top=top, prune=prune, dtype=dtype, force=force)
    console.say(f"{done.format}, {format_size(done.bytes)}: {done.path}")
    console.result(dataclasses.asdict(done))
