"""`streamsvm calibrate`: fit the probabilities of a model to hold-out data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import MEMORY, Model, command
from streamsvm_cli.table import unknown_lines
from streamsvm_cli.wording import count

from streamsvm.settings.scoring import TO_CALIBRATE


@command({"memory": MEMORY}, TO_CALIBRATE)
def calibrate(
    console: Console,
    model: Model,
    data: Annotated[
        Path | None, typer.Argument(metavar="DATA", help="Labelled rows (default: held-out rows of the run).")
    ] = None,
    **settings: Any,
) -> None:
    """Fit the probabilities of a model to hold-out data.

    The rows must not have been used for training. The command fits one temperature for all classes and stores
    it in the model, for predict --proba. Predicted labels do not change. For predict --unknown, it also
    stores how accurate the predictions above each probability are, and prints this as a table.
    """
    import streamsvm

    result = streamsvm.calibrate(model, data, progress=console.progress, **settings)
    console.say(
        f"probabilities: temperature {result.temperature:.4g}, log loss {result.log_loss:.4f} (before: "
        f"{result.log_loss_before:.4f}) on {count(result.rows, 'hold-out row')}"
    )
    for line in unknown_lines(result.unknown):
        console.say(line)
    console.result(dataclasses.asdict(result))
