"""Parse a `y` with several labels per row, and recode the label codes of rows."""

from __future__ import annotations

import copy
import itertools
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base.format import LABEL_DTYPE
from streamsvm.base.label_values import codes_among
from streamsvm.data.checks import first_labels, first_true, row_of
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Remedy, StreamsvmError, StreamsvmWarning, warn

_COLLECTIONS = (list, tuple, set, frozenset, np.ndarray)


class LabelLists(NamedTuple):
    """Label lists of multi-label rows; the labels of row i are ``labels[indptr[i]:indptr[i + 1]]``.

    For an indicator matrix, `columns` contains the label of each column, and `labels` is an integer array of
    column numbers. Otherwise `columns` is None, and `labels` is a list of labels. `indptr` is int64.
    """

    labels: Any
    indptr: np.ndarray
    columns: np.ndarray | None


def label_lists(y: Any, n_rows: int) -> LabelLists | None:
    """Return the label lists of `y`, or None if `y` has one label per row.

    `y` contains a list, tuple, set or array of labels for each row, or is an indicator matrix of zeros and
    ones, shape (n_rows, n_classes), dense or SciPy sparse. A list of lists is never read as an indicator
    matrix. The classes of an indicator matrix are its column numbers, or the column names of a DataFrame.

    Raises `InputError` if the length is not `n_rows`, if only some rows have collections of labels, or if an
    indicator matrix has values other than 0 and 1.
    """
    import scipy.sparse

    if scipy.sparse.issparse(y) or (getattr(y, "ndim", 1) == 2 and y.shape[1] != 1):
        return _of_indicator(y, n_rows)
    if (isinstance(y, np.ndarray) and y.dtype != object) or not hasattr(y, "__iter__"):
        return None
    lists: list[Any] = list(y)
    is_list = [isinstance(labels, _COLLECTIONS) and getattr(labels, "ndim", 1) == 1 for labels in lists]
    if not any(is_list):
        return None
    _check_length(len(lists), n_rows)
    if not all(is_list):
        row = is_list.index(False)
        raise InputError(f"y[{row}] is {lists[row]!r:.40}, but other rows have lists of labels; pass a list")
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum([len(labels) for labels in lists], out=indptr[1:])
    return LabelLists(list(itertools.chain.from_iterable(lists)), indptr, None)


def _of_indicator(y: Any, n_rows: int) -> LabelLists:
    columns = np.asarray(y.columns if hasattr(y, "columns") else range(y.shape[1]))
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    _check_length(y.shape[0], n_rows)
    if y.dtype.kind not in "fiub":
        raise InputError(f"y has values of type {y.dtype}; use only 0 and 1 in an indicator matrix")
    matrix = canonical_csr(y, name="y")
    data = matrix.data
    if (at := first_true((data != 0) & (data != 1))) is not None:
        raise InputError(
            f"y[{row_of(matrix.indptr, at)}, {matrix.indices[at]}]: {data[at]} is neither 0 nor "
            "1, so y is not an indicator matrix; pass a list of labels for each row"
        )
    kept = np.concatenate([[0], np.cumsum(data != 0)])
    return LabelLists(matrix.indices[data != 0], kept[matrix.indptr].astype(np.int64), columns)


def canonical_csr(matrix: Any, error: type[StreamsvmError] = InputError, name: str = "X") -> Any:
    """Return a matrix as CSR with sorted and distinct indices, without modifying the input.

    Raises `error` if the arrays of a sparse matrix are inconsistent, because SciPy would read out of bounds.
    """
    import scipy.sparse

    try:
        if getattr(matrix, "format", "") == "coo":
            matrix = type(matrix)((matrix.data, (matrix.row, matrix.col)), shape=matrix.shape)
        elif getattr(matrix, "format", "") in ("csr", "csc"):
            copy.copy(matrix).check_format()  # a copy, because check_format may prune arrays
    except ValueError as wrong:
        remedy = Remedy("number rows and columns from 0")
        raise error(f"{name} is a sparse matrix with inconsistent arrays: {wrong}", remedy=remedy) from None
    csr = scipy.sparse.csr_array(matrix)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _check_length(length: int, n_rows: int) -> None:
    if length != n_rows:
        raise InputError(f"X has {n_rows:,} rows, but y has labels for {length:,} rows")


def known_codes(y: Any, n_rows: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (codes, indptr) of the label lists in `y`, or None if `y` has one label per row.

    Unknown and missing labels have negative codes, and a `StreamsvmWarning` says how many there are.
    """
    sets = label_lists(y, n_rows)
    if sets is None:
        return None
    labels = sets.labels if sets.columns is None else sets.columns
    codes = codes_among(labels, classes)
    codes = codes if sets.columns is None else codes[sets.labels]
    if n_unknown := int(np.count_nonzero(codes < 0)):
        warn(StreamsvmWarning(f"y: labels unknown to the model are ignored ({n_unknown:,} in total)"))
    return codes, sets.indptr


def distinct_sets(codes: np.ndarray, indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (codes, indptr), int32 and int64, with the distinct non-negative codes of each row, sorted."""
    n_rows, width = len(indptr) - 1, int(codes.max(initial=0)) + 1
    row_of = np.repeat(np.arange(n_rows), np.diff(indptr))
    keys = np.unique((row_of * width + codes)[codes >= 0])
    starts = np.zeros(n_rows + 1, np.int64)
    np.cumsum(np.bincount(keys // width, minlength=n_rows), out=starts[1:])
    return (keys % width).astype(LABEL_DTYPE), starts


def row_with_a_label_twice(codes: np.ndarray, indptr: np.ndarray, distinct: np.ndarray) -> int | None:
    """Return the first row that repeats a code, or None; `distinct` is the `indptr` from `distinct_sets`."""
    known = np.concatenate([[0], np.cumsum(codes >= 0)])[indptr]
    return first_true(np.diff(distinct) < np.diff(known))


def with_label_sets(rows: Rows, codes: np.ndarray, indptr: np.ndarray) -> Rows:
    """Return rows with new labels: for row i, the non-negative codes in ``codes[indptr[i]:indptr[i + 1]]``.

    The codes may be in any order. Raises `InputError` if a row repeats a label.
    """
    label_codes, label_indptr = distinct_sets(codes, indptr)
    row = row_with_a_label_twice(codes, indptr, label_indptr)
    if row is not None:
        raise InputError(f"y[{row}] repeats a label; drop it, or pass an indicator matrix as an array")
    labels = first_labels(label_codes, label_indptr)
    return rows._replace(labels=labels, label_codes=label_codes, label_indptr=label_indptr)


def recode(rows: Rows, code_of: np.ndarray) -> Rows:
    """Return rows with each label code c replaced by ``code_of[c]``; -1 stands for an unknown label.

    `code_of` is int32 of shape (n_codes + 1,). Its last entry is -1, so unknown labels (c = -1) stay unknown.
    """
    if len(rows.label_indptr):
        return with_label_sets(rows, code_of[rows.label_codes], rows.label_indptr)
    return rows._replace(labels=code_of[rows.labels])
