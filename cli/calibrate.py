"""`streamsvm calibrate`: probabilities of a trained model, from hold-out data."""

from __future__ import annotations

import dataclasses
from typing import Any

from streamsvm_cli.console import Console
from streamsvm_cli.options import MEMORY, Data, Model, command
from streamsvm_cli.wording import count

from streamsvm.settings.scoring import TO_CALIBRATE


@command({"memory": MEMORY}, TO_CALIBRATE)
def calibrate(console: Console, model: Model, data: Data, **given: Any) -> None:
    """Fit the probabilities of a model to hold-out data.

    The rows must have taken no part in training. One temperature for all classes, which changes no
    prediction, is written to the model: predict --proba has probabilities then.
    """
    import streamsvm

    found = streamsvm.calibrate(model, data, progress=console.progress, **given)
    console.say(
        f"probabilities: temperature {found.temperature:.4g}, with a log loss of {found.log_loss:.4f}, "
        f"before {found.log_loss_before:.4f}, on {count(found.rows, 'hold-out row')}"
    )
    console.result(dataclasses.asdict(found))
