"""`streamsvm import`: a model of LIBLINEAR, to predict out of core with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.options import Json, Quiet
from streamsvm_cli.wording import count


def import_model(
    path: Annotated[Path, typer.Argument(metavar="MODEL", help="What LIBLINEAR's train wrote.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model folder to write.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Lines with a number, a tab and a label, as export writes them; by default labels are the "
            "numbers.",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a model of one that LIBLINEAR trained.

    It predicts the same labels, out of core. All solvers for classification are known, with and without a
    bias.
    """
    console = Console(quiet=quiet, json=json)
    import streamsvm

    with terminate_as_interrupt():
        model = streamsvm.import_liblinear(path, out, labels=labels)
    sizes = f"{count(model.n_features_in_, 'feature')}, {count(len(model.classes_), 'class')}"
    console.say(f"{sizes}: {out}")
    console.result({"n_features": model.n_features_in_, "n_classes": len(model.classes_), "out": str(out)})
