"""Descriptions of files that are not stores: LIBSVM text, NumPy, SciPy and tables, by their beginning."""

from __future__ import annotations

import contextlib
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.tables.batches import DELIMITER_NAMES, TableFile

from streamsvm.errors import InputError, StreamsvmError
from streamsvm.store.array_file import read_header
from streamsvm.store.kinds import kind_of

_HEAD_SIZE = 2**18  # bytes of text that are read
_MAX_SHOWN = 8  # labels and names that are shown
_MAX_ARRAYS = 100_000
_TABLE_MEMORY = 2**27  # bytes for reading a table: more memory would not allow longer rows
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_PAIR = re.compile(rf"(\d+):({_NUMBER.pattern})")
_QID = re.compile(r"qid:(\d+)")


def describe_file(path: Path) -> dict[str, Any]:
    """Describe a file that is neither a store nor AnnData; only its head or its metadata is read.

    Returns
    -------
    dict
        ``kind``, and what is known of rows, features and columns, which depends on the kind.

    Raises
    ------
    InputError
        If it cannot be read, or is damaged; of an array of NumPy, `StoreError` if its header is.
    """
    kind = kind_of(path)
    try:
        size = path.stat().st_size
        if kind == "npy":
            with path.open("rb") as file:
                return {"kind": kind, **_array(file, path), "bytes": size}
        if kind == "npz":
            return {**_archive(path), "bytes": size}
        return {
            **(_text(path) if kind == "libsvm" else _table(path, "parquet" if kind == "lists" else kind)),
            "bytes": size,
        }
    except StreamsvmError:
        raise
    except Exception as error:  # zipfile and NumPy raise types of their own
        text = str(error.args[0]).splitlines() if error.args else []
        raise InputError(f"{path} is damaged: {text[0][:100] if text else type(error).__name__}") from None


def _array(file: Any, where: object) -> dict[str, Any]:
    """Return shape and dtype of an array in NumPy's format, from its header."""
    header = read_header(file, 0, str(where))
    return {"shape": list(header.shape), "dtype": str(header.dtype)}


def _archive(path: Path) -> dict[str, Any]:
    """Describe the arrays of an .npz file, or the sparse matrix that they form."""
    arrays: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        for name in names[:_MAX_ARRAYS]:
            with archive.open(name) as file:
                arrays[name.removesuffix(".npy")] = _array(file, f"{path}, array {name}")
        if {"format", "shape", "data"} <= arrays.keys() and _is_short(arrays["format"], arrays["shape"]):
            with archive.open("format.npy") as file:
                form = np.lib.format.read_array(file, allow_pickle=False).item()
            with archive.open("shape.npy") as file:
                shape = np.lib.format.read_array(file, allow_pickle=False).tolist()
            data = arrays["data"]
            encoding = form.decode() if isinstance(form, bytes) else str(form)
            return {
                "kind": "npz", "encoding": f"scipy.sparse {encoding}", "shape": shape,
                "nnz": data["shape"][0], "dtype": data["dtype"],
            }  # fmt: skip
    return {"kind": "npz", "arrays": arrays}


def _is_short(*arrays: dict[str, Any]) -> bool:
    """Return True if the arrays have a few bytes each, so that they can be read."""
    return all(
        len(array["shape"]) <= 1 and sum(array["shape"]) <= 8 and np.dtype(array["dtype"]).itemsize <= 64
        for array in arrays
    )


def _text(path: Path) -> dict[str, Any]:
    """Describe LIBSVM text, or a table whose suffix does not say so, by the first lines."""
    lines = _first_lines(path)
    described = _libsvm([line for line in lines if line.strip() and not line.lstrip().startswith("#")])
    if described is not None:
        return {"kind": "LIBSVM text", **described}
    with contextlib.suppress(InputError):
        table = _table(path, "csv")
        if len(table["columns"]) > 1:  # else it may be any text
            return table
    begin = f"; it begins with {lines[0][:60]!r}" if lines else ": it is empty"
    raise InputError(f"{path} is neither LIBSVM text nor another known format{begin}")


def _first_lines(path: Path) -> list[str]:
    """Return the whole lines at the beginning of text, compressed or not."""
    with Input(path) as source:
        head = source.read(_HEAD_SIZE)
    lines = head.decode("utf-8", "replace").splitlines()
    return lines[:-1] if len(head) == _HEAD_SIZE and len(lines) > 1 else lines


def _libsvm(rows: list[str]) -> dict[str, Any] | None:
    """Describe the first rows of LIBSVM text; return None if they are not LIBSVM text."""
    labels: dict[str, None] = {}
    lowest, highest, values, groups, several = None, 0, 0, 0, False
    for row in rows:
        fields = row.split("#")[0].split()
        label = "" if _PAIR.fullmatch(fields[0]) or _QID.fullmatch(fields[0]) else fields.pop(0)
        several |= "," in label or not label
        labels |= dict.fromkeys(label.split(","))
        if fields and _QID.fullmatch(fields[0]):
            groups += 1
            fields.pop(0)
        for field in fields:
            pair = _PAIR.fullmatch(field)
            if pair is None:
                return None
            index = int(pair[1])
            lowest, highest = index if lowest is None else min(lowest, index), max(highest, index)
            values += 1
    if not values:
        return None
    return {
        "first_rows": len(rows),
        "first_labels": [label for label in labels if label][:_MAX_SHOWN],
        "labels_so_far": len(labels.keys() - {""}),
        "several_labels": several or None,
        "lowest_index": lowest,
        "highest_index": highest,
        "index_base": 0 if lowest == 0 else "1, unless a later row has feature 0",
        "values_per_row": round(values / len(rows), 1),
        "qid": groups == len(rows) or None,
    }


def _table(path: Path, kind: str) -> dict[str, Any]:
    """Describe the columns of a table and their types."""
    table = TableFile(path, kind, _TABLE_MEMORY)
    columns = {name: {"kind": str(found)} for name, found in table.columns.items()}
    if table.has_types:
        return {"kind": kind, "n": table.n_rows, "columns": columns}
    return {"kind": "table", "separator": DELIMITER_NAMES[table.delimiter], "columns": columns}
