"""`streamsvm export`: write a model for another program, or a smaller copy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from streamsvm_cli.console import Console
from streamsvm_cli.options import FORCE, Model, Option, command

from streamsvm.base.text import format_size
from streamsvm.settings import checks

_OPTIONS = {
    "out": Option(checks.PATH, ..., "File to write; a folder for the format streamsvm.", letter="o"),
    "format": Option(
        checks.one_of("liblinear", "sklearn", "onnx", "streamsvm"), None,
        "liblinear: text for LIBLINEAR; sklearn: a fitted LinearSVC for joblib, or a Pipeline that takes "
        "DataFrames or strings; onnx: a graph; streamsvm: a model folder, smaller with --prune and --dtype. "
        "By default, the suffix determines the format: .txt or .model, .joblib, .onnx.",
    ),
    "prune": Option(checks.NUMBER._replace(metavar="EPS"), 0.0, "Set coefficients of magnitude <= EPS to 0."),
    "dtype": Option(
        checks.one_of("float16", "float32"), None,
        "Precision of stored coefficients, for the format streamsvm; scores are then in float32.",
    ),
    "force": FORCE,
}  # fmt: skip


@command(_OPTIONS)
def export(console: Console, model: Model, *, out: Path, **settings: Any) -> None:
    """Write a model for another program, or a smaller copy.

    Feature weights, selections and the bias become part of the coefficients. The command fails if the format
    cannot represent the other transforms of the model.
    """
    import streamsvm

    exported = streamsvm.export_model(model, out, **settings)
    console.say(f"{exported.format}, {format_size(exported.bytes)}: {exported.path}")
    console.result(dataclasses.asdict(exported))
