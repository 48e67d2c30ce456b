"""Matrices in AnnData that streamsvm did not write: CSR, dense or CSC, read as CSR rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm import format
from streamsvm.data.csr_checks import is_monotonic
from streamsvm.data.feature_names import sort_rows
from streamsvm.errors import Call, Remedy, StoreError
from streamsvm.store.container import Container, StoredArray

_PIECE = 2**18  # elements at each end that enter the fingerprint
_WIDEST = 2**62


class StoredMatrix(ABC):
    """A matrix of numbers on disk; nothing that it contains is trusted before it is checked.

    Values are float32 or float64 as stored; other numbers become float32, which is exact for integers of up
    to 16 bits. Wider integers are checked, and refused if float32 would change them (the first is 2**24 + 1)
    or they reach 2**31.

    Attributes
    ----------
    name : str
        Its path in the container, such as ``X`` or ``layers/counts``.
    encoding : {"csr", "csc", "dense"}
    shape : tuple of int
        Rows and columns.
    nnz : int
        Values that are stored: of a dense matrix, all.
    dtype : dtype
        Of the values that are returned: float32 or float64.
    chunk_nnz : int
        Values that are decoded as one.
    arrays : dict of str to StoredArray
        By their names within the matrix: ``data``, ``indices``, ``indptr``; or ``values``.
    """

    encoding: str
    nnz: int
    chunk_nnz: int

    def __init__(
        self, container: Container, name: str, shape: tuple[int, int], arrays: dict[str, StoredArray]
    ) -> None:
        self.container = container
        self.path = container.path
        self.name = name
        self.shape = shape
        self.arrays = arrays
        for array in arrays.values():
            array.check_claimed_size()
        self._stored = arrays["data"] if "data" in arrays else arrays["values"]
        dtype = self._stored.dtype
        if dtype is None or dtype.kind not in "fiub" or dtype.itemsize > 8:
            raise StoreError(
                f"{self.path}: array {self._stored.name} does not hold numbers of a supported type"
            )
        double = dtype.kind == "f" and dtype.itemsize == 8
        self.dtype = np.dtype(np.float64 if double else np.float32)
        self.index_dtype = format.index_dtype(shape[1])

    @abstractmethod
    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Return where the values of the rows ``start:stop`` begin among all, and where the last one ends.

        int64, monotonic, within ``0..nnz``.
        """

    @abstractmethod
    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return `data`, `indices` (sorted within rows) and `indptr` of the rows ``start:stop``, from 0 on.

        Indices are within the matrix; a row may have one twice, and values need not be finite.
        """

    def samples(self) -> Iterator[bytes]:
        """Yield what of the values and their columns enters the fingerprint: the first and the last ones."""
        for array in self.arrays.values():
            size = max(1, min(array.chunk, _PIECE // max(1, array.columns or 1)))
            for start in sorted({0, max(0, array.length - size)}):
                yield array.read(start, min(start + size, array.length)).tobytes()

    def _convert(self, values: np.ndarray, first: int, what: str = "element") -> np.ndarray:
        """Convert values, of which the first has the number `first`, to `dtype`.

        Raises StoreError if that changes a wide integer.
        """
        result = values.astype(self.dtype, copy=False)
        if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
            # Compare as integers, since 2**24 + 1 equals its float32 as float32. Below the bound, the
            # conversion back does not overflow.
            with np.errstate(invalid="ignore"):
                back = result.astype(values.dtype)
            lost = (np.abs(result) >= 2.0**31) | (back != values)
            if lost.any():
                at = np.unravel_index(int(np.argmax(lost)), values.shape)
                raise StoreError(
                    f"{self.path}: array {self._stored.name}, {what} {first + int(at[0])}: "
                    f"{values[at]} cannot be represented as float32; store the matrix as float64, in Python: "
                    "adata.X = adata.X.astype('float64')"
                )
        return result


class CsrMatrix(StoredMatrix):
    """A CSR matrix, whose rows need not be sorted."""

    encoding = "csr"

    def __init__(self, container: Container, name: str, shape: tuple[int, int]) -> None:
        super().__init__(container, name, shape, _compressed(container, name, shape[0]))
        self.nnz = self.arrays["data"].length
        self.chunk_nnz = self.arrays["data"].chunk
        _check_ends(self.arrays["indptr"], shape[0], self.nnz)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return read_pointers(self.arrays["indptr"], start, stop, self.nnz)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        offsets = self.indptr(start, stop)
        lo, hi = int(offsets[0]), int(offsets[-1])
        offsets -= lo
        data = self._convert(self.arrays["data"].read(lo, hi), lo)
        raw = self.arrays["indices"].read(lo, hi)
        check_indices(self.arrays["indices"], raw, lo, self.shape[1])
        indices = raw.astype(self.index_dtype, copy=False)
        unsorted = indices[1:] < indices[:-1]
        starts = offsets[1:-1]
        unsorted[starts[(starts > 0) & (starts < hi - lo)] - 1] = False
        if unsorted.any():
            data, indices = sort_rows(data, indices, offsets, self.shape[1])
        return data, indices, offsets


class DenseMatrix(StoredMatrix):
    """An array of two axes; its zeros are left out of the rows."""

    encoding = "dense"

    def __init__(self, container: Container, name: str) -> None:
        values = container.array(name, axes=2)
        assert values.columns is not None
        super().__init__(container, name, (values.length, values.columns), {"values": values})
        self.nnz = values.length * values.columns
        self.chunk_nnz = min(values.chunk, max(1, values.length)) * values.columns

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return np.arange(start, stop + 1, dtype=np.int64) * self.shape[1]

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        step = max(
            1, _PIECE // max(1, self.shape[1])
        )  # what finding the others takes is several times a piece
        data, indices = [np.empty(0, self.dtype)], [np.empty(0, self.index_dtype)]
        indptr = np.zeros(stop - start + 1, np.int64)
        for begin in range(start, stop, step):
            end = min(begin + step, stop)
            values = self._convert(self.arrays["values"].read(begin, end), begin, "row")
            nonzero = values != 0
            indptr[begin - start + 1 : end - start + 1] = np.count_nonzero(nonzero, axis=1)
            data.append(values[nonzero])
            indices.append(np.nonzero(nonzero)[1].astype(self.index_dtype, copy=False))
        return np.concatenate(data), np.concatenate(indices), np.cumsum(indptr)


class CscMatrix(StoredMatrix):
    """A CSC matrix, whose rows cannot be read; `arrays` have its columns."""

    encoding = "csc"

    def __init__(self, container: Container, name: str, shape: tuple[int, int]) -> None:
        super().__init__(container, name, shape, _compressed(container, name, shape[1]))
        self.nnz = self.arrays["data"].length
        self.chunk_nnz = self.arrays["data"].chunk
        _check_ends(self.arrays["indptr"], shape[1], self.nnz)

    def indptr(self, start: int, stop: int) -> np.ndarray:
        raise self._by_columns()

    def read(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        raise self._by_columns()

    def _by_columns(self) -> StoreError:
        return StoreError(
            f"{self.path}: {self.name} is CSC, which stores columns, and rows are needed",
            remedy=Remedy("turn it into a store of rows with {}", Call("convert", self.path)),
        )


def open_matrix(container: Container, name: str) -> StoredMatrix:
    """Open a matrix of AnnData; raises StoreError if there is none of a known kind."""
    path = container.path
    kind = container.node(name)
    if kind is None:
        raise StoreError(f"{path}: AnnData without {name}; there is nothing to read")
    if kind == "array":
        return DenseMatrix(container, name)
    attrs = container.attrs(name)
    encoding = attrs.get("encoding-type")
    if encoding not in ("csr_matrix", "csc_matrix"):
        raise StoreError(
            f"{path}: {name} is {encoding!r}, neither a CSR nor a CSC matrix nor dense; "
            "read and write it with anndata >= 0.8"
        )
    shape = attrs.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(type(size) is int and 0 <= size < _WIDEST for size in shape)
    ):
        raise StoreError(f"{path}: {name} has no valid shape: {shape}")
    kinds: dict[Any, type[CsrMatrix | CscMatrix]] = {"csr_matrix": CsrMatrix, "csc_matrix": CscMatrix}
    return kinds[encoding](container, name, (shape[0], shape[1]))


def read_pointers(array: StoredArray, start: int, stop: int, end: int) -> np.ndarray:
    """Return the pointers ``start:stop + 1`` of an array of them that ends with `end`, checked, int64."""
    offsets = array.read(start, stop + 1).astype(format.INDPTR_DTYPE, copy=False)
    if not (offsets[0] >= 0 and offsets[-1] <= end and is_monotonic(offsets)):
        previous = np.concatenate([[0], offsets[:-1]])
        at = int(np.argmax((offsets < previous) | (offsets > end)))
        raise array.damage(start + at, "the row pointers are not in order")
    return offsets


def check_indices(array: StoredArray, values: np.ndarray, first: int, bound: int) -> None:
    """Raise StoreError unless the values of an array from element `first` on are within ``0..bound - 1``."""
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < bound:
        at = int(np.argmax((values < 0) | (values >= bound)))
        raise array.damage(first + at, f"index {values[at]} is out of range")


def _compressed(container: Container, name: str, n: int) -> dict[str, StoredArray]:
    """Return the arrays of a CSR or CSC matrix with `n` rows, or columns."""
    arrays = {part: container.array(f"{name}/{part}") for part in ("data", "indices", "indptr")}
    lengths = {"indices": arrays["data"].length, "indptr": n + 1}
    for part, length in lengths.items():
        array = arrays[part]
        if array.dtype is None or array.dtype.kind not in "iu":
            raise StoreError(f"{container.path}: array {array.name} does not hold integers")
        if array.length != length:
            raise StoreError(
                f"{container.path}: array {array.name} has {array.length} elements, expected {length}"
            )
    return arrays


def _check_ends(array: StoredArray, n: int, nnz: int) -> None:
    for row, expected in [(0, 0), (n, nnz)]:
        if int(array.read(row, row + 1)[0]) != expected:
            raise array.damage(row, f"row pointer {row} is not {expected}")
