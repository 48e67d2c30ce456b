"""Batches of rows with labels, CSR or dense, as stores and text readers deliver them to the kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

_NO_COST = np.empty(0)
_NO_CODES = np.empty(0, np.int32)
NO_NUMBERS = np.empty(0, np.int64)
OF_EACH_ROW = ("labels", "norm2", "cost", "qid", "numbers", "hold_out_by")  # of which some may be empty
POINTERS = {"indptr": ("data", "indices"), "label_indptr": ("label_codes",)}  # and what they point to
PIECE_ROWS = 2**18  # elements of an array with one for each row that are read at a time


class Rows(NamedTuple):
    """Consecutive rows of a matrix, CSR or dense, as contiguous arrays that compiled code takes directly.

    Attributes
    ----------
    data : ndarray of float32 or float64, shape (nnz,)
    indices : ndarray of int32 or int64, shape (nnz,), or None
        Feature of each value, 0-based, strictly increasing within a row. None: the rows are dense, each has a
        value of every feature, in their order.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row ``i`` is ``data[indptr[i]:indptr[i + 1]]``; ``indptr[0]`` is 0.
    labels : ndarray of int32, shape (n_rows,)
        Class codes; -1 marks a label that is unknown to training.
    norm2 : ndarray of float64, shape (n_rows,)
        Squared Euclidean norm of each row, from the values as stored.
    cost : ndarray of float64, shape (n_rows,)
        Weight of each row's loss: C times the weights of its class and of the sample. Empty for rows that
        are only predicted: kernels that compute losses read it without a check.
    label_codes : ndarray of int32, shape (n_labels,)
    label_indptr : ndarray of int64, shape (n_rows + 1,)
        The labels of row ``i``, if a row may have several, are ``label_codes[label_indptr[i]:label_indptr[i +
        1]]``, distinct and increasing; ``labels`` then has the first of them, or -1 if there is none. Both
        are empty if each row has one label.
    qid : ndarray of int64, shape (n_rows,)
        The group that each row belongs to, such as the sequence of a token: the rows of a group stand
        together, in their order. Empty if rows stand alone.
    numbers : ndarray of int64, shape (n_rows,)
        The number of each row in the data as given, which views keep: rows without a label are not counted,
        and those of joined data are counted through. Empty where they are not known.
    hold_out_by : ndarray of int64, shape (n_rows,)
        A hash of the value, such as a donor, whose rows are held out together: see `group_hashes`. Empty if
        rows are held out one by one.
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
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self if array is not None)

    @property
    def dense(self) -> bool:
        """True if each row has a value of every feature."""
        return self.indices is None

    @property
    def matrix(self) -> np.ndarray:
        """The values of dense rows, shape (n_rows, n_features): a view; (0, 0) without rows."""
        return self.data.reshape(self.n_rows, len(self.data) // max(self.n_rows, 1))

    @property
    def features(self) -> np.ndarray:
        """The feature of each value of CSR rows; raises `TypeError` if the rows are dense."""
        if self.indices is None:
            raise TypeError("dense rows have no indices")
        return self.indices

    @property
    def largest_feature(self) -> int:
        """The largest feature that a row has; -1 if there is none."""
        if self.indices is None:
            return self.matrix.shape[1] - 1
        return int(self.indices.max(initial=-1))

    def class_counts(self, n_classes: int) -> np.ndarray:
        """Return the number of rows of each class with a positive weight; weights are read from `cost`."""
        codes = self.label_codes if len(self.label_indptr) else self.labels
        if len(self.cost):
            of_label = np.diff(self.label_indptr) if len(self.label_indptr) else 1
            codes = codes[np.repeat(self.cost > 0, of_label)]
        return np.bincount(codes[codes >= 0], minlength=n_classes)


def dense_rows(matrix: np.ndarray, labels: np.ndarray, norm2: np.ndarray) -> Rows:
    """Return the rows of a C-contiguous matrix, shape (n_rows, n_features), as dense rows."""
    return with_matrix(Rows(matrix, None, NO_NUMBERS, labels, norm2), matrix)


def with_matrix(rows: Rows, matrix: np.ndarray) -> Rows:
    """Return dense rows with the values of a C-contiguous matrix, shape (n_rows, n_features)."""
    n_rows, n_features = matrix.shape
    return rows._replace(data=matrix.reshape(-1), indptr=np.arange(n_rows + 1) * n_features)


def sparse_rows(rows: Rows, index_dtype: np.dtype) -> Rows:
    """Return dense rows as CSR, without their zeros; CSR rows as they are."""
    if not rows.dense:
        return rows
    at, features = np.nonzero(rows.matrix)
    indptr = np.searchsorted(at, np.arange(rows.n_rows + 1))
    return rows._replace(data=rows.matrix[at, features], indices=features.astype(index_dtype), indptr=indptr)


def with_index_dtype(rows: Rows, index_dtype: np.dtype) -> Rows:
    """Return CSR rows with indices in this type; dense rows as they are."""
    if rows.indices is None:
        return rows
    return rows._replace(indices=rows.indices.astype(index_dtype, copy=False))


def row_span(rows: Rows, start: int, stop: int) -> Rows:
    """Return the rows ``start:stop``: views of all but `indptr` and `label_indptr`, which begin with 0."""
    parts: dict[str, Any] = {name: getattr(rows, name)[start:stop] for name in OF_EACH_ROW}
    for name, targets in POINTERS.items():
        if len(pointers := getattr(rows, name)):
            low, high = pointers[start], pointers[stop]
            parts[name] = pointers[start : stop + 1] - low
            parts |= {each: values[low:high] for each, values in pointed_to(rows, targets)}
    return rows._replace(**parts)


def kept_rows(rows: Rows, kept: np.ndarray) -> Rows:
    """Return the rows for which `kept`, bool of shape (n_rows,), is true."""
    if kept.all():
        return rows
    parts: dict[str, Any] = {name: each[kept] for name in OF_EACH_ROW if len(each := getattr(rows, name))}
    for name, targets in POINTERS.items():
        if len(pointers := getattr(rows, name)):
            lengths = np.diff(pointers)
            parts[name] = np.concatenate([[0], np.cumsum(lengths[kept])])
            of_element = np.repeat(kept, lengths)
            parts |= {each: values[of_element] for each, values in pointed_to(rows, targets)}
    return rows._replace(**parts)


def kept_values(rows: Rows, kept: np.ndarray) -> Rows:
    """Return CSR rows with the values for which `kept`, bool of shape (nnz,), is true; norms stay."""
    indptr = np.concatenate([[0], np.cumsum(kept)])[rows.indptr]
    return rows._replace(data=rows.data[kept], indices=rows.features[kept], indptr=indptr)


def pointed_to(rows: Rows, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of these names; dense rows have no indices."""
    return ((name, values) for name in names if (values := getattr(rows, name)) is not None)


def joined_rows(parts: Iterable[Rows]) -> Rows:
    """Return the rows of one or more parts, all CSR or all dense, one after the other, in new arrays.

    Parts that an iterator yields are held only until each of their arrays is copied.
    """
    arrays = dict(zip(Rows._fields, map(list, zip(*parts, strict=True)), strict=True))
    joined: dict[str, Any] = {}
    for name in Rows._fields:
        each = arrays.pop(name)
        if name == "indices" and each[0] is None:
            joined[name] = None
        elif name in ("indptr", "label_indptr"):
            sizes = np.concatenate([np.diff(pointers) for pointers in each])
            joined[name] = np.concatenate([each[0][:1], np.cumsum(sizes)])
        else:
            joined[name] = np.concatenate(each)
    return Rows(**joined)
