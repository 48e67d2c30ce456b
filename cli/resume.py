"""`streamsvm resume`: continue a run, or extend it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from streamsvm_cli.console import Console, Every, Json, Quiet, count, stop_on_signals, wrong_usage
from streamsvm_cli.fit import Reporter, finish
from streamsvm_cli.online import continue_stream


def resume(
    run: Annotated[Path, typer.Argument(help="Run directory.")],
    passes: Annotated[int | None, typer.Option(min=1, help="New total number of passes.")] = None,
    tol: Annotated[float | None, typer.Option(help="New relative duality gap to stop at.")] = None,
    store: Annotated[Path | None, typer.Option(help="Where the store is now, if it was moved.")] = None,
    valid: Annotated[Path | None, typer.Option(help="Where the --valid store is now, or another.")] = None,
    checkpoint_every: Every = "60s",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue an interrupted run, or extend one.

    A finished run goes on with more --passes; one that --tol ended also needs a smaller --tol.
    """
    console = Console(quiet=quiet, json=json)
    from streamsvm import format
    from streamsvm.run.directory import RunDir
    from streamsvm.settings import Settings
    from streamsvm.training import trainer

    if RunDir(run).read_settings().get("kind") == format.ONLINE:
        if (passes, tol, store, valid) != (None, None, None, None):
            raise wrong_usage(f"{run} learns from a stream; it takes no --passes, --tol, --store, --valid")
        continue_stream(console, run, checkpoint_every)
        return
    with stop_on_signals() as stop:
        result = trainer.resume(
            run, passes=passes, tol=tol, store=store, valid=valid, checkpoint_every=checkpoint_every,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    if result.checkpoints == 0:  # not even the one that ends a run
        settings = Settings(**RunDir(run).read_settings()["settings"])
        told, remedies = f"{result.passes} of {count(settings.passes, 'pass')} made", []
        if result.status == "converged":
            told += f", the relative gap is at or below --tol {settings.tol:g}"
            remedies.append("a smaller --tol")
        if result.passes == settings.passes and settings.keep_duals:
            remedies.append("more --passes")
        if remedies:
            told += f"; to go on, give {' and '.join(remedies)}"
        console.say(f"nothing left to train: {told}")
    finish(console, result)
