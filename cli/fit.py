"""`streamsvm fit`: train on a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from streamsvm_cli.console import (
    C,
    Console,
    Every,
    Json,
    Memory,
    Quiet,
    Table,
    count,
    fraction,
    size_of_data,
    stop_on_signals,
    wrong_usage,
)

from streamsvm.text import format_size

_MUCH = 0.5  # of the time


def fit(
    store: Annotated[Path, typer.Argument(help="Store to train on.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run directory to create; required but for --dry-run.")
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 3,
    C: C = "auto",  # type: ignore[assignment,valid-type]
    loss: Annotated[Literal["ww", "cs"], typer.Option(help="Weston-Watkins or Crammer-Singer.")] = "ww",
    margin: Annotated[float | None, typer.Option(help="Margin scale of Weston-Watkins: 1 or 0.5.")] = None,
    solver: Annotated[
        Literal["newton", "sorted"] | None,
        typer.Option(help="Block solver; sorted is the published algorithm."),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64"], typer.Option(help="Precision of weights and duals.")
    ] = "float32",
    seed: Annotated[int, typer.Option(min=0, help="Determines the order of blocks and rows.")] = 0,
    inner_passes: Annotated[
        str, typer.Option(help="Revisits of a block's rows while they are in memory: a number, or auto.")
    ] = "auto",
    average: Annotated[
        bool, typer.Option(help="Make the model the average of the last half pass, or the last iterate.")
    ] = True,
    memory: Memory = "2G",  # type: ignore[assignment]
    tol: Annotated[float | None, typer.Option(help="Stop at this relative duality gap.")] = None,
    gap: Annotated[
        Literal["pass", "end", "none"] | None,
        typer.Option(
            help="When to measure the exact gap, by one more reading of the data: after each pass "
            "(default with --tol), at the end (default without), or never."
        ),
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Store to measure accuracy on after each pass.")] = None,
    label: Annotated[
        str | None, typer.Option(help="Label column of obs, for AnnData not written by convert.")
    ] = None,
    keep_duals: Annotated[
        bool | None, typer.Option(help="Allow passes to be added later; default unless --passes 1.")
    ] = None,
    block_rows: Annotated[int | None, typer.Option(min=1, help="At most so many rows a block.")] = None,
    checkpoint_every: Every = "60s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the memory plan and stop.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a linear multi-class SVM on a store.

    Each pass reads the store once, and the exact duality gap after the last one once more (see --gap).
    """
    console = Console(quiet=quiet, json=json)
    settings: dict[str, Any] = {
        "passes": passes, "C": C, "loss": loss, "margin": margin,
        "solver": solver, "dtype": dtype, "seed": seed, "memory": memory,
        "tol": tol, "gap": gap, "valid": valid, "label": label, "keep_duals": keep_duals,
        "block_rows": block_rows, "average": average,
        "inner_passes": int(inner_passes) if inner_passes.isdecimal() else inner_passes,
    }  # fmt: skip
    from streamsvm.training import trainer

    if dry_run:
        plan = trainer.plan(store, **settings)
        print_plan(console, plan)
        console.result(plan)
        return
    if out is None:
        raise wrong_usage("--out is missing: name the run directory to create")
    with stop_on_signals() as stop:
        result = trainer.fit(
            store, out, **settings, checkpoint_every=checkpoint_every, force=force,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    finish(console, result)


def print_plan(console: Console, plan: dict[str, Any]) -> None:
    console.say(
        size_of_data(plan["rows"], plan["features"], plan["classes"], plan["nnz"])
        + f"; {count(plan['blocks'], 'block')}"
    )
    console.say(
        f"memory: {format_size(plan['planned_bytes'])} planned of {format_size(plan['budget'])}; "
        f"weights {format_size(plan['weights_bytes'])}, {_place(plan)}"
    )
    if plan["budget"] < plan["memory"]:
        console.say(
            f"this process may have less than the {format_size(plan['memory'])} of --memory: its limit, less "
            "what the program itself takes, is the budget"
        )
    if plan["lists"]:
        console.say(
            f"weights of rare features are lists ({format_size(plan['lists_bytes'])} of the plan); a matrix, "
            f"from --memory {-(-plan['weights_bytes'] // 2**20)}M on, is faster where there is room for it"
        )
    if plan["mapped_bytes"]:
        console.say(
            f"disk: up to {format_size(plan['log_bytes'])} for weights and the log of their changes"
            + (", much less as lists" if plan["lists"] else "")
        )
    if plan["warning"]:
        console.say(plan["warning"])
    if plan["order_warning"]:
        console.warn(plan["order_warning"])


def _place(plan: dict[str, Any]) -> str:
    """Where the weights are."""
    if not plan["mapped_bytes"]:
        return "part of it"
    if plan["weights_in_memory"]:
        return f"of which the average, {format_size(plan['mapped_bytes'])}, is memory-mapped"
    return "memory-mapped"


class Reporter(Table):
    """The lines of a fit."""

    COLUMNS = (  # heading, width, key, format
        ("pass", 4, "pass", "d"),
        ("dual", 13, "dual", ".6g"),
        ("primal", 13, "primal", ".6g"),
        ("rel. gap", 9, "relative_gap", ".2e"),
        ("estimate", 9, "relative_gap_estimate", ".2e"),
        ("accuracy", 8, "accuracy", ".4f"),
        ("averaged", 8, "average_accuracy", ".4f"),
        ("valid", 6, "valid_accuracy", ".4f"),
        ("averaged", 8, "average_valid_accuracy", ".4f"),
        ("rows/s", 10, "rows_per_second", ",.0f"),
        ("seconds", 7, "seconds", ".2f"),
        ("waited", 6, "waited_fraction", ".0%"),
        ("peak", 9, "peak_memory_bytes", "size"),
    )

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "plan":
            print_plan(self.console, event)
            self.console.say(f"C {event['C']:.6g}" + ", chosen from the data" * event["C_auto"])
        elif event["event"] == "rows" and event["rows"] >= 100:
            self.console.say(
                f"  {event['rows']:>12,} rows, progressive accuracy {fraction(event['progressive_accuracy'])}"
            )
        elif event["event"] == "pass":
            self.line(event)


def finish(console: Console, result: Any) -> None:
    """Print how a fit or a resume ended."""
    for warning in result.warnings:
        console.warn(warning)
    if result.empty_rows:
        console.say(f"{count(result.empty_rows, 'row')} of norm 0 took no part in training")
    line = f"{result.status}: {count(result.passes, 'pass')} in {result.seconds:.2f} s of training"
    if result.relative_gap is not None:
        line += f", relative gap {result.relative_gap:.2e}"
        if result.average and "relative_gap" in result.average:
            line += f" (of the averaged weights {result.average['relative_gap']:.2e})"
    console.say(f"{line}, progressive accuracy {fraction(result.progressive_accuracy)}")
    console.say(
        f"{count(result.checkpoints, 'checkpoint')} of {format_size(result.checkpoint_bytes)} in all "
        f"in {result.checkpoint_seconds:.2f} s, "
        f"peak memory {format_size(result.peak_memory_bytes)}"
    )
    if result.waited_fraction > _MUCH:
        console.say(
            f"for {result.waited_fraction:.0%} of the time training waited for the store: reading and "
            "decompressing it is the limit, not computing"
        )
    averaged = ", the average of the last half pass" if result.averaged else ""
    console.say(f"model: {result.model}{averaged}")
    console.result(dataclasses.asdict(result))
