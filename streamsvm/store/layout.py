"""Layout of a store: its arrays with their lengths, dtypes, fill values and chunks; its fingerprint."""

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
# Our own arrays are inside X because anndata rejects unknown names at the root, but ignores them in X.
NORM2 = "X/row_norm2"
COUNTS = "X/class_counts"
# Of a dense store, in place of those: X is an array itself, and what is ours is where anndata keeps anything.
MATRIX = "X"
DENSE_COUNTS = "uns/streamsvm/class_counts"
NAMES = "obs/_index"
CODES = f"obs/{LABEL}/codes"
CATEGORIES = f"obs/{LABEL}/categories"
FEATURES = "var/_index"
# Statistics of the features, if the record says so: of the values that are not 0, their number, mean, sum of
# squared deviations from it, and largest absolute value.
STATISTICS = ("nonzeros", "nonzero_mean", "nonzero_deviations", "largest")
# Optional columns, each with its name in the record's `columns`, by the names of the rows' arrays.
WEIGHTS, GROUPS, LABEL_SETS, HOLD_OUT_BY = "weight", "qid", "labels", "hold_out_by"
COLUMNS = {"cost": WEIGHTS, "qid": GROUPS, "hold_out_by": HOLD_OUT_BY, "label_codes": LABEL_SETS}
WEIGHT = f"obs/{WEIGHTS}"
QID = f"obs/{GROUPS}"
HASHES = f"obs/{HOLD_OUT_BY}"
# Several labels a row: an indicator matrix in CSR, whose indices are the label codes.
LABELS_INDPTR = f"obsm/{LABEL_SETS}/indptr"
LABELS_CODES = f"obsm/{LABEL_SETS}/indices"
LABELS_ONES = f"obsm/{LABEL_SETS}/data"

# Arrays with entries for rows, their values or their labels, which grow as rows are added.
_ROW_ARRAYS = (
    DATA, INDICES, INDPTR, NORM2, NAMES, CODES, WEIGHT, QID, HASHES, LABELS_INDPTR, LABELS_CODES,
    LABELS_ONES,
)  # fmt: skip

# anndata needs an index entry for every feature. With more features than this (1 GB of numbers) the store has
# no /var: anndata still opens X by `sparse_dataset`, and a table of that length would be of little use.
VAR_LIMIT = 2**27

# Elements per chunk. A chunk is decoded as a whole, so this bounds what a damaged or hostile size allocates.
MAX_CHUNK = 2**27

# How anndata encodes an array of numbers, of text, and a categorical column.
ARRAY_ATTRS = {"encoding-type": "array", "encoding-version": "0.2.0"}
TEXT_ATTRS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
CATEGORICAL_ATTRS = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}

SUFFIXES = {".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5", ".h5ad": "hdf5"}


class ArraySpec(NamedTuple):
    """Specification of one array of a store; `dtype` is None for text, `fill` if the container has its own.

    An array of two axes has chunks of whole rows of `columns` values, so it is written as one of
    `length` values, row after row: only the metadata know of its rows.
    """

    length: int
    dtype: np.dtype | None
    fill: float | int | str | None
    columns: int | None = None

    def shape(self, length: int) -> list[int]:
        """Return the shape of so many of its values."""
        return [length] if self.columns is None else [length // self.columns, self.columns]


def store_kind(path: str | os.PathLike[str]) -> str:
    """Return the kind of container that a path's suffix stands for.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    str
        ``"zarr"`` for ``.zarr``; ``"hdf5"`` for ``.h5``, ``.hdf5`` and ``.h5ad``.

    Raises
    ------
    StoreError
        For any other suffix.
    """
    kind = SUFFIXES.get(Path(path).suffix.lower())
    if kind is None:
        raise StoreError(f"{path}: the name of a store must end in {', '.join(SUFFIXES)}")
    return kind


def chunk_length(name: str, length: int, *, n: int, nnz: int, chunk_nnz: int) -> int:
    """Return the number of elements per chunk of the array `name`.

    A chunk of a per-row array spans about eight chunks of `data`: reading a block of rows then decodes
    little besides its values, and there are never more files for rows than for values.
    """
    if name == MATRIX:  # of whole rows
        columns = length // n
        return columns * max(1, min(chunk_nnz // columns, n))
    if name in (DATA, INDICES):
        wanted = chunk_nnz
    elif name in _ROW_ARRAYS:
        entries = length if name in (LABELS_CODES, LABELS_ONES) else n
        spanned = max(1, 8 * chunk_nnz * entries // max(nnz, 1))
        wanted = min(max(1 << (spanned - 1).bit_length(), 2**10), 2**18)
    elif name.startswith("var/"):
        wanted = 2**18
    else:
        wanted = max(length, 1)
    return max(1, min(wanted, length, MAX_CHUNK))


def text_digest(texts: Sequence[str]) -> str:
    """Return the SHA-256 of a list of strings, in hexadecimal."""
    return hashlib.sha256(json.dumps(list(texts), separators=(",", ":")).encode()).hexdigest()
