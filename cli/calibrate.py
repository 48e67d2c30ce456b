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
    **given: Any,
) -> None:
    """Fit the probabilities of a model to hold-out data.

    The rows must not be training rows. One temperature for all classes, which changes no prediction, is
    written to the model, so that predict --proba has probabilities. The model also stores how accurate the
    labels of these rows are above each probability, for predict --unknown; the printed table shows this.
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
