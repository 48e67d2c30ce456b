"""`streamsvm online`: learn from text as it comes, without a store."""

from __future__ import annotations

import dataclasses
import os
import re
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
    stop_on_signals,
    tell_what_was_met,
    wrong_usage,
)

from streamsvm.text import format_size


def online(
    inputs: Annotated[
        list[str], typer.Argument(help="LIBSVM text, plain or .gz .bz2 .xz .zst; - for stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Run directory to create.")],
    C: C = "auto",  # type: ignore[assignment,valid-type]
    loss: Annotated[Literal["ww", "cs"], typer.Option(help="Weston-Watkins or Crammer-Singer.")] = "ww",
    margin: Annotated[float | None, typer.Option(help="Margin scale of Weston-Watkins: 1 or 0.5.")] = None,
    solver: Annotated[
        Literal["newton", "sorted"] | None,
        typer.Option(help="Block solver; sorted is the published algorithm."),
    ] = None,
    dtype: Annotated[Literal["float32", "float64"], typer.Option(help="Precision of weights.")] = "float32",
    like: Annotated[
        Path | None,
        typer.Option(help="Take classes, and hash or width and index base, from this store, run or model."),
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
        Literal["0", "1"] | None,
        typer.Option(
            help="What the first feature is called; 0, the default, fits any text, with a row more."
        ),
    ] = None,
    hash_bits: Annotated[
        int | None,
        typer.Option(metavar="BITS", min=1, max=31, help="Hash the features to 2**BITS columns."),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the hash; 0 by default.")] = None,
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
        raise wrong_usage("--like and --classes both give the classes; give one of them")
    from streamsvm_converters import TextSource

    from streamsvm.training import online as learn

    base = None if index_base is None else int(index_base)
    layout: dict[str, Any] = {"classes": None, "n_features": None, "index_base": base or 0}
    if classes is not None:
        layout["classes"] = listed(classes)
    if like is not None:
        layout, hash_bits, seed = layout_of(like, base, hash_bits, seed)
    if layout["classes"] is None and unseen_label == "keep":
        raise wrong_usage("--unseen-label keep is of given classes; give --classes or --like too")
    if hash_bits is None and seed is not None:
        raise wrong_usage("--seed is of the hash; give --hash-bits too")
    if hash_bits is not None:
        if base == 1:
            raise wrong_usage(
                "--index-base 1 means nothing to a hash, which takes the numbers in the text; leave it out"
            )
        layout |= {"n_features": None, "index_base": 0}
    settings = {
        "C": C, "loss": loss, "margin": margin, "solver": solver, "dtype": dtype, "hash_bits": hash_bits,
        "seed": seed or 0,
    }  # fmt: skip
    stream = TextSource(
        inputs, **layout, dtype=dtype, unseen_label=unseen_label, on_error=on_error, memory=memory
    )
    with stop_on_signals() as stop:
        result = learn.online(
            stream, out, **settings, checkpoint_every=checkpoint_every, force=force,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    finish(console, result)


def continue_stream(console: Console, run: Path, checkpoint_every: str) -> None:
    """What `streamsvm resume` does with a run over a stream."""
    from streamsvm_converters import TextSource

    from streamsvm.training import online as learn

    with stop_on_signals() as stop:
        result = learn.resume(
            run, TextSource.from_record, checkpoint_every=checkpoint_every,
            report=Reporter(console), progress=console.progress, stop=stop,
        )  # fmt: skip
    if result.checkpoints == 0 and result.status == "done":
        console.say("nothing left to learn: no rows have come since")
    finish(console, result)


def listed(text: str) -> list[str]:
    """The classes in a file, separated as text is, or in a list with commas; in the order of a store's."""
    from streamsvm_converters.libsvm.labels import class_order

    from streamsvm.errors import InputError

    if os.path.exists(text):  # a pipe too
        try:
            with open(text, encoding="utf-8-sig") as file:
                labels = re.split("[ \t\r\n]+", file.read().strip(" \t\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{text} is no list of classes: {error}") from None
    else:
        labels = [label.strip() for label in text.split(",")]
    if len(labels) < 2:
        raise wrong_usage(f"--classes {text} is neither a file nor a list of two classes or more")
    if len(set(labels)) < len(labels) or "" in labels:
        raise wrong_usage(f"--classes {text} has an empty label, or one twice")
    return [labels[c] for c in class_order(labels)]


def layout_of(
    like: Path, index_base: int | None, hash_bits: int | None, seed: int | None
) -> tuple[dict[str, Any], int | None, int | None]:
    """Classes, width and index base of a store, run or model, and its hash; no option may contradict them.

    Of one that does not hash, only the classes matter to `hash_bits`.
    """
    from streamsvm.data.schema import read_like
    from streamsvm.errors import InputError

    theirs = read_like(like)
    names = ("classes", "n_features", "index_base")
    layout, hashed = {name: getattr(theirs, name) for name in names}, theirs.hash
    if hashed:
        for option, asked, its in (("hash-bits", hash_bits, hashed["bits"]), ("seed", seed, hashed["seed"])):
            if asked not in (None, its):
                raise InputError(f"--{option} {asked} contradicts {like}, whose hash has {its}")
        return layout, hashed["bits"], hashed["seed"]
    if hash_bits is None:
        layout["index_base"] = theirs.base(index_base)
    return layout, hash_bits, seed


class Reporter(Table):
    """The lines of a pass over text."""

    COLUMNS = (  # heading, width, key, format
        ("rows", 13, "rows", ",d"),
        ("accuracy", 8, "progressive_accuracy", ".4f"),
        ("recent", 8, "recent_accuracy", ".4f"),
        ("classes", 8, "classes", ",d"),
        ("features", 12, "features", ",d"),
        ("rows/s", 10, "rows_per_second", ",.0f"),
    )

    def __call__(self, event: dict[str, Any]) -> None:
        super().__call__(event)
        if event["event"] == "plan" and not event["resumable"]:
            self.console.say("standard input or a pipe cannot be read again: this run cannot be resumed")
        elif event["event"] == "rows":
            self.line(event)


def finish(console: Console, result: Any) -> None:
    """Print how a pass ended."""
    for warning in result.warnings:
        console.warn(warning)
    tell_what_was_met(console, result.input)
    if result.empty_rows:
        told = "of norm 0, or with an unseen label, took no part in training"
        console.say(f"  {count(result.empty_rows, 'row')} {told}")
    console.say(
        f"{result.status}: {count(result.rows, 'row')} in {result.seconds:.2f} s, "
        f"progressive accuracy {fraction(result.progressive_accuracy)}"
    )
    console.say(
        f"{count(result.checkpoints, 'checkpoint')} in {result.checkpoint_seconds:.2f} s, "
        f"peak memory {format_size(result.peak_memory_bytes)}"
    )
    console.say(f"model: {result.model}, the average of the iterates")
    console.result(dataclasses.asdict(result))
