"""Rows with several labels each: what Python users give as `y`, and codes in the order of other classes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import InputError
from streamsvm.format import LABEL_DTYPE, UNSEEN_LABEL

_SETS = (list, tuple, set, frozenset, np.ndarray)


class LabelSets(NamedTuple):
    """The labels of rows that may have several each; those of row i are ``labels[indptr[i]:indptr[i + 1]]``.

    Attributes
    ----------
    labels : list, or ndarray of int, shape (n_labels,)
        The labels as given, or numbers of `columns`.
    indptr : ndarray of int64, shape (n_rows + 1,)
    columns : list of str, or None
        The classes, if the labels were given as an indicator matrix.
    """

    labels: Any
    indptr: np.ndarray
    columns: list[str] | None


def label_sets(y: Any, n_rows: int) -> LabelSets | None:
    """The labels of `n_rows` rows that may have several each; None if `y` has one label for each row.

    Parameters
    ----------
    y : sequence of collections, or array_like or scipy sparse matrix or array, shape (n_rows, k)
        A list, tuple, set or array of labels for each row; or an indicator matrix of zeros and ones, which
        is no nested list. Its classes are the numbers of its columns as texts, or their names in a DataFrame.

    Raises
    ------
    InputError
        If there are not `n_rows` of them, one of them is no collection, or an indicator has other values than
        0 and 1.
    """
    import scipy.sparse

    if scipy.sparse.issparse(y) or (getattr(y, "ndim", 1) == 2 and y.shape[1] != 1):
        return _of_indicator(y, n_rows)
    if (isinstance(y, np.ndarray) and y.dtype != object) or not hasattr(y, "__iter__"):
        return None
    each: list[Any] = list(y)
    among = [isinstance(labels, _SETS) and getattr(labels, "ndim", 1) == 1 for labels in each]
    if not any(among):
        return None
    _check_length(len(each), n_rows)
    if not all(among):
        row = among.index(False)
        raise InputError(f"y[{row}] is {each[row]!r:.40}, where other rows have lists of labels")
    indptr = np.zeros(n_rows + 1, np.int64)
    np.cumsum([len(labels) for labels in each], out=indptr[1:])
    return LabelSets(list(itertools.chain.from_iterable(each)), indptr, None)


def _of_indicator(y: Any, n_rows: int) -> LabelSets:
    import scipy.sparse

    columns = [str(name) for name in y.columns] if hasattr(y, "columns") else None
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    _check_length(y.shape[0], n_rows)
    if y.dtype.kind not in "fiub":
        raise InputError(f"y has values of type {y.dtype}; an indicator matrix has 0 and 1")
    matrix = scipy.sparse.csr_array(y)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()  # the caller's arrays stay as they are
        matrix.sum_duplicates()
    data = matrix.data
    wrong = (data != 0) & (data != 1)
    if wrong.any():
        at = int(np.argmax(wrong))
        row = int(np.searchsorted(matrix.indptr, at, "right")) - 1
        raise InputError(
            f"y, row {row}, column {matrix.indices[at]}: {data[at]} is neither 0 nor 1, as in an indicator "
            "matrix; give a list of labels for each row"
        )
    kept = np.concatenate([[0], np.cumsum(data != 0)])
    if columns is None:
        columns = [str(column) for column in range(matrix.shape[1])]
    return LabelSets(matrix.indices[data != 0], kept[matrix.indptr].astype(np.int64), columns)


def _check_length(found: int, n_rows: int) -> None:
    if found != n_rows:
        raise InputError(f"X has {n_rows:,} rows, and y the labels of {found:,}")


def known_codes(y: Any, n_rows: int, classes: Sequence[str]) -> tuple[np.ndarray, np.ndarray] | None:
    """Codes of the labels in `classes`, as `with_label_sets` takes them; None for one label a row."""
    sets = label_sets(y, n_rows)
    if sets is None:
        return None
    code = {label: c for c, label in enumerate(classes)}
    if sets.columns is None:
        codes = [code.get(str(label), UNSEEN_LABEL) for label in sets.labels]
        return np.array(codes, LABEL_DTYPE), sets.indptr
    of_column = [code.get(name, UNSEEN_LABEL) for name in sets.columns]
    return np.array(of_column, LABEL_DTYPE)[sets.labels], sets.indptr


def with_label_sets(rows: Rows, codes: np.ndarray, indptr: np.ndarray) -> Rows:
    """Rows with the labels ``codes[indptr[i]:indptr[i + 1]]``, in any order; those of -1 are left out.

    Raises `InputError` if a row has a label twice.
    """
    known = codes >= 0
    of_row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))[known]
    codes = codes[known].astype(LABEL_DTYPE, copy=False)
    order = np.lexsort((codes, of_row))
    codes = codes[order]
    twice = (codes[1:] == codes[:-1]) & (of_row[1:] == of_row[:-1])
    if twice.any():
        raise InputError(
            f"y: row {of_row[int(np.argmax(twice))]} has a label twice; an indicator is given as an array"
        )
    indptr = np.concatenate([[0], np.cumsum(known)])[indptr].astype(np.int64)
    labels = np.full(len(indptr) - 1, UNSEEN_LABEL, LABEL_DTYPE)
    has_any = np.diff(indptr) > 0
    labels[has_any] = codes[indptr[:-1][has_any]]
    return rows._replace(labels=labels, label_codes=codes, label_indptr=indptr)


def recode(rows: Rows, code_of: np.ndarray) -> Rows:
    """Rows whose label of the code c has the code ``code_of[c]``; -1 for unknown labels.

    Parameters
    ----------
    rows : Rows
    code_of : ndarray of int32, shape (n_codes + 1,)
        The last entry is -1: the code of what is unknown already.
    """
    if len(rows.label_indptr):
        return with_label_sets(rows, code_of[rows.label_codes], rows.label_indptr)
    return rows._replace(labels=code_of[rows.labels])
