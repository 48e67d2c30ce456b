"""`streamsvm calibrate`: probabilities of a trained model, from hold-out data."""

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
        Path | None, typer.Argument(metavar="DATA", help="Labelled rows (default: those the run held out).")
    ] = None,
    **given: Any,
) -> None:
    """Fit the probabilities of a model to hold-out data.

    The rows must have taken no part in training. One temperature for all classes, which changes no
    prediction, is written to the model: predict --proba has probabilities then. So is how often
    the labels of these rows are right above each probability, for predict --unknown: see the table.
    """
    import streamsvm

    found = streamsvm.calibrate(model, data, progress=console.progress, **given)
    console.say(
        f"probabilities: temperature {found.temperature:.4g}, with a log loss of {found.log_loss:.4f}, "
        f"before {found.log_loss_before:.4f}, on {count(found.rows, 'hold-out row')}"
    )
    for line in unknown_lines(found.unknown):
        console.say(line)
    console.result(dataclasses.asdict(found))
