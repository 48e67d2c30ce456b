"""`streamsvm convert`: files of any kind to a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import typer
from streamsvm_cli.console import Console, print_text_counts, terminate_as_interrupt
from streamsvm_cli.memory import give_memory_back
from streamsvm_cli.options import Files, Force, Label, Labels, LabelsAs, Memory, OnError, UnseenLabel
from streamsvm_cli.wording import count, size_of_data, wrong_usage


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def _ngrams(text: str) -> tuple[int, int]:
    least, _, most = text.partition("-")
    try:
        return int(least), int(most or least)
    except ValueError:
        raise wrong_usage(f"{text!r} is not two lengths, such as 1-2") from None


def convert(
    console: Console,
    inputs: Files,
    out: Annotated[Path, typer.Option("--out", "-o", help="Store to write: .zarr, or .h5 / .h5ad.")],
    index_base: Annotated[
        Literal["auto", "0", "1"],
        typer.Option(help="Index of the first feature in the input; auto: 0 if it occurs, else 1."),
    ] = "auto",
    n_features: Annotated[
        int | None, typer.Option(min=1, help="Number of features, if more than occur.")
    ] = None,
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
    like: Annotated[
        Path | None,
        typer.Option(help="Store, run or model to take classes, index base and width from, for test data."),
    ] = None,
    unseen_label: UnseenLabel = "error",
    on_error: OnError = "raise",
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Weight of each row, one number a line, in the order of the input."
        ),
    ] = None,
    multilabel: Annotated[
        bool, typer.Option("--multilabel", help="Rows have several labels, separated by commas, or none.")
    ] = False,
    groups: Annotated[
        bool, typer.Option("--groups", help="Keep qid: fields; rows of a group stay together, in order.")
    ] = False,
    label: Label = None,
    labels: Labels = None,
    labels_as: LabelsAs = None,
    drop: Annotated[
        str, typer.Option(metavar="A,B", help="Columns of a table that are not used; all others are.")
    ] = "",
    categorical: Annotated[
        str, typer.Option(metavar="A,B", help="Columns of numbers that are categories, as text is.")
    ] = "",
    missing: Annotated[
        Literal["error", "0", "mean", "indicator"],
        typer.Option(
            help="What missing numbers of a table are: errors, 0, the column's mean, or 0 and a feature that "
            "marks them."
        ),
    ] = "error",
    text: Annotated[
        str,
        typer.Option(metavar="A,B", help="Columns of text whose hashed n-grams are the features, alone."),
    ] = "",
    analyzer: Annotated[
        Literal["word", "char", "char_wb"] | None,
        typer.Option(help="With --text: n-grams of words (default), or of characters."),
    ] = None,
    ngrams: Annotated[
        str | None, typer.Option(metavar="N-M", help="With --text: lengths of the n-grams (1-2).")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(min=1, max=30, help="With --text: hash to 2^bits features (20).")
    ] = None,
    join: Annotated[
        Literal["inner", "outer"],
        typer.Option(
            help="Features of several AnnData files: those that all have (inner), or that any has (outer)."
        ),
    ] = "inner",
    layer: Annotated[str | None, typer.Option(help="Layer of AnnData to read instead of X.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Read raw.X of AnnData, of its own features.")] = False,
    obsm: Annotated[str | None, typer.Option(help="Entry of obsm of AnnData to read instead of X.")] = None,
    format: Annotated[
        Literal["libsvm", "csv", "tsv", "jsonl"] | None,
        typer.Option(help="What text is, if its suffix is another."),
    ] = None,
    force: Force = False,
) -> None:
    """Turn text, tables, AnnData or arrays into a store.

    The store is chunked, checksummed and shuffled; anndata opens it too. Of a table, columns of numbers are
    features as they are, and columns of text are one feature for each value; with --text, n-grams.
    """
    if like is None and unseen_label == "keep":
        raise wrong_usage("--unseen-label keep needs known classes; give --like too")
    from streamsvm_converters import convert as to_store

    give_memory_back(least=2**21, kept=2**22)  # chunks are smaller, and come one after another

    first = index_base if index_base == "auto" else int(index_base)
    with terminate_as_interrupt():
        report = to_store(
            inputs, out, index_base=first, n_features=n_features, dtype=dtype,
            shuffle=shuffle, seed=seed, memory=memory, threads=threads, codec=codec, chunk_nnz=chunk_nnz,
            like=like, unseen_label=unseen_label, on_error=on_error, weights=weights,
            multilabel=multilabel, groups=groups, force=force, label=label, labels=labels,
            labels_as=labels_as, join=join, drop=_names(drop), categorical=_names(categorical),
            missing=missing, text=_names(text), analyzer=analyzer, layer=layer, raw=raw, obsm=obsm,
            ngrams=None if ngrams is None else _ngrams(ngrams), bits=bits,
            format=format,
            progress=lambda stage, done, total: console.progress(stage, done, total, "B"),
        )  # fmt: skip
    for warning in report.warnings:
        console.warn(warning)
    for note in report.notes:
        console.say(note)
    base = "" if report.index_base is None else f"; feature numbers start at {report.index_base}"
    console.say(
        f"{size_of_data(report.n, report.d, report.n_classes, report.nnz)} in {report.seconds:.1f} s{base}"
    )
    if report.decompress_seconds > report.seconds / 2:
        console.say(
            f"  {report.decompress_seconds:.1f} s of it were spent decompressing the text: that is the limit"
        )
    if report.empty_rows:
        console.say(f"  {count(report.empty_rows, 'row')} without a non-zero")
    if report.n_labels is not None:
        console.say(f"  {count(report.n_labels, 'label')}, {report.n_labels / report.n:.2f} a row")
    if report.n_groups is not None:
        console.say(f"  {count(report.n_groups, 'group')} of rows")
    record = dataclasses.asdict(report)
    print_text_counts(console, record)
    console.say(f"store: {report.path}")
    console.result({**record, "path": str(report.path)})
