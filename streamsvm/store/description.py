"""What AnnData that streamsvm did not write contains: shapes, kinds and first names, read from metadata."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from streamsvm import format
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.journal import warn_and_recover
from streamsvm.store.open import open_container
from streamsvm.store.row_names import RowNames

_FIRST = 5  # names
_SPARSE = ("csr_matrix", "csc_matrix")
_KINDS = {"b": "boolean", "i": "integer", "u": "integer", "f": "number", "O": "text", "S": "text"}
_NULLABLE = {
    "nullable-integer": "integer",
    "nullable-boolean": "boolean",
    "nullable-string-array": "text",
}


def describe_anndata(path: Path) -> dict[str, Any] | None:
    """Describe AnnData of other origin; None for anything else, and what has no such suffix.

    Returns
    -------
    dict
        ``n`` and ``d``, the shape of ``X``; ``X``, ``raw`` and each of ``layers``: a dict of encoding, shape,
        dtype, number of values and chunk; ``obs``: of each column its kind and number of categories;
        ``obsm``; the first names of rows and of features. What cannot be read is described by the reason.

    Raises
    ------
    StoreError
        If the file cannot be opened.
    """
    kind = layout.SUFFIXES.get(path.suffix.lower())
    if kind is None or not path.exists() or path.is_dir() != (kind == "zarr"):
        return None
    if kind == "hdf5":
        warn_and_recover(path)
    container = open_container(path, kind)
    try:
        if (
            container.attr("", "encoding-type") != "anndata"
            or container.record(format.STORE_ATTR) is not None
        ):
            return None
        return _describe(container)
    finally:
        container.close()


def _describe(container: Container) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "anndata", "container": container.kind}
    found["n"] = _length(container, "obs")
    found["d"] = _length(container, "var")
    if container.node("X") is not None:
        found["X"] = _matrix(container, "X")
    found["layers"] = {name: _matrix(container, f"layers/{name}") for name in _members(container, "layers")}
    if container.node("raw/X") is not None:
        found["raw"] = _matrix(container, "raw/X")
    found["obs"] = _columns(container)
    found["obsm"] = _members(container, "obsm")
    found["row_names"] = _first_names(container, "obs")
    found["var_names"] = _first_names(container, "var")
    return found


def _members(container: Container, group: str) -> list[str]:
    return container.members(group) if container.node(group) == "group" else []


def _length(container: Container, table: str) -> int | None:
    with contextlib.suppress(StoreError):
        return RowNames(container, table=table).length
    return None


def _first_names(container: Container, table: str) -> list[Any]:
    with contextlib.suppress(StoreError):
        names = RowNames(container, table=table)
        return names.read(0, min(_FIRST, names.length)).tolist()
    return []


def _matrix(container: Container, name: str) -> dict[str, Any]:
    """The encoding of a matrix, sparse or dense."""
    try:
        if container.node(name) == "array":
            dense = container.array(name, axes=2)
            return {"encoding": "dense", "shape": [dense.length, dense.columns], **_values(dense)}
        encoding = container.attr(name, "encoding-type")
        if encoding not in _SPARSE:
            return {"encoding": str(encoding)}
        data = container.array(f"{name}/data")
        shape = container.attr(name, "shape")
        return {"encoding": encoding, "shape": shape, "nnz": data.length, **_values(data)}
    except StoreError as error:
        return {"encoding": f"not readable: {error}"}


def _values(array: StoredArray) -> dict[str, Any]:
    chunk = array.chunk if array.chunk < array.length else None  # None: all in one
    return {"dtype": "text" if array.dtype is None else str(array.dtype), "chunk": chunk}


def _columns(container: Container) -> dict[str, dict[str, Any]]:
    """The columns of ``obs``, each with its kind, and the number of categories."""
    attrs = container.attrs("obs") if container.node("obs") == "group" else {}
    order = attrs.get("column-order")
    columns = [str(name) for name in order] if isinstance(order, list) else []
    return {name: _column(container, f"obs/{name}") for name in columns}


def _column(container: Container, node: str) -> dict[str, Any]:
    try:
        if container.node(node) == "group":
            encoding = str(container.attr(node, "encoding-type"))
            if encoding != "categorical":
                return {"kind": _NULLABLE.get(encoding, encoding)}
            part = f"{node}/categories"
            values = part if container.node(part) == "array" else f"{part}/values"
            return {"kind": "categorical", "categories": container.array(values).length}
        array = container.array(node)
        return {"kind": "text" if array.dtype is None else _KINDS.get(array.dtype.kind, str(array.dtype))}
    except StoreError as error:
        return {"kind": f"not readable: {error}"}
