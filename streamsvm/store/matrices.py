"""Read CSR, CSC and dense matrices in AnnData from other programs by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from streamsvm.base import format
from streamsvm.data.checks import first_outside
from streamsvm.errors import StoreError
from streamsvm.store.array_file import LoadedArray, check_memory
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.obs_columns import column_names
from streamsvm.store.ranges import Ranges, lengths, number_at, numbers_in, span

_PIECE = 2**18  # elements per read of a dense matrix, and at each end of an array for the fingerprint
_MAX_SIZE = 2**62


class StoredMatrix(ABC):
    """Numeric matrix on disk, read by rows.

    Values stored as float32 or float64 keep their dtype; other numbers become float32. Integers of more than
    16 bits are refused if float32 cannot represent them (2**24 + 1 is the smallest) or if they reach 2**31.

    The keys of `arrays` are ``data``, ``indices`` and ``indptr`` for CSR, ``values`` for a dense array, and
    the paths of the columns for a dataframe.
    """

    encoding: str  # "csr" or "dense"
    nnz: int  # number of stored values; for a dense matrix, of all values
    chunk_nnz: int  # number of values decoded at a time
    dense_rows = False  # True: `read` returns dense rows (only from a dense matrix)
    columns: list[str] | None = None  # column names of a dataframe

    def __init__(
        self, container: Container, name: str, shape: tuple[int, int], arrays: dict[str, StoredArray]
    ) -> None:
        self.container = container
        self.path = container.path
        self.name = name  # path in the container, such as "X" or "layers/counts"
        self.shape = shape
        self.arrays = arrays
        values = [array for part, array in arrays.items() if part not in ("indices", "indptr")]
        for array in values:
            if array.dtype is None or array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
                raise array.error(" does not hold numbers of a supported type")
        self.values = values[0]  # array of the values, or of the first column
        common = np.result_type(*(array.dtype for array in values if array.dtype is not None))
        self.dtype = np.dtype(np.float64 if common.kind == "f" and common.itemsize == 8 else np.float32)
        self.index_dtype = format.index_dtype(shape[1])

    @abstractmethod
    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        """Return the ranges of values, and the row pointers, for ranges of rows: see `read_pointers`."""

    @abstractmethod
    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """Return `data`, `indices` and `indptr` for ranges of rows; `indices` is None for dense rows.

        `indptr` starts at 0. Values and indices are not checked, and rows may be unsorted.
        """

    def samples(self) -> Iterator[bytes]:
        """Yield the first and last elements of each array, as bytes to hash for the fingerprint."""
        for array in self.arrays.values():
            size = max(1, min(array.chunk, _PIECE // max(1, array.columns or 1)))
            for start in sorted({0, max(0, array.length - size)}):
                yield array.read(start, min(start + size, array.length)).tobytes()

    def _convert(self, values: np.ndarray, ranges: Ranges, what: str = "element") -> np.ndarray:
        """Convert values to `dtype`; raise StoreError if this changes an integer of more than 16 bits."""
        with np.errstate(invalid="ignore"):  # signalling NaN
            result = values.astype(self.dtype, copy=False)
        if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
            # Compare as integers, because a comparison in float32 would round 2**24 + 1, too. Below 2**31,
            # converting back cannot overflow.
            with np.errstate(invalid="ignore"):
                back = result.astype(values.dtype)
            lost = (np.abs(result) >= 2.0**31) | (back != values)
            if lost.any():
                at = np.unravel_index(int(np.argmax(lost)), values.shape)
                place = f"{what} {number_at(ranges, int(at[0]))}"
                how = "" if self.container.is_matrix else ", in Python: adata.X = adata.X.astype('float64')"
                raise self.values.error(
                    f", {place}: {values[at]} cannot be represented as float32; store the matrix as float64"
                    + how
                )
        return result


class CsrMatrix(StoredMatrix):
    """CSR matrix. The indices in a row may be unsorted."""

    encoding = "csr"

    def __init__(
        self,
        container: Container,
        name: str,
        shape: tuple[int, int],
        arrays: dict[str, StoredArray] | None = None,
    ) -> None:
        super().__init__(container, name, shape, arrays or compressed_arrays(container, name, shape[0]))
        self.nnz = self.arrays["data"].length
        self.chunk_nnz = max(array.chunk for array in self.arrays.values())
        check_ends(self.arrays["indptr"], shape[0], self.nnz)

    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        return read_pointers(self.arrays["indptr"], ranges, self.nnz)

    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        spans, indptr = self.pointers(ranges)
        data = self._convert(self.arrays["data"].read_ranges(spans), spans)
        indices = self.arrays["indices"].read_ranges(spans)
        if indices.dtype not in (np.int32, np.int64):
            indices = indices.astype(np.int64)  # an index that is out of range stays out of range
        return data, indices, indptr


class DenseMatrix(StoredMatrix):
    """Dense matrix: a two-dimensional array, or one array per column. Conversion to CSR omits zeros."""

    encoding = "dense"

    def __init__(self, container: Container, name: str, arrays: list[StoredArray]) -> None:
        values = arrays[0]
        for array in arrays:
            array.absent_chunks = "warn"
        self._columns = arrays if values.columns is None else []
        shape = values.length, values.columns or len(self._columns)
        super().__init__(
            container, name, shape, {array.name: array for array in self._columns} or {"values": values}
        )
        self.nnz = shape[0] * shape[1]
        self._height = values.chunk
        self._width = max(values.column_chunk or 1, _PIECE // self._height)  # columns per read
        self.chunk_nnz = min(self._height * self._width, max(1, self.nnz))

    def pointers(self, ranges: Ranges) -> tuple[Ranges, np.ndarray]:
        return ranges * self.shape[1], np.arange(lengths(ranges).sum() + 1) * self.shape[1]

    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        row_numbers = numbers_in(ranges)
        order = np.argsort(row_numbers, kind="stable")
        bands = np.split(order, np.flatnonzero(np.diff(row_numbers[order] // self._height)) + 1)
        matrix = np.empty((len(row_numbers), self.shape[1]), self.dtype)
        for places in bands if len(row_numbers) else ():  # rows in the same chunks
            rows = row_numbers[places]
            first, numbers = int(rows[0]), np.column_stack([rows, rows + 1])
            begin = 0
            for values in self.parts(first, int(rows[-1]) + 1):
                end = begin + values.shape[1]
                matrix[places, begin:end] = self._convert(values[rows - first], numbers + 1, "row")
                begin = end
        if self.dense_rows:
            return matrix.reshape(-1), None, np.arange(len(matrix) + 1) * self.shape[1]
        present = matrix != 0
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
        columns = np.broadcast_to(np.arange(self.shape[1], dtype=self.index_dtype), matrix.shape)
        return matrix[present], columns[present], indptr

    def parts(self, first: int, stop: int) -> Iterator[np.ndarray]:
        """Yield the stored values in rows ``first:stop``, a few columns at a time."""
        for begin in range(0, self.shape[1], self._width):
            end = min(begin + self._width, self.shape[1])
            if self._columns:
                yield np.column_stack([each.read(first, stop) for each in self._columns[begin:end]])
            else:
                yield self.values.read_part(first, stop, begin, end)


def _load_columns(container: Container, name: str, shape: tuple[int, int], memory: int | None) -> CsrMatrix:
    """Load a CSC matrix as CSR; raise `PlanError` if `memory`, in bytes, is too small for two copies.

    If `memory` is 0, only the sizes and types of the result are valid. If `memory` is None, raise StoreError.
    """
    from scipy.sparse import csc_array

    module, opening, more, end = "h5py", "h5py.File", "", ""
    if container.kind != "hdf5":
        module, opening, more = "zarr", "zarr.open_group", ", use_consolidated=False"
        end = "; zarr.consolidate_metadata(f.store)"
    parent, _, key = name.rpartition("/")  # anndata writes no names with slashes
    group = f"f[{parent!r}]" if parent else "f"
    lines = (
        f"import anndata, {module}; f = {opening}({str(container.path)!r}, mode='r+'{more}); "
        f"X = anndata.io.read_elem(f[{name!r}]).tocsr(); anndata.io.write_elem({group}, {key!r}, X){end}"
    )
    if memory is None:
        raise StoreError(
            f"{container.path}: {name} is CSC, which stores columns, but rows are needed; "
            f"to store it by rows, run `{lines}` in Python"
        )
    columns = CsrMatrix(container, name, shape[::-1])  # rows of the transposed matrix
    if memory == 0:
        columns.shape = shape
        return columns
    dtype = format.index_dtype(max(columns.nnz + 1, *shape))
    nbytes = columns.nnz * (columns.dtype.itemsize + dtype.itemsize)
    check_memory(f"{container.path}: {name}", nbytes, memory, lines)
    values, rows, pointers = columns.read(span(0, shape[1]))
    if (at := first_outside(rows, shape[0])) is not None:
        raise columns.arrays["indices"].damage(at, f"row {rows[at]} is out of range")
    found = csc_array((values, rows.astype(dtype, copy=False), pointers.astype(dtype)), shape).tocsr()
    found.sum_duplicates()
    arrays: dict[str, StoredArray] = {
        part: LoadedArray(container, f"{name}/{part}", getattr(found, part)) for part in columns.arrays
    }
    return CsrMatrix(container, name, shape, arrays)


def open_matrix(container: Container, name: str, memory: int | None = None) -> CsrMatrix | DenseMatrix:
    """Open a matrix of AnnData; raise StoreError if it does not exist or its kind is unknown.

    A CSC matrix is refused if `memory` is None. If `memory` is 0, it can be opened but not read. Otherwise it
    is loaded, and `memory` is the limit in bytes.
    """
    path = container.path
    kind = container.node(name)
    if kind is None:
        raise StoreError(f"{path}: the AnnData has no {name}; check the name, or add the matrix")
    if kind == "array":
        return DenseMatrix(container, name, [container.array(name, axes=2)])
    attrs = container.attrs(name)
    encoding = attrs.get("encoding-type")
    if encoding == "dataframe":
        return _open_frame(container, name)
    if encoding not in ("csr_matrix", "csc_matrix"):
        raise StoreError(
            f"{path}: {name} is {encoding!r}, not a CSR, CSC or dense matrix; "
            "read and write it with anndata >= 0.8"
        )
    shape = attrs.get("shape")
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != 2 or not all(type(size) is int and 0 <= size < _MAX_SIZE for size in sizes):
        raise StoreError(f"{path}: {name} has no valid shape: {shape}")
    size = (sizes[0], sizes[1])
    by_rows = encoding == "csr_matrix"
    return CsrMatrix(container, name, size) if by_rows else _load_columns(container, name, size, memory)


def _open_frame(container: Container, name: str) -> DenseMatrix:
    """Open a dataframe as a dense matrix; raise StoreError if it has no columns or a non-numeric column."""
    path, columns = container.path, column_names(container, name)
    if not columns:
        raise StoreError(f"{path}: {name} has no columns")
    for each in columns:
        if "/" in each or container.node(f"{name}/{each}") != "array":
            raise StoreError(f"{path}: {name}, column {each!r} does not hold numbers")
    arrays = [container.array(f"{name}/{each}") for each in columns]
    for array in arrays:
        array.check_length(arrays[0].length)
    frame = DenseMatrix(container, name, arrays)
    frame.columns = columns
    return frame


def read_pointers(array: StoredArray, ranges: Ranges, end: int) -> tuple[Ranges, np.ndarray]:
    """Read and check the row pointers for ranges of rows; `end` is the last pointer of the array.

    Returns
    -------
    spans : Ranges
        For each range of rows, the range of its elements.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Row pointers into the concatenated elements of all ranges.
    """
    with_ends = ranges + np.array([0, 1])
    values = array.read_ranges(with_ends).astype(format.INDPTR_DTYPE, copy=False)
    counts = lengths(with_ends)
    lasts = np.cumsum(counts) - 1
    sizes = np.diff(values)
    within = np.ones(len(sizes), bool)
    within[lasts[:-1]] = False  # differences across two ranges
    bad = (sizes < 0) & within
    outside = (values < 0) | (values > end)
    if bad.any() or outside.any():
        at = int(np.argmax(np.append(outside[:1], outside[1:] | bad)))
        raise array.damage(number_at(with_ends, at), "the row pointers are not in order")
    spans = np.column_stack([values[lasts - counts + 1], values[lasts]])
    return spans, np.concatenate([[0], np.cumsum(sizes[within])])


def compressed_arrays(container: Container, name: str, n: int) -> dict[str, StoredArray]:
    """Return the arrays of a CSR or CSC matrix with `n` rows or columns."""
    arrays = {part: container.array(f"{name}/{part}") for part in ("data", "indices", "indptr")}
    for part, length in {"indices": arrays["data"].length, "indptr": n + 1}.items():
        arrays[part].check_integers()
        arrays[part].check_length(length)
    return arrays


def check_ends(array: StoredArray, n: int, nnz: int) -> None:
    """Raise StoreError unless the row pointers of `n` rows begin with 0 and end with `nnz`."""
    for row, expected in [(0, 0), (n, nnz)]:
        if int(array.read(row, row + 1)[0]) != expected:
            raise array.damage(row, f"row pointer {row} is not {expected}")
