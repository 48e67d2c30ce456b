"""Read label sets in AnnData from other programs: a 0/1 matrix in ``obsm``."""

from __future__ import annotations

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import dtype_of_names
from streamsvm.data.checks import first_false, first_labels, first_outside, row_of
from streamsvm.data.label_sets import distinct_sets, row_with_a_label_twice
from streamsvm.errors import StoreError
from streamsvm.store.container import Container
from streamsvm.store.matrices import StoredMatrix, open_matrix
from streamsvm.store.ranges import Ranges, number_at
from streamsvm.store.store import Columns

_MAX_CLASSES = 2**24  # a shape may claim any number of classes, and each needs a string


class Indicator:
    """Matrix of shape (n_rows, n_classes), CSR or dense, that is 1 where a row has a label.

    The classes are the column names or, if the columns have no names, numbers from 0.
    """

    def __init__(self, matrix: StoredMatrix) -> None:
        if matrix.columns is not None:  # a chunk that contains only zeros may be missing
            for array in matrix.arrays.values():
                array.absent_chunks = "allow"
        self._matrix = matrix
        self.classes = matrix.columns or [str(c) for c in range(matrix.shape[1])]
        self.label_dtype = dtype_of_names(self.classes)
        self.max_labels = matrix.nnz  # upper bound of the total number of labels

    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        """Return the ranges of entries, and the row pointers, for ranges of rows: see `read_pointers`."""
        return self._matrix.pointers(ranges)

    def columns(self, ranges: Ranges) -> Columns:
        """Return `labels`, `label_codes` and `label_indptr` for ranges of rows: see `Rows`."""
        matrix = self._matrix
        values, codes, indptr = matrix.read(ranges)
        assert codes is not None  # because `dense_rows` is False
        if (at := first_outside(codes, len(self.classes))) is not None:
            element = number_at(matrix.pointers(ranges)[0], at)
            raise matrix.arrays["indices"].damage(element, f"label code {codes[at]} is out of range")
        if (at := first_false((values == 0) | (values == 1))) is not None:
            row = number_at(ranges, row_of(indptr, at))
            raise StoreError(
                f"{matrix.path}: {matrix.name}, row {row + 1}: {values[at]:.15g} is neither 0 nor 1; "
                "an indicator matrix may contain only 0 and 1"
            )
        codes = np.where(values != 0, codes, format.UNSEEN_LABEL)
        distinct, starts = distinct_sets(codes, indptr)
        twice = row_with_a_label_twice(codes, indptr, starts)
        if twice is not None:
            raise StoreError(
                f"{matrix.path}: {matrix.name}, row {number_at(ranges, twice) + 1}: a label occurs twice; "
                "in Python, call sum_duplicates() on the matrix, and set its data to 1"
            )
        return {
            "labels": first_labels(distinct, starts), "label_codes": distinct, "label_indptr": starts,
        }  # fmt: skip


def open_indicator(container: Container, key: str, n_rows: int) -> Indicator | None:
    """Open the entry `key` of ``obsm`` as an indicator matrix of labels; None if there is no such entry.

    Raises StoreError unless it is a matrix with `n_rows` rows and a column for each class.
    """
    path, name = container.path, f"obsm/{key}"
    if "/" in key or key in ("", ".", "..") or container.node("obsm") != "group":
        return None
    if container.node(name) is None:
        return None
    matrix = open_matrix(container, name)
    if matrix.shape[0] != n_rows or not 1 <= matrix.shape[1] <= _MAX_CLASSES:
        raise StoreError(
            f"{path}: {name} has the shape {list(matrix.shape)}; expected {n_rows} rows, and a column for "
            "each class"
        )
    return Indicator(matrix)
