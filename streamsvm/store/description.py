"""Description of AnnData that streamsvm did not write: shapes, kinds and first names, from metadata."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from streamsvm.base import format
from streamsvm.errors import StoreError
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.obs_columns import DataFrameColumn, column_names, index_column, index_length
from streamsvm.store.open import open_existing
from streamsvm.store.ranges import span

_SHOWN_NAMES = 5  # names
_SPARSE_ENCODINGS = ("csr_matrix", "csc_matrix")


def describe_anndata(path: Path) -> dict[str, Any] | None:
    """Describe AnnData of other origin, or one array of Zarr, at a path; None for anything else.

    Returns
    -------
    dict
        ``n`` and ``d``, the shape of ``X``; ``X``, ``raw`` and each of ``layers``: a dict of encoding, shape,
        dtype, number of values and chunk; ``obs``: of each column its kind and number of categories;
        ``obsm``; the first names of rows and of features. Of an array what ``X`` has. What cannot be read is
        described by the reason.

    Raises
    ------
    StoreError
        If the file cannot be opened.
    """
    if not path.exists():
        return None
    with contextlib.closing(open_existing(path)) as container:
        if container.is_matrix:
            return {"kind": container.kind, **_matrix(container, "X")}
        is_ours = container.record(format.STORE_ATTR) is not None
        return None if is_ours or container.attr("", "encoding-type") != "anndata" else _describe(container)


def _describe(container: Container) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": "anndata", "container": container.kind}
    found["n"], row_names = _index(container, "obs")
    found["d"], var_names = _index(container, "var")
    if container.node("X") is not None:
        found["X"] = _matrix(container, "X")
    found["layers"] = {name: _matrix(container, f"layers/{name}") for name in container.children("layers")}
    if container.node("raw/X") is not None:
        found["raw"] = _matrix(container, "raw/X")
    found["obs"] = {} if found["n"] is None else _columns(container, found["n"])
    found["obsm"] = container.children("obsm")
    return {**found, "row_names": row_names, "var_names": var_names}


def _index(container: Container, table: str) -> tuple[int | None, list[Any]]:
    """Return the length of the index of a dataframe, and the first names in it."""
    length, names = None, []
    with contextlib.suppress(StoreError):
        length = index_length(container, table)
        names = index_column(container, table, length).texts(span(0, min(_SHOWN_NAMES, length))).tolist()
    return length, names


def _matrix(container: Container, name: str) -> dict[str, Any]:
    """Describe the encoding of a matrix, sparse or dense."""
    try:
        if container.node(name) == "array":
            dense = container.array(name, axes=2)
            return {"encoding": "dense", "shape": [dense.length, dense.columns], **_values(dense)}
        encoding = container.attr(name, "encoding-type")
        if encoding not in _SPARSE_ENCODINGS:
            return {"encoding": str(encoding)}
        data = container.array(f"{name}/data")
        shape = container.attr(name, "shape")
        return {"encoding": encoding, "shape": shape, "nnz": data.length, **_values(data)}
    except StoreError as error:
        return {"encoding": f"not readable: {error}"}


def _values(array: StoredArray) -> dict[str, Any]:
    chunk = array.chunk if array.chunk < array.length else None  # None: all in one
    return {"dtype": "text" if array.dtype is None else str(array.dtype), "chunk": chunk}


def _columns(container: Container, n_rows: int) -> dict[str, dict[str, Any]]:
    """Describe the columns of ``obs``: the kind of each, and its number of categories."""
    found: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(StoreError):
        for name in column_names(container, "obs"):
            try:
                column = DataFrameColumn(container, "obs", name, n_rows)
                more = {} if column.categories is None else {"categories": len(column.categories)}
                found[name] = {"kind": column.kind, **more}
            except StoreError as error:
                found[name] = {"kind": f"not readable: {error}"}
    return found
