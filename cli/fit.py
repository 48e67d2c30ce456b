"""`streamsvm fit`: train a model."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals, warn
from streamsvm_cli.conversion import print_report
from streamsvm_cli.options import FORCE, TRAINING, Option, command
from streamsvm_cli.wording import count, fraction, gap, size_of_data, small

from streamsvm.base.progress import of_model
from streamsvm.base.text import format_size
from streamsvm.settings import checks
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.settings.reading import ReadingSettings

_SLOW_READING_FRACTION = 0.5


_RUN = {
    "out": Option(
        checks.PATH, None, "Run directory to create; required unless --dry-run is set.",
        letter="o",
    ),
}  # fmt: skip
_OPTIONS = {
    "dry_run": Option(checks.FLAG, False, "Print the memory plan for a store, AnnData or matrix, and exit."),
    "keep_data": Option(
        checks.FLAG, True,
        "Keep the store that was converted from text or a table, to allow more passes later.",
    ),
    "force": FORCE,
    "resume_or_start": Option(
        checks.FLAG, False,
        "Resume the run in --out if it exists with the same settings and data, otherwise start it; for "
        "schedulers that repeat a command.",
    ),
}  # fmt: skip


@command(_RUN, declared(Settings), declared(ReadingSettings), TRAINING, _OPTIONS)
def fit(
    console: Console,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA",
            help="LIBSVM text, a table, a matrix, AnnData or a store; - for LIBSVM text on standard input.",
        ),
    ],
    *,
    out: Path | None,
    dry_run: bool,
    **settings: Any,
) -> None:
    """Train a linear multi-class SVM.

    Example: streamsvm fit train.txt --valid test.txt --out run

    Text and tables are first converted to a store in --out. Stores, AnnData and dense matrices are read in
    place. Each pass reads the store once; measuring the exact duality gap reads it once more (see --gap).

    The gap is (primal - dual) / primal, with ~ if it is estimated. The objective exceeds its optimum by at
    most this fraction of its value. The gap and the accuracies are those of the model after the pass.
    """
    import streamsvm

    if dry_run:
        plan_settings = {name: settings[name] for name in (*declared(Settings), "workers", "cluster")}
        plan = streamsvm.plan(data, **plan_settings)
        print_plan(console, plan)
        console.result(plan)
        return
    with stop_on_signals() as stop:
        result: Any = streamsvm.fit(
            data, out=out, report=FitReporter(console), progress=console.progress, stop=stop, **settings
        )
    finish(console, result)


def print_plan(console: Console, plan: dict[str, Any], *, with_size: bool = True) -> None:
    if with_size:
        console.say(size_of_data(plan["rows"], plan["features"], plan["classes"], plan["nnz"]))
    place = (
        ", or much less in sparse form" if plan["sparse"] else ", memory-mapped" * bool(plan["mapped_bytes"])
    )
    console.say(
        f"{count(plan['blocks'], 'block')}; memory {format_size(plan['planned_bytes'])} of "
        f"{format_size(plan['budget'])}; weights {format_size(plan['weights_bytes'])}{place}"
    )
    if plan["budget"] < plan["memory"]:
        console.say(
            f"the memory limit of this process is below the {format_size(plan['memory'])} of --memory, so "
            "the budget is this limit minus the memory of the program itself"
        )
    if plan["transform"] not in (None, "none"):
        console.say(f"transform {plan['transform']} (--transform none leaves it out)")
    if plan["unlabelled_rows"]:
        console.say(f"{count(plan['unlabelled_rows'], 'row')} left out for lack of a label")
    if plan["held_out"]:
        console.say(plan["held_out"])
    if plan["slice_rows"]:
        console.say(
            "the rows are not shuffled, so each block consists of slices of "
            f"{count(plan['slice_rows'], 'row')} from anywhere in the data"
        )
    if plan["splits"] > 1:
        console.say(f"{plan['splits']} splits by {plan['split']}: {plan['split_reason']}")
    if plan.get("worker_bytes"):
        sizes = [format_size(plan[name]) for name in ("worker_bytes", "worker_split_bytes")]
        console.say("a worker of a cluster needs about {}, and {} for each additional split".format(*sizes))
    if plan["mapped_bytes"] or "worker_bytes" in plan:
        console.say(f"disk: a commit writes up to {format_size(plan['commit_bytes'])} of weights")
    if plan["warning"]:
        console.say(plan["warning"])
    for name in ("average_warning", "order_warning"):
        if plan[name]:
            warn(plan[name])
    if plan["C"] == AUTO:
        console.say("C: chosen before the first pass, by trial runs on a sample of the rows")
        return
    console.say(f"C {plan['C']:.4g}" + ", chosen from the data" * plan["C_auto"])


class FitReporter(EventTable):
    """Print a line about the model after each pass of a fit."""

    COLUMNS = (
        ("pass", 4, "pass", "d"),
        ("gap", 8, "gap", ""),
        ("training", 8, "train_accuracy", ".4f"),
        ("test", 8, "valid_accuracy", ".4f"),
        ("rows/s", 11, "rows_per_second", ",.0f"),
        ("seconds", 8, "seconds", ".2f"),
    )
    converted = False  # whether a conversion has printed the data size

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "convert":
            print_report(self.console, event["report"])
            self.converted = True
        elif event["event"] == "C":
            accuracies = [f"{each['valid_accuracy']:.4f} with C {each['C']:.3g}" for each in event["tried"]]
            self.console.say(f"accuracy on held-out rows of a sample: {', '.join(accuracies)}")
        elif event["event"] == "plan":
            print_plan(self.console, event, with_size=not self.converted)
            if event["gap"] == "none":
                self.left_out.add("train_accuracy")
            if event["valid"] is None and event["hold_out"] is None:
                self.left_out.add("valid_accuracy")
        elif event["event"] == "pass":
            self.line({**event, "gap": gap({**event, "relative_gap": of_model(event).get("relative_gap")})})


def finish(console: Console, result: Any, *, is_end: bool = True) -> None:
    """Print the result of `fit` or `resume`. If it ends the command (`is_end`), also print it as JSON."""
    from streamsvm.run.directory import RunDir, names_of_files

    if is_end and result.checkpoints == 0:  # every run that trains writes at least a final commit
        more = "; continue the run with more --passes or a smaller --tol" * result.settings["keep_duals"]
        console.say(f"nothing left to train{more}")
    for warning in result.warnings:
        warn(warning)
    for rows, why in (
        (result.empty_rows, "with norm 0 or without a label"),
        (result.unweighted_rows, "with weight 0 or held out"),
    ):
        if rows:
            console.say(f"{count(rows, 'row')} {why} took no part in training")
    line = f"{result.status}: {count(result.passes, 'pass')} in {result.seconds:.2f} s of training"
    if result.relative_gap is not None:
        line += f", gap {small(result.relative_gap)}"
    console.say(f"{line}, peak memory {format_size(result.peak_memory_bytes)}")
    if result.waited_fraction > _SLOW_READING_FRACTION and result.seconds > 1:
        console.say(
            f"training waited for the store for {result.waited_fraction:.0%} of the time, so reading and "
            "decompression limit the speed, not computation"
        )
    averaged = ", the average over the last half pass" if result.averaged else ""
    console.say(f"model: {result.model}{averaged}")
    if result.valid_accuracy is not None and result.checkpoints:  # else it may be from an earlier `valid`
        valid, part = result.settings["valid"], result.settings["hold_out"]
        sources = names_of_files(RunDir(Path(result.model).parent).read_settings()).get("valid", [valid])
        what = f"hold-out {part}" if valid is None else os.path.basename(sources[0])
        console.say(f"{what}: accuracy {fraction(result.valid_accuracy)}")
    if result.hint is not None:
        console.say(result.hint)
    if is_end:
        console.result(dataclasses.asdict(result))
