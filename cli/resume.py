"""`streamsvm resume`: continue or extend a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli import fit, online
from streamsvm_cli.console import Console, stop_on_signals
from streamsvm_cli.options import TRAINING, Option, command

from streamsvm.settings import checks
from streamsvm.settings.field import changes_of
from streamsvm.settings.fit import Settings

_OPTIONS = {
    "store": Option(
        checks.several(checks.PATH), None,
        "New path of the store, if it was moved; repeat the option for each store.",
    ),
}  # fmt: skip


@command(changes_of(Settings), _OPTIONS, TRAINING)
def resume(
    console: Console, run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")], **more: Any
) -> None:
    """Continue an interrupted run, or extend a finished one.

    To extend a finished run, set more --passes. If --tol ended the run, also set a smaller --tol.
    """
    import streamsvm
    from streamsvm.base import format
    from streamsvm.run.directory import RunDir

    streams = RunDir(run).read_settings().get("kind") == format.ONLINE
    report = (online.OnlineReporter if streams else fit.FitReporter)(console)
    with stop_on_signals() as stop:
        result = streamsvm.resume(run, report=report, progress=console.progress, stop=stop, **more)
    if streams:
        if result.checkpoints == 0 and result.status == "done":
            console.say("nothing left to learn, because no rows were added")
        online.finish(console, result)
        return
    fit.finish(console, result)
