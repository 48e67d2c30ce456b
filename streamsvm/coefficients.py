"""The coefficients of a model on disk, dense or sparse: written in pieces, mapped, scored with.

A feature that few rows have has few weights that are not zero: of a model with 77,000 features and 1,000
classes 6 % are. Such models are stored as the three arrays of a CSR matrix, a row a feature. Of hashed
features most occur in no row: then the rows of the others are stored, dense, with a list of their features.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from streamsvm import durable, format
from streamsvm.errors import ModelError

_PIECE = 2**20  # bytes, or elements, of coefficients that are gathered, written or checked at a time
_HEADER = 2**14  # bytes that the header of an array cannot exceed
_INDICES, _INDPTR = np.dtype("<i4"), np.dtype("<i8")
# Coefficients are sparse if that takes less than this part of the bytes, and there are classes enough for it
# to pay. Then scores take 0.5 to 2 times as long as by a dense array (wn1000, 1,000 classes). With half of
# the bytes (clinc150) they would take 2 to 3 times as long, and with few classes a row of the array is hardly
# more than an index.
_MOST_BYTES = 0.25
_LEAST_CLASSES = 64
# The rows of features in use are stored alone if that takes less than half of the bytes, and saves so many:
# looking up the features of a row costs little beside its scores, but something.
_LEAST_SAVED = 2**16
_HALF = np.dtype(np.float16)


class SparseCoef(NamedTuple):
    """A CSR matrix of shape (n_features, n_classes)."""

    data: np.ndarray  # (nnz,) dtype of the model
    indices: np.ndarray  # (nnz,) int32
    indptr: np.ndarray  # (n_features + 1,) int64
    n_classes: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.n_classes

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype


class RowsInUse(NamedTuple):
    """A matrix of shape (n_features, n_classes) whose other rows are zero."""

    features: np.ndarray  # (n,) int32 or int64, increasing
    weights: np.ndarray  # (n, n_classes)
    n_features: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_features, self.weights.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.weights.dtype

    def places(self) -> np.ndarray:
        """The row in `weights` of each feature, or -1: int32 or int64 of shape (n_features,)."""
        found = np.full(self.n_features, -1, format.index_dtype(self.n_features))
        found[self.features] = np.arange(len(self.features))
        return found

    def places_of(self, indices: np.ndarray) -> np.ndarray:
        """The row in `weights` of each of some features, or -1."""
        found = np.searchsorted(self.features, indices)
        inside = found < len(self.features)
        inside[inside] = self.features[found[inside]] == indices[inside]
        found[~inside] = -1
        return found


StoredCoef = np.ndarray | SparseCoef | RowsInUse


class DenseRows:
    """Stored coefficients whose slices of rows are dense arrays of `dtype`, as `Coefficients` takes them."""

    def __init__(self, coef: StoredCoef, dtype: np.dtype) -> None:
        self._coef = coef
        self.shape, self.dtype = coef.shape, dtype

    def __getitem__(self, at: tuple[slice, slice]) -> np.ndarray:
        coef, rows = self._coef, at[0]
        if isinstance(coef, np.ndarray):
            dense = coef[rows]
        else:
            dense = np.zeros((rows.stop - rows.start, self.shape[1]), coef.dtype)
            if isinstance(coef, SparseCoef):
                ends = coef.indptr[rows.start : rows.stop + 1]
                part = slice(int(ends[0]), int(ends[-1]))
                dense[np.repeat(np.arange(len(dense)), np.diff(ends)), coef.indices[part]] = coef.data[part]
            else:
                first, last = np.searchsorted(coef.features, [rows.start, rows.stop])
                dense[coef.features[first:last] - rows.start] = coef.weights[first:last]
        if dense.dtype == self.dtype:
            return dense[:, at[1]]
        with np.errstate(over="ignore"):
            rounded = dense[:, at[1]].astype(self.dtype)
        _check_range(rounded, dense, self.dtype)
        return rounded


def dense_pieces(coef: StoredCoef) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each piece of the coefficients, and the piece as a dense array."""
    dense, (n_features, n_classes) = DenseRows(coef, coef.dtype), coef.shape
    step = max(1, _PIECE // (max(n_classes, 1) * coef.dtype.itemsize))
    for begin in range(0, n_features, step):
        yield begin, dense[begin : min(begin + step, n_features), :]


def as_matrix(coef: StoredCoef) -> Any:
    """Stored coefficients as an array, or, if they are not stored densely, as a scipy.sparse.csr_array."""
    if isinstance(coef, np.ndarray):
        return coef
    import scipy.sparse

    if isinstance(coef, SparseCoef):
        return scipy.sparse.csr_array(coef[:3], shape=coef.shape)
    features, weights, n_features = coef
    n_rows, k = weights.shape
    lengths = np.zeros(n_features, np.int64)
    lengths[features] = k
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.tile(np.arange(k, dtype=np.int32), n_rows)
    return scipy.sparse.csr_array((weights.reshape(-1), columns, indptr), shape=coef.shape)


class Coefficients(NamedTuple):
    """The coefficients of a model: ``current - average_scale * average_delta``, in the order of `columns`."""

    current: Any  # (n_features, K): an array, or what gives one for a slice of rows and one of columns
    average_delta: Any  # the same, or None
    average_scale: float
    columns: np.ndarray  # (n_classes,) int64, of `current`
    dirty: np.ndarray | None  # (n_features, 2): zero for features whose weights are zero, and are not read
    shared_column: int | None = None  # of which each of the n classes has 1/n
    transitions: np.ndarray | None = None  # (n_classes, n_classes): scores of classes that follow a class
    prune: float = 0.0  # coefficients of at most this absolute value become 0
    half: bool = False  # whether they are rounded to float16, and stored so

    def without_last(self, n: int) -> Coefficients:
        """The coefficients without the last `n` rows, which become the transitions; 0 is for none."""
        if n == 0:
            return self
        cut = len(self.current) - n
        delta = None if self.average_delta is None else self.average_delta[:cut]
        transitions = self.current[cut:].astype(np.float64)
        if self.average_delta is not None:
            transitions -= self.average_scale * self.average_delta[cut:].astype(np.float64)
        return self._replace(
            current=self.current[:cut],
            average_delta=delta,
            dirty=None if self.dirty is None else self.dirty[:cut],
            transitions=np.ascontiguousarray(transitions[:, self.columns], self.current.dtype),
        )

    def arrays(self) -> np.ndarray | SparseCoef:
        """The coefficients in memory: a matrix, or sparse if the weights are."""
        from streamsvm.kernels.sparse_coef import compress_rows

        n_features, n_classes, dtype = self.current.shape[0], len(self.columns), self.current.dtype
        if isinstance(self.current, np.ndarray):
            return np.concatenate(
                [np.zeros((0, n_classes), dtype), *(piece.copy() for piece in self.pieces())]
            )
        data, indices = [np.zeros(0, dtype)], [np.zeros(0, _INDICES)]
        indptr, at, nnz = np.zeros(n_features + 1, _INDPTR), 1, 0
        for piece in self.pieces():
            found, places = np.empty(piece.size, dtype), np.empty(piece.size, _INDICES)
            ends = indptr[at : at + len(piece)]
            size = compress_rows(piece, found, places, ends)
            ends += nnz
            nnz, at = nnz + size, at + len(piece)
            data.append(found[:size].copy())
            indices.append(places[:size].copy())
        return SparseCoef(np.concatenate(data), np.concatenate(indices), indptr, n_classes)

    def pieces(self) -> Iterator[np.ndarray]:
        """The coefficients, a few rows at a time, in an array that may be used again.

        Raises `ModelError` if one is too large for the type that it is stored in.
        """
        for piece in self._exact_pieces():
            if self.prune > 0:
                piece = np.where(np.abs(piece) > self.prune, piece, piece.dtype.type(0))
            if self.half:
                with np.errstate(over="ignore"):
                    rounded = piece.astype(_HALF).astype(piece.dtype)
                _check_range(rounded, piece, _HALF)
                piece = rounded
            yield piece

    def _exact_pieces(self) -> Iterator[np.ndarray]:
        from streamsvm.kernels.sparse_coef import gather_rows

        n_features, n_classes = self.current.shape[0], len(self.columns)
        step = max(1, _PIECE // (max(n_classes, 1) * self.current.dtype.itemsize))
        columns = self.columns
        if self.shared_column is not None:
            columns = np.append(columns, self.shared_column)
        buffer = np.empty((min(step, n_features), len(columns)), self.current.dtype)
        none_dirty = np.zeros((0, 2), np.uint64)
        for begin in range(0, n_features, step):
            rows = slice(begin, min(begin + step, n_features))
            current = np.ascontiguousarray(self.current[rows, :])
            delta = self.average_delta
            delta = current[:0] if delta is None else np.ascontiguousarray(delta[rows, :])
            dirty = none_dirty if self.dirty is None else self.dirty[rows]
            piece = buffer[: rows.stop - begin]
            scale = current.dtype.type(self.average_scale)
            gather_rows(current, delta, scale, columns, dirty, piece)
            if self.shared_column is None:
                yield piece
            else:
                yield piece[:, :-1] + piece[:, -1:] / n_classes


def _check_range(found: np.ndarray, wanted: np.ndarray, dtype: np.dtype) -> None:
    """Raise `ModelError` if `found`, which is `wanted` in `dtype`, is infinite."""
    if not np.isfinite(found).all():
        largest, most = float(np.abs(wanted).max()), float(np.finfo(dtype).max)
        raise ModelError(
            f"a coefficient is {largest:.6g}, and {dtype} holds up to {most:.6g}; store them in another type"
        )


def write_coef(folder: Path, coefficients: Coefficients, *, smallest: bool = False) -> dict[str, Any]:
    """Write `coefficients` into `folder`, not dense if that is much smaller; return their record's entries.

    If `smallest`, in the layout of the fewest bytes; by default not in one that saves little, and takes
    longer to score with.
    """
    n_features, n_classes = coefficients.current.shape[0], len(coefficients.columns)
    dtype = _HALF if coefficients.half else coefficients.current.dtype
    stored: dict[str, Any] = {format.STORED_DTYPE: str(_HALF)} if coefficients.half else {}
    kind = format.index_dtype(n_features)
    dense_bytes, bytes_of_row = n_features * n_classes * dtype.itemsize, n_classes * dtype.itemsize
    bytes_of_row += kind.itemsize
    most = min(dense_bytes if smallest else dense_bytes // 2, dense_bytes - _LEAST_SAVED)
    used = _rows_in_use(coefficients, most // bytes_of_row)
    if smallest or n_classes >= _LEAST_CLASSES:
        most = (dense_bytes if used is None else len(used) * bytes_of_row) * (
            1.0 if smallest else _MOST_BYTES
        )
        written = _write_sparse(folder, coefficients, dtype, most)
        if written is not None:
            return {**stored, **written}
        for name in format.SPARSE_COEF.values():
            (folder / name).unlink()
    n_rows, begin, crc = n_features if used is None else len(used), 0, 0
    with (folder / format.COEF).open("wb") as file:
        _write_header(file, dtype, (n_rows, n_classes))
        for piece in coefficients.pieces():
            end = begin + len(piece)
            if used is not None:
                first, last = np.searchsorted(used, [begin, end])
                piece = piece[used[first:last] - begin]
            content = np.ascontiguousarray(piece, dtype)
            crc = zlib.crc32(content.data, crc)
            file.write(content.data)
            begin = end
    if used is None:
        return {**stored, "layout": format.DENSE, "coef_crc32": crc}
    rows_crc = write_array(folder / format.COEF_ROWS, used.astype(kind))
    return {**stored, "layout": format.ROWS, "n_rows": n_rows, "coef_crc32": {"rows": rows_crc, "coef": crc}}


def _rows_in_use(coefficients: Coefficients, most: int) -> np.ndarray | None:
    """The features with a coefficient other than 0: int64, increasing; None if they are more than `most`."""
    found, begin, n = [np.zeros(0, np.int64)], 0, 0
    if most < 0:
        return None
    for piece in coefficients.pieces():
        found.append(begin + np.flatnonzero(piece.any(axis=1)))
        begin, n = begin + len(piece), n + len(found[-1])
        if n > most:
            return None
    return np.concatenate(found)


def _write_sparse(
    folder: Path, coefficients: Coefficients, stored: np.dtype, most: float
) -> dict[str, Any] | None:
    """Write sparse coefficients; None, and what was written is of no use, if they take `most` bytes."""
    from streamsvm.kernels.sparse_coef import compress_rows

    dtype, n_features = coefficients.current.dtype, coefficients.current.shape[0]
    most -= _INDPTR.itemsize * (n_features + 1)
    crcs, nnz = dict.fromkeys(format.SPARSE_COEF, 0), 0
    with contextlib.ExitStack() as stack:
        opened = {
            name: stack.enter_context((folder / path).open("wb")) for name, path in format.SPARSE_COEF.items()
        }
        shapes = {"data": (stored, 0), "indices": (_INDICES, 0), "indptr": (_INDPTR, n_features + 1)}

        def append(**arrays: np.ndarray) -> None:
            for name, array in arrays.items():
                crcs[name] = zlib.crc32(array.data, crcs[name])
                opened[name].write(array.data)

        for name, (kind, length) in shapes.items():
            _write_header(opened[name], kind, (length,))
        append(indptr=np.zeros(1, _INDPTR))
        for piece in coefficients.pieces():
            data, indices = np.empty(piece.size, dtype), np.empty(piece.size, _INDICES)
            ends = np.empty(len(piece), _INDPTR)
            size = compress_rows(piece, data, indices, ends)
            append(data=data[:size].astype(stored, copy=False), indices=indices[:size], indptr=nnz + ends)
            nnz += size
            if nnz * (stored.itemsize + _INDICES.itemsize) > most:
                return None
        for name in ("data", "indices"):  # NumPy leaves room in the header for any length
            opened[name].seek(0)
            _write_header(opened[name], shapes[name][0], (nnz,))
    return {"layout": format.SPARSE, "nnz": nnz, "coef_crc32": crcs}


def _write_header(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(file, header)


def open_coef(folder: Path, record: dict[str, Any]) -> StoredCoef:
    """The coefficients as read-only maps, checked against the model's record.

    Those stored in float16 are read into memory, in the type of the scores.

    Raises `ModelError` if they are damaged, and `KeyError` or `TypeError` if the record does not fit them.
    """
    shape, dtype = (record["n_features"], len(record["classes"])), np.dtype(record["dtype"])
    crc, layout = record["coef_crc32"], record["layout"]
    stored = np.dtype(record.get(format.STORED_DTYPE, dtype))
    if stored not in (dtype, _HALF):
        raise TypeError("unknown type")

    def map_values(name: str, shape: tuple[int, ...], crc: object) -> np.ndarray:
        values = map_array(folder / name, shape, stored, crc)
        if stored != dtype:
            values = values.astype(dtype)
            values.flags.writeable = False
        return values

    if layout == format.DENSE:
        return map_values(format.COEF, shape, crc)
    if layout == format.ROWS:
        return _open_rows(folder, record, shape, map_values)
    from streamsvm.kernels.sparse_coef import are_sorted_rows

    nnz = record["nnz"]
    if layout != format.SPARSE or type(nnz) is not int or nnz < 0:
        raise TypeError("unknown layout")
    data = map_values(format.SPARSE_COEF["data"], (nnz,), crc["data"])
    wanted: dict[str, tuple[int, np.dtype[Any]]]
    wanted = {"indices": (nnz, _INDICES), "indptr": (shape[0] + 1, _INDPTR)}
    paths = {name: folder / format.SPARSE_COEF[name] for name in wanted}
    arrays = {name: map_array(paths[name], (n,), kind, crc[name]) for name, (n, kind) in wanted.items()}
    # The checksums find damage; this finds what was never ours. Compiled code trusts the numbers.
    if not are_sorted_rows(arrays["indices"], arrays["indptr"], shape[1]):
        raise ModelError(
            f"{paths['indptr']} is damaged: with {paths['indices'].name} it is no matrix of "
            f"{shape[1]:,} classes"
        )
    return SparseCoef(data, **arrays, n_classes=shape[1])


def _open_rows(
    folder: Path, record: dict[str, Any], shape: tuple[int, int], map_values: Callable[..., np.ndarray]
) -> RowsInUse:
    n_rows, crc, path = record["n_rows"], record["coef_crc32"], folder / format.COEF_ROWS
    if type(n_rows) is not int or n_rows < 0:
        raise TypeError("no number of rows")
    features = map_array(path, (n_rows,), format.index_dtype(shape[0]), crc["rows"])
    inside = n_rows == 0 or (features[0] >= 0 and features[-1] < shape[0])
    if not (inside and bool((features[1:] > features[:-1]).all())):
        raise ModelError(f"{path} is damaged: it does not list features of the model in increasing order")
    return RowsInUse(features, map_values(format.COEF, (n_rows, shape[1]), crc["coef"]), shape[0])


def write_array(path: Path, array: np.ndarray) -> int:
    """Write an array as `map_array` reads it, and return its CRC-32."""
    array = np.ascontiguousarray(array)
    with path.open("wb") as file:
        _write_header(file, array.dtype, array.shape)
        file.write(array.data)
    return array_crc(array)


def array_crc(array: np.ndarray) -> int:
    """The CRC-32 of an array's values, in C order."""
    return zlib.crc32(np.ascontiguousarray(array).data)


def map_array(path: Path, shape: tuple[int, ...], dtype: np.dtype, crc: object) -> np.ndarray:
    """A read-only map of the array in a file; raises `ModelError` if it is another, or damaged."""
    with durable.open_file(path, follow=True) as file:
        begin = io.BytesIO(file.read(_HEADER))  # NumPy would make room for a header of any length it claims
    with warnings.catch_warnings(action="ignore"):
        try:
            version = np.lib.format.read_magic(begin)
            found = np.lib.format.read_array_header_2_0(begin) if version == (2, 0) else None
        except Exception:  # NumPy's parser raises whatever Python's own does: TokenError, SyntaxError, ...
            found = None
        offset = begin.tell()
    n = 1
    for length in shape:  # in Python's numbers, which have no end
        n *= length
    if found != (shape, False, dtype) or path.stat().st_size != offset + n * dtype.itemsize:
        raise ModelError(f"{path} is damaged: it is not the array that model.json describes")
    array = np.zeros(0, dtype)
    if n:
        with durable.open_file(path, follow=True) as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        array = np.frombuffer(mapped, dtype, n, offset)
    content, computed = array.view(np.uint8), 0
    for at in range(0, len(content), _PIECE):
        computed = zlib.crc32(content[at : at + _PIECE].data, computed)
    if computed != crc:
        raise ModelError(f"{path} is damaged: its checksum does not match")
    if n:
        mapped.madvise(mmap.MADV_RANDOM)  # from here on, rows are looked up in no order
    array.flags.writeable = False  # one type for compiled code, empty or not
    return array.reshape(shape)
