"""`streamsvm calibrate`: probabilities of a trained model, from hold-out data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.options import MEMORY, Model, command
from streamsvm_cli.wording import count

from streamsvm.settings.scoring import TO_CALIBRATE


@command({"memory": MEMORY}, TO_CALIBRATE)
def calibrate(
    console: Console,
    model: Model,
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Labelled rows that took no part in training: a store, or a file of any kind that convert "
            "takes.",
        ),
    ],
    **given: Any,
) -> None:
    """Fit the probabilities of a model to hold-out data.

    One temperature for all classes, which changes no prediction, is written to the model: predict --proba
    has probabilities then. To do it at the end of a training, see fit --calibrate.
    """
    import streamsvm

    with terminate_as_interrupt():
        found = streamsvm.calibrate(model, data, progress=console.bar, **given)
    console.say(
        f"temperature {found.temperature:.4g}: a log loss of {found.log_loss:.4f}, before "
        f"{found.log_loss_before:.4f}, on {count(found.rows, 'row')}"
    )
    console.result(dataclasses.asdict(found))
