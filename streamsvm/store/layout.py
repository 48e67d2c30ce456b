"""Layout of a store: names, specifications, attributes and chunk lengths of its arrays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.errors import StoreError

LABEL = "label"
DATA = "X/data"
INDICES = "X/indices"
INDPTR = "X/indptr"
# Additional arrays lie inside X, because anndata rejects unknown names at the root but ignores them in X.
NORM2 = "X/row_norm2"
COUNTS = "X/class_counts"
# In a dense store X itself is an array, so the class counts lie in `uns`, where anndata allows any name.
MATRIX = "X"
DENSE_COUNTS = "uns/streamsvm/class_counts"
NAMES = "obs/_index"
CODES = f"obs/{LABEL}/codes"
CATEGORIES = f"obs/{LABEL}/categories"
FEATURES = "var/_index"
# Optional statistics of the non-zero values of each feature: count, mean, sum of squared deviations from the
# mean, and largest absolute value.
STATISTICS = ("nonzeros", "nonzero_mean", "nonzero_deviations", "largest")
# Optional columns: maps each field of `Rows` to its name in the record's `columns`.
WEIGHTS, GROUPS, LABEL_SETS, HOLD_OUT_BY = "weight", "qid", "labels", "hold_out_by"
COLUMNS = {"cost": WEIGHTS, "qid": GROUPS, "hold_out_by": HOLD_OUT_BY, "label_codes": LABEL_SETS}
WEIGHT = f"obs/{WEIGHTS}"
QID = f"obs/{GROUPS}"
HASHES = f"obs/{HOLD_OUT_BY}"
# Several labels per row are stored as a CSR indicator matrix whose indices are the label codes.
LABELS_INDPTR = f"obsm/{LABEL_SETS}/indptr"
LABELS_CODES = f"obsm/{LABEL_SETS}/indices"
LABELS_ONES = f"obsm/{LABEL_SETS}/data"

# Arrays that grow with the rows, their values or their labels.
_ROW_ARRAYS = (
    DATA, INDICES, INDPTR, NORM2, NAMES, CODES, WEIGHT, QID, HASHES, LABELS_INDPTR, LABELS_CODES,
    LABELS_ONES,
)  # fmt: skip

# Stores with more features have no /var, where anndata needs an index entry for each (1 GB of numbers).
# Without /var, anndata can open only X, with `sparse_dataset`.
VAR_LIMIT = 2**27

MAX_CHUNK = 2**27  # maximum elements per chunk, so that a damaged size cannot allocate much memory

# anndata's encodings of numeric arrays, text arrays and categorical columns.
ARRAY_ATTRS = {"encoding-type": "array", "encoding-version": "0.2.0"}
TEXT_ATTRS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
CATEGORICAL_ATTRS = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}

SUFFIXES = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5", ".h5ad": "hdf5"}


class ArraySpec(NamedTuple):
    """Specification of one array; `dtype` is None for text, and `fill` is None for the container's default.

    An array with `columns` is two-dimensional, and its chunks consist of whole rows, but it is written as
    `length` values in row order.
    """

    length: int
    dtype: np.dtype | None
    fill: float | int | str | None
    columns: int | None = None

    def shape(self, length: int) -> list[int]:
        """Return the array shape for `length` values."""
        return [length] if self.columns is None else [length // self.columns, self.columns]


def store_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of container, "zarr" or "hdf5", from a path's suffix; raise StoreError if unknown."""
    kind = SUFFIXES.get(Path(path).suffix.lower())
    if kind is None:
        raise StoreError(f"{path}: the name of a store must end in one of {', '.join(SUFFIXES)}")
    return kind


def chunk_length(name: str, length: int, *, n: int, nnz: int, chunk_nnz: int) -> int:
    """Return the number of elements per chunk of the array `name` in a store with `n` rows and `nnz` values.

    A chunk of an array with one element per row spans the rows of about eight chunks of `data`. Therefore
    reading a block of rows decodes little besides values, and no such array has more chunk files than `data`.
    """
    if name == MATRIX:  # chunks of whole rows
        columns = length // n
        return columns * max(1, min(chunk_nnz // columns, n))
    if name in (DATA, INDICES):
        target = chunk_nnz
    elif name in _ROW_ARRAYS:
        entries = length if name in (LABELS_CODES, LABELS_ONES) else n
        spanned = max(1, 8 * chunk_nnz * entries // max(nnz, 1))
        target = min(max(1 << (spanned - 1).bit_length(), 2**10), 2**18)
    elif name.startswith("var/"):
        target = 2**18
    else:
        target = max(length, 1)
    return max(1, min(target, length, MAX_CHUNK))


def text_digest(texts: Sequence[str]) -> str:
    """Return the SHA-256 of a list of strings, in hexadecimal."""
    return hashlib.sha256(json.dumps(list(texts), separators=(",", ":")).encode()).hexdigest()
