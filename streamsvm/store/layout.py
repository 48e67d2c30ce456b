"""Layout of a store: its arrays with their lengths, dtypes, fill values and chunks; its fingerprint."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
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
# Only in stores of version 2 or 3, each with its name in the record's `columns`.
WEIGHTS, GROUPS, LABEL_SETS = COLUMNS = ("weight", "qid", "labels")
WEIGHT = f"obs/{WEIGHTS}"
QID = f"obs/{GROUPS}"
# Several labels a row: an indicator matrix in CSR, whose indices are the label codes.
LABELS_INDPTR = f"obsm/{LABEL_SETS}/indptr"
LABELS_CODES = f"obsm/{LABEL_SETS}/indices"
LABELS_ONES = f"obsm/{LABEL_SETS}/data"

# Arrays with entries for rows, their values or their labels, which grow as rows are added.
_ROW_ARRAYS = (
    DATA, INDICES, INDPTR, NORM2, NAMES, CODES, WEIGHT, QID, LABELS_INDPTR, LABELS_CODES, LABELS_ONES,
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


def array_specs(
    n: int,
    d: int,
    nnz: int,
    k: int,
    dtype: np.dtype,
    columns: Collection[str] = (),
    n_labels: int = 0,
    *,
    named: bool = False,
    statistics: bool = False,
    dense: bool = False,
) -> dict[str, ArraySpec]:
    """Return every array of a store with `n` rows, `d` features, `nnz` values and `k` classes.

    `columns` says which of `COLUMNS` it has, `n_labels` how many labels its rows have in all, `named`
    whether its features have names, `statistics` whether it has those of the features, and `dense` whether
    rows have a value of each feature. Readers refuse each of the fill values: a lost chunk must not turn into
    plausible numbers.
    """
    if dense:
        specs = {MATRIX: ArraySpec(nnz, dtype, float("nan"), d)}
    else:
        specs = {
            DATA: ArraySpec(nnz, dtype, float("nan")),
            INDICES: ArraySpec(nnz, format.index_dtype(d), -1),
            INDPTR: ArraySpec(n + 1, format.INDPTR_DTYPE, -1),
            NORM2: ArraySpec(n, format.NORM2_DTYPE, float("nan")),
        }
    specs |= {
        DENSE_COUNTS if dense else COUNTS: ArraySpec(k, np.dtype(np.int64), -1),
        NAMES: ArraySpec(n, np.dtype(np.int64), -1),
        CODES: ArraySpec(n, format.LABEL_DTYPE, -2),
        CATEGORIES: ArraySpec(k, None, ""),
    }
    if named:
        specs[FEATURES] = ArraySpec(d, None, "")
    elif d <= VAR_LIMIT:
        specs[FEATURES] = ArraySpec(d, np.dtype(np.int64), -1)
    if statistics:
        nonzeros, *moments = (f"var/{name}" for name in STATISTICS)
        specs[nonzeros] = ArraySpec(d, np.dtype(np.int64), -1)
        specs |= {name: ArraySpec(d, np.dtype(np.float64), float("nan")) for name in moments}
    if WEIGHTS in columns:
        specs[WEIGHT] = ArraySpec(n, format.WEIGHT_DTYPE, float("nan"))
    if GROUPS in columns:
        specs[QID] = ArraySpec(n, format.QID_DTYPE, -1)
    if LABEL_SETS in columns:
        specs[LABELS_INDPTR] = ArraySpec(n + 1, format.INDPTR_DTYPE, -1)
        specs[LABELS_CODES] = ArraySpec(n_labels, format.LABEL_DTYPE, -1)
        specs[LABELS_ONES] = ArraySpec(n_labels, np.dtype(np.int8), -1)
    return specs


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


def fingerprint(
    n: int,
    d: int,
    dtype: np.dtype,
    classes: Sequence[str],
    digests: Mapping[str, str],
    *,
    named: bool = False,
    label_dtype: str = TEXT,
) -> str:
    """Return the SHA-256 of a store's content, which does not depend on container, codec or chunk length.

    Parameters
    ----------
    n, d : int
        Numbers of rows and features.
    dtype : dtype
        Of the values.
    classes : sequence of str
    digests : mapping of str to str
        SHA-256 of the little-endian bytes, in row order, of `data`, `indices` and `indptr`, or of a dense
        matrix, of the label codes and the row names, and of the weights, groups and label sets of a store
        that has them, by array name.
    named : bool
        Whether the features have names, whose digest is then part of it.
    label_dtype : str
        Of the labels in Python; part of it unless they are texts.

    Returns
    -------
    str
        64 hexadecimal digits.
    """
    header = {"n": n, "d": d, "dtype": dtype.name, "classes": text_digest(classes)}
    header |= {} if label_dtype == TEXT else {"label_dtype": label_dtype}
    values = (MATRIX,) if MATRIX in digests else (DATA, INDICES, INDPTR)
    arrays = {name: digests[name] for name in (*values, CODES, NAMES)}
    arrays |= {name: digests[name] for name in (WEIGHT, QID, LABELS_INDPTR, LABELS_CODES) if name in digests}
    if named:
        arrays[FEATURES] = digests[FEATURES]
    return format.json_digest({"header": header, "arrays": arrays})
