"""`streamsvm tune`: search for C, and for other settings."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals
from streamsvm_cli.conversion import print_report
from streamsvm_cli.fit import finish
from streamsvm_cli.options import FORCE, RUN, TRAINING, VERBOSE, Option, command
from streamsvm_cli.wording import count

from streamsvm.settings.field import declared
from streamsvm.settings.fit import TO_TUNE
from streamsvm.settings.reading import ReadingSettings

_SEARCHED = {
    "C": Option(
        str, "auto",
        "Values of C: a range such as 2^-6:2^3, by factors of its base; numbers with commas; or auto, 10 "
        "values by factors of 2 around the C of fit.",
        metavar="RANGE|NUMBERS|auto",
    ),
    "loss": Option(str, None, "Loss (see fit), ww by default; several (ww,cs) are compared.", repeated=True),
    "margin": Option(float, None, "Margin scale of Weston-Watkins; several are compared.", repeated=True),
    "transform": Option(
        str, None, "Transforms of the rows (see fit), or none; several are compared.", repeated=True,
    ),
    "hold_out": Option(str, None, "Part of the rows that is held out and measured on, 1/10 by default."),
    "valid": Option(os.PathLike, None, "Store, text or table to measure on instead."),
    "passes": Option(int, 3, "Passes of the training with the best, on all rows.", least=1),
}  # fmt: skip
_OPTIONS = {
    "out": RUN,
    "folds": Option(int, None, "Measure on each of so many parts instead, in so many trainings.", least=2),
    "passes_each": Option(int, 2, "Passes for each value of C.", least=1),
}  # fmt: skip


@command(_SEARCHED, TO_TUNE, declared(ReadingSettings), _OPTIONS, TRAINING, {"force": FORCE}, VERBOSE)
def tune(
    console: Console,
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA", help="LIBSVM text, a table, a matrix, AnnData or a store."),
    ],
    *,
    loss: list[str] | None,
    valid: Path | None,
    **given: Any,
) -> None:
    """Choose C, and other settings of several, and train with them.

    Example: streamsvm tune train.txt --out run --C 2^-6:2^3

    All values of C are one training: each begins where the one before ended. The accuracy is that of the
    averaged weights on rows that are held out. The same command, given again, goes on where it was stopped.
    """
    import streamsvm

    with stop_on_signals() as stop:
        result: Any = streamsvm.tune(
            data, loss=",".join(loss or ["ww"]).split(","), valid=valid, report=TuneReporter(console),
            progress=console.progress, stop=stop, **given,
        )  # fmt: skip
    chosen = ", ".join(filter(None, (f"C {result.C:.4g}", differing({"settings": result.settings}))))
    console.say(f"chosen, the best of {count(len(result.tried), 'setting')}: {chosen}")
    tried, made = (count(n, "pass") for n in (result.valid_passes, result.result.passes))
    console.say(
        f"{result.valid_accuracy:.4f} is of {tried}, those at smaller C included"
        f"{'' if valid else ', without the held-out rows'}; the model is of {made} over all rows:"
    )
    finish(console, result.result, is_end=False)
    console.result(dataclasses.asdict(dataclasses.replace(result, model=None)))


class TuneReporter(EventTable):
    """Reporter of a search, with a line for each setting that was tried; of a single training as it goes."""

    COLUMNS = (
        ("C", 11, "C", ".4g"),
        ("accuracy", 8, "valid_accuracy", ".4f"),
        ("seconds", 8, "seconds", ".2f"),
    )
    LAST = "settings"

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._of_passes = False

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "convert":
            print_report(self.console, event["report"], in_run=True)
        elif event["event"] == "search":
            self.console.say(count(event["trainings"], "training"))
            self._of_passes = event["trainings"] == 1 and not self._headed  # nothing was tried before
            self.left_out = {"seconds"} if self._of_passes else set()  # which would be of the last pass
        elif event["event"] == ("pass" if self._of_passes else "tried") and "valid_accuracy" in event:
            self.line(event, differing(event))


def differing(row: dict[str, Any]) -> str:
    """Return the settings that differ, as text."""
    return ", ".join(f"{name} {value or 'default'}" for name, value in row.get("settings", {}).items())
