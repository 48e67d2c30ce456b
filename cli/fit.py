"""`streamsvm fit`: train on a store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals
from streamsvm_cli.options import Cluster, Every, Force, Workers, with_settings
from streamsvm_cli.wording import count, fraction, size_of_data, wrong_usage

from streamsvm.base.text import format_size
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, Settings

_SLOW_READING_FRACTION = 0.5  # of the time


@with_settings(declared(Settings))
def fit(
    console: Console,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="STORE", help="Store, AnnData, or dense matrix (.npy, Zarr); several are joined."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Run directory to create; required except with --dry-run."),
    ] = None,
    *,
    workers: Workers = None,
    cluster: Cluster = None,
    checkpoint_every: Every = "60s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the memory plan and stop.")] = False,
    force: Force = False,
    resume_or_start: Annotated[
        bool,
        typer.Option(
            "--resume-or-start",
            help="Go on with the run in --out if there is one, with the same settings and data, or start it: "
            "for schedulers that repeat a command.",
        ),
    ] = False,
    **settings: Any,
) -> None:
    """Train a linear multi-class SVM on a store or on AnnData.

    Each pass reads the store once; measuring the exact duality gap reads it once more (see --gap).

    rel. gap: (primal - dual) / primal; the objective is above its optimum by at most this share of itself.
    """
    if out is None and not dry_run:
        raise wrong_usage("--out is missing: name the run directory to create")
    import streamsvm

    if dry_run:
        plan = streamsvm.plan(data, **settings, workers=workers, cluster=cluster)
        print_plan(console, plan)
        console.result(plan)
        return
    with stop_on_signals() as stop:
        result: Any = streamsvm.fit(
            data, out=out, **settings, workers=workers, cluster=cluster,
            checkpoint_every=checkpoint_every, force=force, resume_or_start=resume_or_start,
            report=FitReporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    if result.checkpoints == 0:  # not even the last one of a run
        console.say(f"nothing left to train: {why_finished(result)}")
    finish(console, result)


def print_plan(console: Console, plan: dict[str, Any], tried: Sequence[dict[str, float]] = ()) -> None:
    """Print a plan; `tried` are the values of C from which that of the plan was chosen."""
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
            f"the limit of this process is less than the {format_size(plan['memory'])} of --memory: the "
            "budget is that limit, minus what the program itself takes"
        )
    if plan["transform"] not in (None, "none"):
        console.say(f"transform {plan['transform']} (--transform none: without)")
    if plan["unlabelled_rows"]:
        console.say(f"{count(plan['unlabelled_rows'], 'row')} without a label left out")
    if plan["slice_rows"]:
        console.say(
            "the rows are not shuffled: a block is made of slices of "
            f"{count(plan['slice_rows'], 'row')} from anywhere in the data"
        )
    if plan["splits"] > 1:
        console.say(f"{plan['splits']} splits by {plan['split']}: {plan['split_reason']}")
    if plan.get("worker_bytes"):  # of a dry run
        console.say(
            f"on a cluster each worker holds about {format_size(plan['worker_bytes'])} for one split, and "
            f"{format_size(plan['worker_split_bytes'])} more for each further one"
        )
    if plan["mapped_bytes"]:
        console.say(
            f"disk: up to {format_size(plan['log_bytes'])} for weights and the log of their changes"
            + (", much less where they are sparse" if plan["sparse"] else "")
        )
    if plan["warning"]:
        console.say(plan["warning"])
    for name in ("average_warning", "order_warning"):
        if plan[name]:
            console.warn(plan[name])
    console.say(_line_of_c(plan, tried))


def _line_of_c(plan: dict[str, Any], tried: Sequence[dict[str, float]]) -> str:
    """Return what C is, or will be, and where it comes from."""
    if plan["C"] == AUTO:
        return "C: chosen before the first pass, by trainings on a sample of the rows"
    line = f"C {plan['C']:.6g}" + ", chosen from the data" * plan["C_auto"]
    if tried:
        found = ", ".join(f"{each['valid_accuracy']:.4f} with C {each['C']:.3g}" for each in tried)
        line += f"; accuracy on held-out rows of a sample: {found}"
    if plan["first_C"] < plan["C"]:
        line += f"; the first pass has {plan['first_C']:.6g}, doubled in each pass until it is C"
    return line


def _place(plan: dict[str, Any]) -> str:
    """Return a phrase that says where the weights are kept."""
    if plan["sparse"]:
        kept = format_size(plan["sparse_bytes"])
        return f"as a matrix; stored sparsely, which takes a small part of that, up to {kept} in memory"
    if not plan["mapped_bytes"]:
        return "part of it"
    return "memory-mapped"


class FitReporter(EventTable):
    """Reporter of a fit, with a line for each pass."""

    COLUMNS = (  # heading, width, key, format
        ("pass", 4, "pass", "d"),
        ("dual", 13, "dual", ".6g"),
        ("primal", 13, "primal", ".6g"),
        ("rel. gap", 9, "relative_gap", ".2e"),
        ("estimate", 9, "relative_gap_estimate", ".2e"),
        ("train acc.", 10, "train_accuracy", ".4f"),
        ("valid acc.", 10, "valid_accuracy", ".4f"),
        ("rows/s", 10, "rows_per_second", ",.0f"),
        ("seconds", 7, "seconds", ".2f"),
        ("waited", 6, "waited_fraction", ".0%"),
        ("peak", 9, "peak_memory_bytes", "size"),
    )

    _tried: Sequence[dict[str, float]] = ()  # values of C, and their accuracies

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "C":
            self._tried = event["tried"]
        elif event["event"] == "plan":
            print_plan(self.console, event, self._tried)
        elif event["event"] == "rows" and event["rows"] >= 100:
            self.console.say(
                f"  {event['rows']:>12,} rows, progressive accuracy {fraction(event['progressive_accuracy'])}"
            )
        elif event["event"] == "pass":
            self.line(event)


def why_finished(result: Any) -> str:
    """Return why a fit has nothing left to do, and the options with which it would go on."""
    passes, tol = result.settings["passes"], result.settings["tol"]
    reason, options = f"{result.passes} of {count(passes, 'pass')} made", []
    if result.status == "converged":
        reason += f", and the relative gap is at most --tol {tol:g}"
        options.append("a smaller --tol")
    if result.passes == passes and result.settings["keep_duals"]:
        options.append("more --passes")
    return reason + (f"; to continue, give {' and '.join(options)}" if options else "")


def finish(console: Console, result: Any) -> None:
    """Print the result of a fit or a resume."""
    for warning in result.warnings:
        console.warn(warning)
    if result.empty_rows:
        console.say(
            f"{count(result.empty_rows, 'row')} of norm 0 or without a label took no part in training"
        )
    if result.unweighted_rows:
        console.say(f"{count(result.unweighted_rows, 'row')} of weight 0 took no part in training")
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
    if result.waited_fraction > _SLOW_READING_FRACTION:
        console.say(
            f"training waited for the store for {result.waited_fraction:.0%} of the time: reading and "
            "decompressing it is the limit, not computing"
        )
    if result.calibration is not None:
        found = result.calibration
        console.say(
            f"probabilities: temperature {found.temperature:.4g}, with a log loss of {found.log_loss:.4f} on "
            f"{count(found.rows, 'hold-out row')}"
        )
    averaged = ", the average of the last half pass" if result.averaged else ""
    last = result.history[-1]
    if "compared_rows" in last:
        averaged = averaged or ", the last iterate"
        averaged += (
            f": of the last {count(last['compared_rows'], 'row')} before they were learned from, the average "
            f"has {last['compared_average']:,} right, and the last iterate {last['compared_last_iterate']:,}"
        )
    console.say(f"model: {result.model}{averaged}")
    if result.valid_accuracy is not None and result.checkpoints:  # else of an earlier validation store, maybe
        valid, part = result.settings["valid"], result.settings["hold_out"]
        what = f"hold-out {part}" if valid is None else os.path.basename(valid)
        console.say(f"{what}: accuracy {fraction(result.valid_accuracy)}")
    console.result(dataclasses.asdict(result))
