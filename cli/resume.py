"""`streamsvm resume`: continue a run, or extend it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console, Every, Json, Quiet, stop_on_signals
from streamsvm_cli.fit import Reporter, finish
from streamsvm_cli.online import continue_stream


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    passes: Annotated[int | None, typer.Option(min=1, help="New total number of passes.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where the store is now, if it was moved.")] = None,
    valid: Annotated[Path | None, typer.Option(help="Where the --valid store is now, or another.")] = None,
    checkpoint_every: Every = "60s",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue an interrupted run, or extend one."""
    console = Console(quiet=quiet, json=json)
    from streamsvm import format, train
    from streamsvm.checkpoint import RunDir

    if RunDir(run).read_settings().get("kind") == format.ONLINE:
        if (passes, store, valid) != (None, None, None):
            raise typer.BadParameter(f"{run} learns from a stream; --passes, --store, --valid are for fits")
        continue_stream(console, run, checkpoint_every)
        return
    with stop_on_signals() as stop:
        result = train.resume(
            run, passes=passes, store=store, valid=valid, checkpoint_every=checkpoint_every,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    finish(console, result)
