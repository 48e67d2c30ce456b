"""`streamsvm online`: learn from text as it comes, without a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from streamsvm_cli.console import Console, Every, Json, Memory, Quiet, format_size, stop_on_signals


def online(
    inputs: Annotated[
        list[str], typer.Argument(help="LIBSVM text, plain or .gz .bz2 .xz .zst; - for stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory to create.")],
    C: Annotated[float, typer.Option("--C", help="Weight of the loss against the regulariser.")] = 1.0,
    loss: Annotated[Literal["ww", "cs"], typer.Option(help="Weston-Watkins or Crammer-Singer.")] = "ww",
    margin: Annotated[float | None, typer.Option(help="Margin scale of Weston-Watkins: 1 or 0.5.")] = None,
    solver: Annotated[
        Literal["newton", "sorted"] | None,
        typer.Option(help="Block solver; sorted is the published algorithm."),
    ] = None,
    dtype: Annotated[Literal["float32", "float64"], typer.Option(help="Precision of weights.")] = "float32",
    like: Annotated[
        Path | None, typer.Option(help="Take classes, index base and width from this store, run or model.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(metavar="FILE|LIST", help="All classes: a file with one a line, or a list with commas."),
    ] = None,
    unseen_label: Annotated[
        Literal["error", "keep"],
        typer.Option(help="With given classes: refuse another label, or count it as wrong."),
    ] = "error",
    index_base: Annotated[
        Literal["0", "1"],
        typer.Option(help="What the first feature is called; 0 serves any text, at a row of weights."),
    ] = "0",
    hash_bits: Annotated[
        int | None, typer.Option(min=1, max=31, help="Hash the features to 2 to the power of this columns.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the hash.")] = 0,
    memory: Memory = "1G",  # type: ignore[assignment]
    on_error: Annotated[
        Literal["raise", "skip", "fix"],
        typer.Option(help="Bad rows: stop, skip them, or also sort and sum indices to fix them."),
    ] = "raise",
    checkpoint_every: Every = "60s",
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn from text as it comes, without a store.

    Each row is predicted, then learned from, once and in order. Classes and features may appear on
    the way. Shuffle what is sorted by label: it is learned in the order of the input.
    """
    console = Console(quiet=quiet, json=json)
    if like is not None and classes is not None:
        raise typer.BadParameter("--like and --classes both give the classes; give one of them")
    from streamsvm_converters import TextStream

    from streamsvm import online as learn

    layout: dict[str, Any] = {"classes": None, "n_features": None, "index_base": int(index_base)}
    settings: dict[str, Any] = {
        "C": C, "loss": loss, "margin": margin, "solver": solver, "dtype": dtype, "hash_bits": hash_bits,
        "seed": seed,
    }  # fmt: skip
    if classes is not None:
        layout["classes"] = listed(classes)
    if like is not None:
        layout, hashed = layout_of(like)
        settings |= hashed
    if settings["hash_bits"] is not None:
        layout |= {"n_features": None, "index_base": 0}  # the hash takes the numbers in the text
    stream = TextStream(
        inputs, **layout, dtype=dtype, unseen_label=unseen_label, on_error=on_error,
        memory=memory // 2,  # and as much for the rows read ahead, hashed, and in use
    )  # fmt: skip
    with stop_on_signals() as stop:
        result = learn.online(
            stream, out, **settings, checkpoint_every=checkpoint_every, force=force,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    finish(console, result)


def continue_stream(console: Console, run: Path, checkpoint_every: str) -> None:
    """What `streamsvm resume` does with a run over a stream."""
    from streamsvm_converters import TextStream

    from streamsvm import online as learn

    with stop_on_signals() as stop:
        result = learn.resume(
            run, TextStream.from_record, checkpoint_every=checkpoint_every,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    if result.checkpoints == 0 and result.status == "done":
        console.say("nothing left to learn: no rows have come since")
    finish(console, result)


def listed(text: str) -> list[str]:
    """The classes in a file, one a line, or in a list with commas; in the order of a store's."""
    from streamsvm_converters.labels import class_order

    from streamsvm.errors import InputError

    path = Path(text)
    try:
        labels = path.read_text(encoding="utf-8").split() if path.is_file() else text.split(",")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no list of classes: {error}") from None
    if len(set(labels)) < len(labels) or "" in labels:
        raise typer.BadParameter(f"--classes {text} has an empty label, or one twice")
    return [labels[c] for c in class_order(labels)]


def layout_of(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Classes, width and index base of a store, run or model; and how it hashes, if it does."""
    from streamsvm import format, load_model, open_store
    from streamsvm.errors import InputError

    hashed: dict[str, Any] = {}
    if (path / format.RUN_JSON).exists() or (path / format.MODEL_JSON).exists():
        record = load_model(path).record
        layout = {name: record[name] for name in ("classes", "n_features", "index_base")}
        if record.get("hash"):
            hashed = {"hash_bits": record["hash"]["bits"], "seed": record["hash"]["seed"]}
    else:
        with open_store(path) as store:
            layout = {name: getattr(store, name) for name in ("classes", "n_features", "index_base")}
    if layout["index_base"] is None:
        raise InputError(f"{path} comes from AnnData, whose features have no numbers in text; give --classes")
    return layout, hashed


class Reporter:
    """Prints the events of a pass as lines of a table."""

    COLUMNS = (  # heading, width, key, format
        ("rows", 13, "rows", ",d"),
        ("accuracy", 8, "progressive_accuracy", ".4f"),
        ("recent", 8, "recent_accuracy", ".4f"),
        ("classes", 8, "classes", ",d"),
        ("features", 12, "features", ",d"),
        ("rows/s", 10, "rows_per_second", ",.0f"),
    )

    def __init__(self, console: Console) -> None:
        self._console = console
        self._headed = False

    def __call__(self, event: dict[str, Any]) -> None:
        say = self._console.say
        if event["event"] == "plan" and not event["resumable"]:
            say("standard input or a pipe cannot be read again: this run cannot be resumed")
        elif event["event"] == "compile":
            say("compiling kernels; this happens once on a machine")
        elif event["event"] == "ready" and event["seconds"] > 2:
            say(f"kernels compiled in {event['seconds']:.0f} s")
        elif event["event"] == "rows":
            if not self._headed:
                say("  ".join(f"{name:>{width}}" for name, width, *_ in self.COLUMNS))
                self._headed = True
            say("  ".join(format(event[key], form).rjust(width) for _, width, key, form in self.COLUMNS))


def finish(console: Console, result: Any) -> None:
    """Print how a pass ended."""
    for warning in result.warnings:
        console.warn(warning)
    met = result.input
    for line in met["first_errors"]:
        console.warn(f"skipped: {line}")
    notes = {
        "rows skipped": met["skipped"],
        "rows repaired": met["repaired"],
        "explicit zeros dropped": met["explicit_zeros"],
        "qid fields ignored": met["qids"],
        "values of unseen features dropped": met["unseen_features"],
        "rows with unseen labels, counted as wrong": met["unseen_labels"],
        "rows of norm 0, or with an unseen label, took no part in training": result.empty_rows,
    }
    for what, count in notes.items():
        if count:
            console.say(f"  {count:,} {what}")
    console.say(
        f"{result.status}: {result.rows:,} rows in {result.seconds:.2f} s, "
        f"progressive accuracy {result.progressive_accuracy:.4f}"
    )
    console.say(
        f"{result.checkpoints} checkpoints in {result.checkpoint_seconds:.2f} s, "
        f"peak memory {format_size(result.peak_memory_bytes)}"
    )
    console.say(f"model: {result.model}, the average of the iterates")
    console.result(dataclasses.asdict(result))
