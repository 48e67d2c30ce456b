"""Several labels a row in AnnData that streamsvm did not write: a matrix of zeros and ones in `obsm`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import dtype_of_names
from streamsvm.data.label_sets import distinct_sets, row_with_a_label_twice
from streamsvm.errors import StoreError
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.matrices import check_ends, compressed_arrays, read_pointers
from streamsvm.store.ranges import Ranges, lengths, number_at, numbers_in, ranges_of

_MAX_CLASSES = 2**24  # a shape alone may claim any number, and each becomes a text
_PIECE = 2**22  # entries of a dense matrix read at a time


class Indicator(ABC):
    """Matrix of shape (n_rows, n_classes) that is 1 where a row has a label.

    Attributes
    ----------
    name : str
        Its path in the container, such as ``obsm/labels``.
    classes : list of str
        The names of its columns, or the numbers from 0.
    label_dtype : str
        Of the classes in Python.
    most_labels : int
        The labels of all rows together, at most.
    arrays : list of StoredArray
        Arrays whose missing chunks are worth a warning.
    """

    arrays: list[StoredArray]

    def __init__(self, container: Container, name: str, classes: list[str], most_labels: int) -> None:
        self.path = container.path
        self.name = name
        self.classes = classes
        self.label_dtype = dtype_of_names(classes)
        self.most_labels = most_labels

    @abstractmethod
    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        """Return where the entries of some ranges of rows stand, as `read_pointers` does."""

    @abstractmethod
    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Return `label_codes` and `label_indptr` of some ranges of rows, as `Rows` has them."""

    def _check(self, values: np.ndarray, row_of: np.ndarray) -> None:
        """Raise StoreError unless all values are 0 or 1; `row_of` has the row of each."""
        good = (values == 0) | (values == 1)
        if not good.all():
            at = int(np.argmin(good))
            raise StoreError(
                f"{self.path}: {self.name}, row {row_of[at]}: {values[at]} is neither 0 nor 1; "
                "an indicator of labels has no other values"
            )


class _SparseIndicator(Indicator):
    """Indicator that is a CSR matrix."""

    def __init__(self, container: Container, name: str, n_rows: int, n_classes: int) -> None:
        arrays = compressed_arrays(container, name, n_rows)
        self._data, self._indices, self._indptr = arrays.values()
        self.arrays = [self._indices]
        if self._data.dtype is None or self._data.dtype.kind not in "iufb":
            raise StoreError(f"{container.path}: array {self._data.name} does not hold numbers")
        for array in arrays.values():
            array.check_claimed_size()
        super().__init__(container, name, [str(c) for c in range(n_classes)], self._data.length)
        check_ends(self._indptr, n_rows, self._data.length)

    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        return read_pointers(self._indptr, ranges, self._data.length)

    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        spans, indptr = self.pointers(ranges)
        codes = self._indices.read_ranges(spans).astype(np.int64)
        k = len(self.classes)
        if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < k:
            at = int(np.argmax((codes < 0) | (codes >= k)))
            raise self._indices.damage(number_at(spans, at), f"label code {codes[at]} is out of range")
        values = self._data.read_ranges(spans)
        self._check(values, np.repeat(numbers_in(ranges), np.diff(indptr)))
        codes = np.where(values != 0, codes, format.UNSEEN_LABEL)
        distinct, starts = distinct_sets(codes, indptr)
        row = row_with_a_label_twice(codes, indptr, starts)
        if row is not None:
            raise StoreError(
                f"{self.path}: {self.name}, row {number_at(ranges, row)}: a label occurs twice; "
                "in Python: the matrix's sum_duplicates(), with ones as its data"
            )
        return distinct, starts


class _DenseIndicator(Indicator):
    """Indicator that is an array of two axes, or the columns of a dataframe."""

    def __init__(
        self, container: Container, name: str, n_rows: int, arrays: list[StoredArray], classes: list[str]
    ) -> None:
        super().__init__(container, name, classes, n_rows * len(classes))
        self._arrays = arrays
        # A column of a dataframe has no chunks where none of the rows has its label.
        self.arrays = [array for array in arrays if array.columns is not None]
        for array in arrays:
            if array.dtype is None or array.dtype.kind not in "iufb":
                raise StoreError(f"{container.path}: {array.name} does not hold numbers")
            if array.length != n_rows:
                raise StoreError(f"{container.path}: {array.name} has {array.length} rows, expected {n_rows}")
            array.check_claimed_size()

    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        width = len(self.classes)
        return ranges * width, np.arange(lengths(ranges).sum() + 1) * width

    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        counts, codes = [np.zeros(1, np.int64)], [np.empty(0, np.int64)]
        numbers = numbers_in(ranges)
        step = max(1, _PIECE // max(1, len(self.classes)))
        for begin in range(0, len(numbers), step):
            rows = numbers[begin : begin + step]
            parts = [array.read_ranges(ranges_of(rows)) for array in self._arrays]
            values = parts[0] if self._arrays[0].columns is not None else np.column_stack(parts)
            self._check(values.ravel(), np.repeat(rows, len(self.classes)))
            row, code = np.nonzero(values)
            counts.append(np.bincount(row, minlength=len(rows)))
            codes.append(code)
        return np.concatenate(codes).astype(format.LABEL_DTYPE), np.cumsum(np.concatenate(counts))


def open_indicator(container: Container, key: str, n_rows: int) -> Indicator | None:
    """Open an entry of ``obsm`` as an indicator of labels.

    Parameters
    ----------
    container : Container
    key : str
    n_rows : int
        Rows that it must have.

    Returns
    -------
    Indicator or None
        None if ``obsm`` has no such entry.

    Raises
    ------
    StoreError
        If it is not a matrix with a row for each row of X.
    """
    path, name = container.path, f"obsm/{key}"
    if "/" in key or key in ("", ".", "..") or container.node("obsm") != "group":
        return None
    kind = container.node(name)
    if kind is None:
        return None
    if kind == "array":
        dense = container.array(name, axes=2)
        n_classes = dense.columns or 0
        _check_shape(container, name, [dense.length, n_classes], n_rows)
        return _DenseIndicator(container, name, n_rows, [dense], [str(c) for c in range(n_classes)])
    attrs = container.attrs(name)
    encoding = attrs.get("encoding-type")
    if encoding == "csr_matrix":
        shape = attrs.get("shape")
        _check_shape(container, name, shape, n_rows)
        return _SparseIndicator(container, name, n_rows, shape[1])  # type: ignore[index]  # it is a list
    if encoding == "dataframe" and isinstance(attrs.get("column-order"), list):
        classes = [str(column) for column in attrs["column-order"]]
        _check_shape(container, name, [n_rows, len(classes)], n_rows)
        for each in classes:
            if "/" in each or container.node(f"{name}/{each}") != "array":
                raise StoreError(f"{path}: {name}, column {each!r} does not hold numbers")
        return _DenseIndicator(
            container, name, n_rows, [container.array(f"{name}/{each}") for each in classes], classes
        )
    remedy = f"in Python: adata.obsm[{key!r}] = scipy.sparse.csr_matrix(adata.obsm[{key!r}])"
    raise StoreError(f"{path}: {name} is {encoding!r}, not a matrix of labels that is read; {remedy}")


def _check_shape(container: Container, name: str, shape: Any, n_rows: int) -> None:
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or type(shape[1]) is not int
        or shape[0] != n_rows
        or not 1 <= shape[1] <= _MAX_CLASSES
    ):
        raise StoreError(
            f"{container.path}: {name} has the shape {shape}; expected {n_rows} rows, and a column for each "
            "class"
        )
