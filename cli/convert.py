"""`streamsvm convert`: convert files of any kind to a store."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.conversion import print_report
from streamsvm_cli.memory import return_freed_memory
from streamsvm_cli.options import FORCE, Option, command

from streamsvm.settings import checks
from streamsvm.settings.converting import ConvertSettings
from streamsvm.settings.field import declared

_OPTIONS = {
    "out": Option(checks.PATH, ..., "Store to write: .zarr, .h5 or .h5ad.", letter="o"),
    "force": FORCE,
}


@command(_OPTIONS, declared(ConvertSettings))
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
    **settings: Any,
) -> None:
    """Convert text, tables, AnnData or arrays to a store.

    Example: streamsvm convert train.libsvm --out train.zarr

    The store is chunked, checksummed and shuffled, and anndata can open it. Numeric columns of a table become
    features. A text column becomes one feature per distinct value, or hashed n-grams with --text.
    """
    from streamsvm_converters import convert as to_store

    return_freed_memory(min_bytes=2**21, kept_bytes=2**22)  # chunks are smaller, and are allocated one by one

    report = to_store(inputs, progress=console.progress, **settings)
    print_report(console, report)
    console.result({**dataclasses.asdict(report), "path": str(report.path)})
