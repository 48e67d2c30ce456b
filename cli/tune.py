"""`streamsvm tune`: search for C, and for other settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals
from streamsvm_cli.conversion import print_report
from streamsvm_cli.fit import finish
from streamsvm_cli.options import Cluster, Every, Force, Workers, with_settings
from streamsvm_cli.wording import count

from streamsvm.settings.field import declared
from streamsvm.settings.fit import Settings
from streamsvm.settings.reading import ReadingSettings

_SETTINGS = {name: each for name, each in declared(Settings).items() if not each.searched}


@with_settings(_SETTINGS | declared(ReadingSettings))
def tune(
    console: Console,
    data: Annotated[
        list[Path],
        typer.Argument(metavar="DATA", help="LIBSVM text, a table, a matrix, AnnData or a store."),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory to create.")],
    C: Annotated[
        str,
        typer.Option(
            "--C",
            metavar="RANGE|NUMBERS|auto",
            help="Values of C: a range such as 2^-6:2^3, by factors of its base; numbers with commas; "
            "or auto, 10 values by factors of 2 around the C of fit.",
        ),
    ] = "auto",
    loss: Annotated[
        list[str] | None, typer.Option(help="Loss (see fit), ww by default; several are compared.")
    ] = None,
    margin: Annotated[
        list[float] | None, typer.Option(help="Margin scale of Weston-Watkins; several are compared.")
    ] = None,
    transform: Annotated[
        list[str] | None,
        typer.Option(help="Transforms of the rows (see fit), or none; several are compared."),
    ] = None,
    hold_out: Annotated[
        str | None, typer.Option(help="Part of the rows that is held out and measured on, 1/10 by default.")
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="Measure on each of so many parts instead, in so many trainings.", min=2),
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Store, text or table to measure on instead.")] = None,
    passes_each: Annotated[int, typer.Option(help="Passes for each value of C.", min=1)] = 2,
    passes: Annotated[
        int, typer.Option(help="Passes of the training with the best, on all rows.", min=1)
    ] = 3,
    workers: Workers = None,
    cluster: Cluster = None,
    checkpoint_every: Every = "60s",
    force: Force = False,
    **settings: Any,
) -> None:
    """Choose C, and other settings of several, and train with them.

    Example: streamsvm tune train.txt --out run --C 2^-6:2^3

    All values of C are one training: each begins where the one before ended. The accuracy is that of the
    averaged weights on rows that are held out. The same command, given again, goes on where it was stopped.
    """
    import streamsvm

    with stop_on_signals() as stop:
        result: Any = streamsvm.tune(
            data, out=out, C=C, loss=loss or ["ww"], margin=margin, transform=transform, hold_out=hold_out,
            folds=folds, valid=valid, passes_each=passes_each, passes=passes, **settings,
            workers=workers, cluster=cluster, checkpoint_every=checkpoint_every, force=force,
            report=TuneReporter(console), progress=console.progress, stop=stop,
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
