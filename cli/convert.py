"""`streamsvm convert`: files of any kind to a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from streamsvm_cli.console import Console, terminate_as_interrupt
from streamsvm_cli.conversion import print_report
from streamsvm_cli.memory import give_memory_back
from streamsvm_cli.options import Files, Force, Label, Labels, Memory, UnseenLabel, with_settings
from streamsvm_cli.wording import wrong_usage

from streamsvm.settings.field import declared
from streamsvm.settings.reading import ReadingSettings


@with_settings(declared(ReadingSettings))
def convert(
    console: Console,
    inputs: Files,
    out: Annotated[Path, typer.Option("--out", "-o", help="Store to write: .zarr, or .h5 / .h5ad.")],
    dtype: Annotated[
        Literal["float16", "float32", "float64"],
        typer.Option(help="Precision of the values; float16 is for dense ones."),
    ] = "float32",
    shuffle: Annotated[bool, typer.Option(help="Shuffle the rows, or keep the order of the input.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shuffle.")] = 0,
    memory: Memory = "1G",  # type: ignore[assignment]
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of threads; by default one per processor.")
    ] = None,
    codec: Annotated[
        Literal["fast", "small", "none"],
        typer.Option(help="Compression: fast (LZ), small (zstd or gzip), none."),
    ] = "fast",
    chunk_nnz: Annotated[int | None, typer.Option(min=1, help="Values in a chunk.")] = None,
    unseen_label: UnseenLabel = "error",
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Weight of each row, one number a line, in the order of the input."
        ),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Keep qid: fields; rows of a group stay together, in order.")
    ] = False,
    label: Label = None,
    labels: Labels = None,
    join: Annotated[
        Literal["inner", "outer"],
        typer.Option(
            help="Features of several AnnData files: those that all have (inner), or that any has (outer)."
        ),
    ] = "inner",
    layer: Annotated[str | None, typer.Option(help="Layer of AnnData to read instead of X.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Read raw.X of AnnData, of its own features.")] = False,
    obsm: Annotated[str | None, typer.Option(help="Entry of obsm of AnnData to read instead of X.")] = None,
    force: Force = False,
    **settings: Any,
) -> None:
    """Turn text, tables, AnnData or arrays into a store.

    Example: streamsvm convert train.libsvm --out train.zarr

    The store is chunked, checksummed and shuffled; anndata opens it too. Of a table, columns of numbers are
    features as they are, and columns of text are one feature for each value; with --text, n-grams.
    """
    if settings["like"] is None and unseen_label == "keep":
        raise wrong_usage("--unseen-label keep needs known classes; give --like too")
    from streamsvm_converters import convert as to_store

    give_memory_back(least=2**21, kept=2**22)  # chunks are smaller, and come one after another

    with terminate_as_interrupt():
        report = to_store(
            inputs, out, dtype=dtype, shuffle=shuffle, seed=seed, memory=memory, threads=threads, codec=codec,
            chunk_nnz=chunk_nnz, unseen_label=unseen_label, weights=weights, groups=groups, force=force,
            label=label, labels=labels, join=join, layer=layer, raw=raw, obsm=obsm,
            progress=console.progress, **settings,
        )  # fmt: skip
    print_report(console, report)
    console.result({**dataclasses.asdict(report), "path": str(report.path)})
