"""`streamsvm fit`: train on a store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, EventTable, stop_on_signals
from streamsvm_cli.conversion import print_report
from streamsvm_cli.options import FORCE, TRAINING, VERBOSE, Option, command
from streamsvm_cli.wording import count, fraction, size_of_data, small, wrong_usage

from streamsvm.base.progress import of_model
from streamsvm.base.text import format_size
from streamsvm.settings.field import declared
from streamsvm.settings.fit import AUTO, Settings
from streamsvm.settings.reading import ReadingSettings

_SLOW_READING_FRACTION = 0.5  # of the time


_RUN = {
    "out": Option(os.PathLike, None, "Run directory to create; required except with --dry-run.", letter="o"),
}  # fmt: skip
_OPTIONS = {
    "dry_run": Option(bool, False, "Print the memory plan of a store, AnnData or matrix, and stop."),
    "keep_data": Option(
        bool, True, "Keep the store that was made of text or a table, so that passes can be added.",
    ),
    "force": FORCE,
    "resume_or_start": Option(
        bool, False,
        "Go on with the run in --out if there is one, with the same settings and data, or start it: for "
        "schedulers that repeat a command.",
    ),
}  # fmt: skip


@command(_RUN, declared(Settings), declared(ReadingSettings), TRAINING, _OPTIONS, VERBOSE)
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
    **given: Any,
) -> None:
    """Train a linear multi-class SVM.

    Example: streamsvm fit train.txt --valid test.txt --out run

    Text and tables are converted into the run first; stores, AnnData and dense matrices are read as they are.
    Each pass reads the store once; measuring the exact duality gap reads it once more (see --gap).

    gap: (primal - dual) / primal, ~ if estimated; the objective is above its optimum by at most this share of
    itself. It and the accuracies in training and on --valid are those of the model after the pass.
    """
    if out is None and not dry_run:
        raise wrong_usage("--out is missing: name the run directory to create")
    import streamsvm

    if dry_run:
        for name in ReadingSettings(**{name: given[name] for name in declared(ReadingSettings)}).given():
            raise wrong_usage(
                f"--{name.replace('_', '-')} is for a conversion, and --dry-run plans without one"
            )
        of_plan = {name: given[name] for name in (*declared(Settings), "workers", "cluster")}
        plan = streamsvm.plan(data, **of_plan)
        print_plan(console, plan)
        console.result(plan)
        return
    with stop_on_signals() as stop:
        result: Any = streamsvm.fit(
            data, out=out, report=FitReporter(console), progress=console.progress, stop=stop, **given
        )
    finish(console, result)


def print_plan(
    console: Console,
    plan: dict[str, Any],
    tried: Sequence[dict[str, float]] = (),
    *,
    with_size: bool = True,
) -> None:
    """Print a plan; `tried` are the values of C from which that of the plan was chosen."""
    if with_size:
        console.say(size_of_data(plan["rows"], plan["features"], plan["classes"], plan["nnz"]))
    console.say(
        f"{count(plan['blocks'], 'block')}; memory {format_size(plan['planned_bytes'])} of "
        f"{format_size(plan['budget'])}; weights {format_size(plan['weights_bytes'])}, {_place(plan)}"
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
    line = f"C {plan['C']:.4g}" + ", chosen from the data" * plan["C_auto"]
    if tried:
        found = ", ".join(f"{each['valid_accuracy']:.4f} with C {each['C']:.3g}" for each in tried)
        line += f"; accuracy on held-out rows of a sample: {found}"
    if plan["first_C"] < plan["C"]:
        line += f"; the first pass has {plan['first_C']:.4g}, doubled in each pass until it is C"
    return line


def _place(plan: dict[str, Any]) -> str:
    """Return a phrase that says where the weights are kept."""
    if plan["sparse"]:
        kept = format_size(plan["sparse_bytes"])
        return f"as a matrix; stored sparsely, which takes a small part of that, up to {kept} in memory"
    return "memory-mapped" if plan["mapped_bytes"] else "part of it"


class FitReporter(EventTable):
    """Reporter of a fit, with a line for each pass: of the model that would be saved after it."""

    COLUMNS = (  # heading, width, key, format
        ("pass", 4, "pass", "d"),
        ("gap", 8, "relative_gap_text", ""),
        ("training", 8, "train_accuracy", ".4f"),
        ("test", 8, "valid_accuracy", ".4f"),
        ("rows/s", 11, "rows_per_second", ",.0f"),
        ("seconds", 8, "seconds", ".2f"),
    )

    _tried: Sequence[dict[str, float]] = ()  # values of C, and their accuracies
    _said_size = False  # of the data, where a store was made of them

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "convert":
            print_report(self.console, event["report"], in_run=True)
            self._said_size |= Path(event["report"].path).stem == "data"
        elif event["event"] == "C":
            self._tried = event["tried"]
        elif event["event"] == "plan":
            print_plan(self.console, event, self._tried, with_size=not self._said_size)
            if event["gap"] == "none":
                self.left_out.add("train_accuracy")
            if event["valid"] is None and event["hold_out"] is None:
                self.left_out.add("valid_accuracy")
        elif event["event"] == "pass":
            self.line({**event, "relative_gap_text": _gap_of_model(event)})


def _gap_of_model(event: dict[str, Any]) -> str | None:
    """Return the relative gap of the model after a pass; ~ marks an estimate."""
    gap, sign = of_model(event).get("relative_gap"), ""
    if gap is None:
        gap, sign = event["relative_gap_estimate"], "~"
    return None if gap is None else sign + small(gap)


def _why_finished(result: Any) -> str:
    """Return why a fit has nothing left to do, and the options with which it would go on."""
    passes, tol = result.settings["passes"], result.settings["tol"]
    reason, options = f"{result.passes} of {count(passes, 'pass')} made", []
    if result.status == "converged":
        reason += f", and the relative gap is at most --tol {tol:g}"
        options.append("a smaller --tol")
    if result.passes == passes and result.settings["keep_duals"]:
        options.append("more --passes")
    return reason + (f"; to continue, give {' and '.join(options)}" if options else "")


def _name_of_valid(valid: str, model: str) -> str:
    """Return the name of the validation data: of the files that the run made a store of, if it did."""
    from streamsvm.run.directory import RunDir, names_of_files

    run, name = RunDir(Path(model).parent), os.path.basename(valid)
    made = names_of_files(run.read_settings()).get(run.valid.stem)
    return ", ".join(made) if made and name == run.valid.name else name


def finish(console: Console, result: Any, *, is_end: bool = True) -> None:
    """Print the result of a fit or a resume, which is the object for machines if the command ends with it."""
    if is_end and result.checkpoints == 0:  # not even the last one of a run
        console.say(f"nothing left to train: {_why_finished(result)}")
    for warning in result.warnings:
        console.warn(warning)
    if result.empty_rows:
        console.say(
            f"{count(result.empty_rows, 'row')} of norm 0 or without a label took no part in training"
        )
    if result.unweighted_rows:
        console.say(
            f"{count(result.unweighted_rows, 'row')} of weight 0 or held out took no part in training"
        )
    line = f"{result.status}: {count(result.passes, 'pass')} in {result.seconds:.2f} s of training"
    if result.relative_gap is not None:
        line += f", gap {small(result.relative_gap)}"
    console.say(f"{line}, peak memory {format_size(result.peak_memory_bytes)}")
    console.detail(f"progressive accuracy {fraction(result.progressive_accuracy)}")
    console.detail(
        f"{count(result.checkpoints, 'checkpoint')} of {format_size(result.checkpoint_bytes)} in all "
        f"in {result.checkpoint_seconds:.2f} s"
    )
    if result.waited_fraction > _SLOW_READING_FRACTION and result.seconds > 1:
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
    console.say(f"model: {result.model}{averaged}")
    if result.valid_accuracy is not None and result.checkpoints:  # else of an earlier validation store, maybe
        valid, part = result.settings["valid"], result.settings["hold_out"]
        what = f"hold-out {part}" if valid is None else _name_of_valid(valid, result.model)
        console.say(f"{what}: accuracy {fraction(result.valid_accuracy)}")
    if is_end:
        console.result(dataclasses.asdict(result))
