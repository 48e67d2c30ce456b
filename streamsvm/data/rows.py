"""Batches of labelled rows, CSR or dense, in the form that kernels take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

_NO_COST = np.empty(0)
_NO_CODES = np.empty(0, np.int32)
NO_NUMBERS = np.empty(0, np.int64)
OF_EACH_ROW = ("labels", "norm2", "cost", "qid", "numbers", "hold_out_by")  # some may be empty
POINTERS = {"indptr": ("data", "indices"), "label_indptr": ("label_codes",)}  # and the arrays that they index
PIECE_ROWS = 2**18  # rows per read of an array with one element per row


class Rows(NamedTuple):
    """Consecutive rows of a matrix, CSR or dense, as contiguous arrays for compiled code.

    Attributes
    ----------
    data : ndarray of float32 or float64, shape (nnz,)
    indices : ndarray of int32 or int64, shape (nnz,), or None
        Feature of each value, 0-based, strictly increasing within a row. None for dense rows, which have a
        value for every feature.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row ``i`` is ``data[indptr[i]:indptr[i + 1]]``; ``indptr[0]`` is 0.
    labels : ndarray of int32, shape (n_rows,)
        Class codes; -1 for unknown labels.
    norm2 : ndarray of float64, shape (n_rows,)
        Squared Euclidean norm of each row, computed from the stored values.
    cost : ndarray of float64, shape (n_rows,)
        Weight of each row's loss: C times class weight times sample weight. Empty for rows that are only
        predicted; kernels that compute losses do not check this.
    label_codes : ndarray of int32, shape (n_labels,)
        Labels of multi-label rows, distinct and increasing within a row; ``labels`` then contains the first
        label of each row, or -1. Both arrays are empty for single-label rows.
    label_indptr : ndarray of int64, shape (n_rows + 1,)
        The labels of row ``i`` are ``label_codes[label_indptr[i]:label_indptr[i + 1]]``.
    qid : ndarray of int64, shape (n_rows,)
        Group of each row, such as the sequence of a token. The rows of a group are adjacent. Empty for rows
        without groups.
    numbers : ndarray of int64, shape (n_rows,)
        Row number in the input, which views preserve. Rows without labels are not counted; joined data are
        numbered consecutively. Empty if unknown.
    hold_out_by : ndarray of int64, shape (n_rows,)
        Hash of a value, such as a donor (see `group_hashes`). Rows with the same hash are held out together.
        Empty if rows are held out individually.
    """

    data: np.ndarray
    indices: np.ndarray | None
    indptr: np.ndarray
    labels: np.ndarray
    norm2: np.ndarray
    cost: np.ndarray = _NO_COST
    label_codes: np.ndarray = _NO_CODES
    label_indptr: np.ndarray = NO_NUMBERS
    qid: np.ndarray = NO_NUMBERS
    numbers: np.ndarray = NO_NUMBERS
    hold_out_by: np.ndarray = NO_NUMBERS

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def nbytes(self) -> int:
        """Total size of the arrays in bytes."""
        return sum(array.nbytes for array in self if array is not None)

    @property
    def dense(self) -> bool:
        """True if each row has a value for every feature."""
        return self.indices is None

    @property
    def matrix(self) -> np.ndarray:
        """View of the values of dense rows, shape (n_rows, n_features), or (0, 0) if there are no rows."""
        return self.data.reshape(self.n_rows, len(self.data) // max(self.n_rows, 1))

    @property
    def features(self) -> np.ndarray:
        """Feature of each value of CSR rows; raises `TypeError` for dense rows."""
        if self.indices is None:
            raise TypeError("dense rows have no indices")
        return self.indices

    @property
    def largest_feature(self) -> int:
        """Largest feature index in any row, or -1 if there is none."""
        if self.indices is None:
            return self.matrix.shape[1] - 1
        return int(self.indices.max(initial=-1))

    def class_counts(self, n_classes: int) -> np.ndarray:
        """Count the rows of each class: those with positive `cost`, or all of them if `cost` is empty."""
        codes = self.label_codes if len(self.label_indptr) else self.labels
        if len(self.cost):
            n_labels = np.diff(self.label_indptr) if len(self.label_indptr) else 1
            codes = codes[np.repeat(self.cost > 0, n_labels)]
        return np.bincount(codes[codes >= 0], minlength=n_classes)


def dense_rows(matrix: np.ndarray, labels: np.ndarray, norm2: np.ndarray) -> Rows:
    """Return the rows of a C-contiguous matrix, shape (n_rows, n_features), as dense rows."""
    return with_matrix(Rows(matrix, None, NO_NUMBERS, labels, norm2), matrix)


def with_matrix(rows: Rows, matrix: np.ndarray) -> Rows:
    """Return rows whose values are replaced by a C-contiguous matrix, shape (n_rows, n_features)."""
    n_rows, n_features = matrix.shape
    return rows._replace(data=matrix.reshape(-1), indptr=np.arange(n_rows + 1) * n_features)


def sparse_rows(rows: Rows, index_dtype: np.dtype) -> Rows:
    """Convert dense rows to CSR without storing zeros; return CSR rows unchanged."""
    if not rows.dense:
        return rows
    at, features = np.nonzero(rows.matrix)
    indptr = np.searchsorted(at, np.arange(rows.n_rows + 1))
    return rows._replace(data=rows.matrix[at, features], indices=features.astype(index_dtype), indptr=indptr)


def with_index_dtype(rows: Rows, index_dtype: np.dtype) -> Rows:
    """Convert the indices of CSR rows to a dtype; return dense rows unchanged."""
    if rows.indices is None:
        return rows
    return rows._replace(indices=rows.indices.astype(index_dtype, copy=False))


def row_span(rows: Rows, start: int, stop: int) -> Rows:
    """Return views of the rows ``start:stop``; only `indptr` and `label_indptr` are new, and start at 0."""
    parts: dict[str, Any] = {name: getattr(rows, name)[start:stop] for name in OF_EACH_ROW}
    for name, targets in POINTERS.items():
        if len(pointers := getattr(rows, name)):
            low, high = pointers[start], pointers[stop]
            parts[name] = pointers[start : stop + 1] - low
            parts |= {each: values[low:high] for each, values in pointed_to(rows, targets)}
    return rows._replace(**parts)


def kept_rows(rows: Rows, kept: np.ndarray) -> Rows:
    """Return the rows where the mask `kept`, shape (n_rows,), is True."""
    if kept.all():
        return rows
    parts: dict[str, Any] = {name: each[kept] for name in OF_EACH_ROW if len(each := getattr(rows, name))}
    for name, targets in POINTERS.items():
        if len(pointers := getattr(rows, name)):
            lengths = np.diff(pointers)
            parts[name] = np.concatenate([[0], np.cumsum(lengths[kept])])
            kept_elements = np.repeat(kept, lengths)
            parts |= {each: values[kept_elements] for each, values in pointed_to(rows, targets)}
    return rows._replace(**parts)


def kept_values(rows: Rows, kept: np.ndarray) -> Rows:
    """Return CSR rows with only the values where the mask `kept`, shape (nnz,), is True; keep the norms."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    return rows._replace(data=rows.data[kept], indices=rows.features[kept], indptr=indptr)


def pointed_to(rows: Rows, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (name, array) for the arrays `names`, but skip the indices of dense rows, which are None."""
    return ((name, values) for name in names if (values := getattr(rows, name)) is not None)


def joined_rows(parts: Iterable[Rows]) -> Rows:
    """Concatenate batches of rows, all CSR or all dense; batches from an iterator are freed along the way."""
    arrays = dict(zip(Rows._fields, map(list, zip(*parts, strict=True)), strict=True))
    joined: dict[str, Any] = {}
    for name in Rows._fields:
        arrays_of_parts = arrays.pop(name)
        if name == "indices" and arrays_of_parts[0] is None:
            joined[name] = None
        elif name in ("indptr", "label_indptr"):
            sizes = np.concatenate([np.diff(pointers) for pointers in arrays_of_parts])
            joined[name] = np.concatenate([arrays_of_parts[0][:1], np.cumsum(sizes)])
        else:
            joined[name] = np.concatenate(arrays_of_parts)
    return Rows(**joined)
