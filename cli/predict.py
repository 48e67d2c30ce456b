"""`streamsvm predict`: labels, or the best few with their scores, one line a row."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from streamsvm_cli.console import (
    Console,
    Json,
    Memory,
    Quiet,
    count,
    is_store,
    terminate_as_interrupt,
    wrong_usage,
)


def predict(
    model: Annotated[Path, typer.Argument(help="Run directory or model folder.")],
    data: Annotated[
        Path, typer.Argument(help="Store or LIBSVM text (- for stdin); labels are not looked at.")
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; default stdout.")] = None,
    top_k: Annotated[int, typer.Option(min=1, help="The best so many labels, tab-separated.")] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Each label followed by its score.")] = False,
    memory: Memory = "256M",  # type: ignore[assignment]
    label: Annotated[str | None, typer.Option(help="Not needed: labels are not looked at.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Print the predicted label of each row.

    Rows come in the order of the data.
    """
    if json and out is None:
        raise wrong_usage("--json needs --out: stdout cannot hold both")
    console = Console(quiet=quiet, json=json)
    from streamsvm import load_model

    loaded = load_model(model)
    n = 0
    with ExitStack() as stack:
        stack.enter_context(terminate_as_interrupt())
        file = sys.stdout if out is None else stack.enter_context(replacing(out))
        for rows in batches(loaded, data, memory, label, stack, console, labelled=False):
            for _, piece in loaded.scores(rows, memory // 16):
                n += len(piece)
                file.writelines(lines(loaded.classes_, piece, top_k, scores))
    if out:
        console.say(f"{count(n, 'prediction')}: {out}")
    console.result({"n": n, "out": str(out)})


@contextmanager
def replacing(out: Path) -> Iterator[TextIO]:
    """A text file that takes the place of `out` when all is written; devices are written to as they are."""
    if out.exists() and not out.is_file():
        with out.open("w", encoding="utf-8") as file:
            yield file
        return
    from streamsvm import durable

    out = out.resolve()  # a link goes on pointing to what is replaced
    aside = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with aside.open("w", encoding="utf-8") as file:
            yield file
        durable.sync_tree(aside)
        os.replace(aside, out)
        durable.sync_dir(out.parent)
    except OSError as error:
        if error.filename in (None, str(aside)):
            error.filename = str(out)
        raise
    finally:
        aside.unlink(missing_ok=True)


def batches(
    model: Any,
    data: Path,
    memory: int,
    label: str | None,
    stack: ExitStack,
    console: Console,
    *,
    labelled: bool = True,
) -> Iterator[Any]:
    """Rows of a store or of LIBSVM text, for a model, in their order; they take half of `memory`."""
    if str(data) != "-" and is_store(data):
        from streamsvm import open_store

        store = stack.enter_context(open_store(data, label=label, labelled=labelled))
        yield from model.batches(store, memory, share=2, labelled=labelled)
        return
    from streamsvm_converters import read_rows

    from streamsvm.errors import ModelError, part_of_memory

    if model.record["index_base"] is None:
        raise ModelError(
            "the model was trained on AnnData, whose features have no numbers in LIBSVM text; "
            "predict on AnnData"
        )
    text = read_rows(
        [str(data)],
        classes=model.record["classes"],
        n_features=None if model.is_hashed else model.n_features,
        index_base=model.record["index_base"],
        dtype=model.record["dtype"],
        memory=memory // 2,
    )
    with part_of_memory(2):
        for rows, _ in text:
            yield model.hashed(rows)
    counts = text.counts
    if counts.unseen_features:
        console.warn(f"dropped {count(counts.unseen_features, 'value')} of features unknown to the model")
    if labelled and counts.unseen_labels:
        n_rows = count(counts.unseen_labels, "row")
        console.warn(f"{n_rows} with labels unknown to the model, counted as wrong")


def lines(classes: Any, scores: Any, top_k: int, with_scores: bool) -> Iterator[str]:
    """One line a row: the best labels, best first, each followed by its score if wanted."""
    import numpy as np

    top_k = min(top_k, len(classes))
    if top_k == 1:
        best = scores.argmax(axis=1)[:, None]
    else:  # stable: of equal scores the first class wins, as in argmax
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    for row, columns in enumerate(best):
        fields = []
        for column in columns:
            fields.append(classes[column])
            if with_scores:
                fields.append(f"{scores[row, column]:.9g}")
        yield "\t".join(fields) + "\n"
