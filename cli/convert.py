"""`streamsvm convert`: files of any kind to a store."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.conversion import print_report
from streamsvm_cli.memory import give_memory_back
from streamsvm_cli.options import FORCE, LABEL, MEMORY, THREADS, Option, command
from streamsvm_cli.wording import wrong_usage

from streamsvm.settings.field import declared
from streamsvm.settings.online import StoreSettings
from streamsvm.settings.reading import ReadingSettings

_OPTIONS = {
    "out": Option(os.PathLike, ..., "Store to write: .zarr, or .h5 / .h5ad.", letter="o"),
    "dtype": Option(
        str, "float32", "Precision of the values; float16 is for dense ones.",
        choices=("float16", "float32", "float64"),
    ),
    "shuffle": Option(bool, True, "Shuffle the rows, or keep the order of the input."),
    "seed": Option(int, 0, "Seed of the shuffle."),
    "memory": dataclasses.replace(MEMORY, default=2**30),
    "threads": THREADS,
    "codec": Option(
        str, "fast", "Compression: fast (LZ), small (zstd or gzip), none.", choices=("fast", "small", "none"),
    ),
    "chunk_nnz": Option(int, None, "Values in a chunk.", least=1),
    "unseen_label": declared(StoreSettings)["unseen_label"],
    "weights": Option(
        str, None, "Weight of each row, one number a line, in the order of the input.", metavar="FILE",
    ),
    "groups": Option(bool, False, "Keep qid: fields; rows of a group stay together, in order."),
    "label": LABEL,
    "labels": Option(**vars(declared(StoreSettings)["labels"]), metavar="FILE"),
    "join": Option(
        str, "inner",
        "Features of several AnnData files: those that all have (inner), or that any has (outer).",
        choices=("inner", "outer"),
    ),
    "layer": Option(str, None, "Layer of AnnData to read instead of X."),
    "raw": Option(bool, False, "Read raw.X of AnnData, of its own features."),
    "obsm": Option(str, None, "Entry of obsm of AnnData to read instead of X."),
    "force": FORCE,
}  # fmt: skip


@command(_OPTIONS, declared(ReadingSettings))
def convert(
    console: Console,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT",
            help="LIBSVM text, CSV, TSV or JSON lines, plain or .gz .bz2 .zst; Parquet; AnnData; .npz; "
            ".npy; - for LIBSVM text on standard input.",
        ),
    ],
    **given: Any,
) -> None:
    """Turn text, tables, AnnData or arrays into a store.

    Example: streamsvm convert train.libsvm --out train.zarr

    The store is chunked, checksummed and shuffled; anndata opens it too. Of a table, columns of numbers are
    features as they are, and columns of text are one feature for each value; with --text, n-grams.
    """
    if given["like"] is None and given["unseen_label"] == "keep":
        raise wrong_usage("--unseen-label keep needs known classes; give --like too")
    from streamsvm_converters import convert as to_store

    give_memory_back(least=2**21, kept=2**22)  # chunks are smaller, and come one after another

    with terminate_as_interrupt():
        report = to_store(inputs, progress=console.progress, **given)
    print_report(console, report)
    console.result({**dataclasses.asdict(report), "path": str(report.path)})
