"""`streamsvm info`: describe a file, a store, a run or a model, and check it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Label
from streamsvm_cli.wording import wrong_usage

from streamsvm.base import durable
from streamsvm.base.text import format_size

_HDF5 = b"\x89HDF\r\n\x1a\n"
_MAX_ITEMS = 8  # items of a list on a line
_MAX_LINES = 12  # lines of a table
_NAMES = {
    "anndata": "AnnData",
    "npy": "NumPy array",
    "npz": "NumPy archive",
    "zarr": "Zarr array",
    "parquet": "Parquet table",
    "jsonl": "JSON lines",
}


def info(
    console: Console,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A store, AnnData, LIBSVM text, .npz, .npy, Parquet, CSV, a run or a model."
        ),
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Read everything and check it.")] = False,
    label: Label = None,
) -> None:
    """Describe a file, a store, a run or a model.

    Only metadata and first lines are read. With --verify, every byte that a store, a run or a model relies on
    is read and checked.
    """
    if _is_foreign(path):
        if verify or label is not None:
            raise wrong_usage("--verify and --label are for stores and AnnData")
        from streamsvm_converters.description import describe_file

        record = describe_file(path)
    else:
        from streamsvm.info import inspect

        record = inspect(path, verify=verify, label=label, progress=console.progress)
    for key, value in record.items():
        if value in (None, [], {}):
            continue
        if key == "kind":
            value = _NAMES.get(value, value)
        lines = [format_size(value)] if key == "bytes" else _lines(value)
        if key == "strongest_features":
            lines = _strongest(value, record["n_classes"])
        for number, line in enumerate(lines):
            console.say(f"{'' if number else key.replace('_', ' '):>20}  {line}")
    console.result(record)


def _is_foreign(path: Path) -> bool:
    """Return True for a file that is not HDF5."""
    try:
        with durable.open_file(path, follow=True) as file:
            return file.read(len(_HDF5)) != _HDF5 and path.suffix.lower() != ".h5ad"
    except OSError:
        return False


def _strongest(features: dict[str, Any], n_classes: int) -> list[str]:
    """Return a line for each class, with its strongest features and their coefficients."""
    lines = [
        f"{label}: {', '.join(f'{name} ({weight:.3g})' for name, weight in pairs) or 'none above 0'}"
        for label, pairs in features.items()
    ]
    return [*lines, f"... ({n_classes:,} classes in all)"] if n_classes > len(lines) else lines


def _lines(value: Any) -> list[str]:
    """Return the lines that show a value: one, but for a table of tables."""
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        return [_matrix(value) if isinstance(value, dict) and "encoding" in value else _text(value)]
    lines = [f"{name}: {_matrix(each)}" for name, each in list(value.items())[:_MAX_LINES]]
    return [*lines, f"... ({len(value):,} in all)"] if len(value) > _MAX_LINES else lines


def _matrix(entry: dict[str, Any]) -> str:
    """Describe a matrix or column."""
    words = [str(entry[name]) for name in ("encoding", "kind") if name in entry]
    words += [" x ".join(f"{n:,}" for n in entry["shape"])] if isinstance(entry.get("shape"), list) else []
    words += [f"{entry['nnz']:,} values"] if "nnz" in entry else []
    words += [str(entry["dtype"])] if "dtype" in entry else []
    words += [f"chunks of {entry['chunk']:,}"] if entry.get("chunk") else []
    words += [f"{entry['categories']:,} categories"] if "categories" in entry else []
    return ", ".join(words)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        shown = ", ".join(map(_text, value[:_MAX_ITEMS]))
        return f"{shown}, ... ({len(value):,} in all)" if len(value) > _MAX_ITEMS else shown
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(each)}" for key, each in value.items() if each is not None)
    return f"{value:,}" if isinstance(value, int) else str(value)
