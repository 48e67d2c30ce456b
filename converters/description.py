"""What a file of another format contains, as its head tells: LIBSVM text, NumPy, SciPy, Parquet, CSV."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.libsvm.inputs import Input

from streamsvm.errors import InputError

_HEAD = 2**18  # bytes of text that are looked at
_FEW = 8  # labels and names that are shown
_MOST_COLUMNS = 100_000
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
_PACKED = (".gz", ".bz2", ".xz", ".zst")
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
        If it cannot be read, or is damaged.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(6)
        size = path.stat().st_size
    except OSError as error:
        from streamsvm.durable import reason

        raise InputError(f"{path} cannot be read: {reason(error)}") from None
    try:
        if magic == b"\x93NUMPY":
            with path.open("rb") as file:
                return {"kind": "npy", **_array(file), "bytes": size}
        if magic.startswith(b"PK\x03\x04"):
            return {**_archive(path), "bytes": size}
        if magic.startswith(b"PAR1"):
            return {**_parquet(path), "bytes": size}
        return {**_text(path), "bytes": size}
    except InputError:
        raise
    except Exception as error:  # zipfile, pyarrow, NumPy and csv raise types of their own
        text = str(error).splitlines()
        raise InputError(f"{path} is damaged: {text[0] if text else type(error).__name__}") from None


def _array(file: Any) -> dict[str, Any]:
    """Shape and dtype of an array in NumPy's format, from its header."""
    version = np.lib.format.read_magic(file)
    reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in reader:
        raise ValueError(f"NumPy's format {version[0]}.{version[1]} is not known")
    shape, _, dtype = reader[version](file)
    return {"shape": list(shape), "dtype": str(dtype)}


def _archive(path: Path) -> dict[str, Any]:
    """The arrays of an .npz, or the sparse matrix that they are."""
    arrays: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if not names or not all(name.endswith(".npy") for name in names):
            raise InputError(f"{path} is a zip archive, but no .npz; unpack it if it contains text")
        for name in names[:_MOST_COLUMNS]:
            with archive.open(name) as file:
                arrays[name.removesuffix(".npy")] = _array(file)
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
    """Return True if arrays have a few bytes each, so that reading them costs nothing."""
    return all(
        len(array["shape"]) <= 1 and sum(array["shape"]) <= 8 and np.dtype(array["dtype"]).itemsize <= 64
        for array in arrays
    )


def _parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(f"{path} is Parquet, which needs pyarrow: pip install 'streamsvm[tables]'") from None
    with pyarrow.parquet.ParquetFile(path) as file:
        columns = {field.name: {"kind": str(field.type)} for field in file.schema_arrow}
        return {
            "kind": "parquet", "n": file.metadata.num_rows, "row_groups": file.metadata.num_row_groups,
            "columns": columns,
        }  # fmt: skip


def _text(path: Path) -> dict[str, Any]:
    """LIBSVM text, or a table with a separator, by its first lines."""
    lines = list(_lines(path))
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1] if suffixes and suffixes[-1] in _PACKED else None
    last = suffixes[-2:-1] if packed else suffixes[-1:]
    separator = _DELIMITERS.get(last[0]) if last else None
    if separator is None:
        rows = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        described = _libsvm(rows)
        if described is not None:
            return {"kind": "LIBSVM text", **described, "compressed": packed}
        separator = next((mark for mark in "\t,;" if lines and mark in lines[0]), None)
        if separator is None:
            begin = f"; it begins with {lines[0][:60]!r}" if lines else ": it is empty"
            raise InputError(f"{path} is neither LIBSVM text nor another known format{begin}")
    return {"kind": "table", **_table(lines, separator), "compressed": packed}


def _lines(path: Path) -> Iterator[str]:
    """The whole lines at the beginning of text, compressed or not."""
    head = bytearray(_HEAD)
    filled = 0
    with Input(path) as source:
        view = memoryview(head)
        while filled < _HEAD and (count := source.readinto(view[filled:])):
            filled += count
    content = bytes(head[:filled])
    if b"\0" in content:
        raise InputError(f"{path} is not text, and of no known format")
    lines = content.decode("utf-8", "replace").splitlines()
    yield from lines[:-1] if filled == _HEAD and len(lines) > 1 else lines


def _libsvm(rows: list[str]) -> dict[str, Any] | None:
    """What the first rows of LIBSVM text have; None if they are no such text."""
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
        "first_labels": [label for label in labels if label][:_FEW],
        "labels_so_far": len(labels.keys() - {""}),
        "several_labels": several or None,
        "lowest_index": lowest,
        "highest_index": highest,
        "index_base": 0 if lowest == 0 else "1, unless a later row has feature 0",
        "values_per_row": round(values / len(rows), 1),
        "qid": groups == len(rows) or None,
    }


def _table(lines: list[str], separator: str) -> dict[str, Any]:
    """The columns of a table with a heading, and what the first rows have in them."""
    heading, *rows = csv.reader(lines, delimiter=separator)
    kinds = []
    for at in range(min(len(heading), _MOST_COLUMNS)):
        texts = [row[at] for row in rows if at < len(row) and row[at] != ""]
        is_number = all(_NUMBER.fullmatch(text.strip()) for text in texts)
        kinds.append("empty" if not texts else "number" if is_number else "text")
    return {
        "separator": {",": "comma", "\t": "tab", ";": "semicolon"}[separator],
        "first_rows": len(rows),
        "columns": {name: {"kind": kind} for name, kind in zip(heading, kinds, strict=False)},
    }
