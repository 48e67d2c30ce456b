"""`streamsvm resume`: continue a run, or extend it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli import fit, online
from streamsvm_cli.console import Console, stop_on_signals
from streamsvm_cli.options import Cluster, Every, Workers, with_settings

from streamsvm.settings.field import changes_of
from streamsvm.settings.fit import Settings


@with_settings(changes_of(Settings))
def resume(
    console: Console,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.")],
    *,
    store: Annotated[
        list[Path] | None,
        typer.Option(help="Where the store is now, if it was moved; once for each of several."),
    ] = None,
    workers: Workers = None,
    cluster: Cluster = None,
    checkpoint_every: Every = "60s",
    **settings: Any,
) -> None:
    """Continue an interrupted run, or extend a finished one.

    A finished run continues with more --passes; one that --tol ended also needs a smaller --tol.
    """
    import streamsvm
    from streamsvm.base import format
    from streamsvm.run.directory import RunDir

    streams = RunDir(run).read_settings().get("kind") == format.ONLINE
    report = (online.OnlineReporter if streams else fit.FitReporter)(console)
    with stop_on_signals() as stop:
        result = streamsvm.resume(
            run, **settings, store=store, workers=workers, cluster=cluster,
            checkpoint_every=checkpoint_every, report=report, progress=console.progress, stop=stop,
        )  # fmt: skip
    if streams:
        if result.checkpoints == 0 and result.status == "done":
            console.say("nothing left to learn: no rows were added")
        online.finish(console, result)
        return
    if result.checkpoints == 0:  # not even the last one of a run
        console.say(f"nothing left to train: {fit.why_finished(result)}")
    fit.finish(console, result)
