"""Store the coefficients of a model in memory and on disk: dense, dense without zero rows, or CSR.

Rare features have only a few non-zero weights: in a model with 77,000 features and 1,000 classes, 6 % of all
weights were non-zero. Such weights are stored as a CSR matrix with one row per feature. If most features do
not occur, as with hashing, only the non-zero rows are stored, as a dense array with a list of features.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base import format
from streamsvm.data.checks import find_index_violation
from streamsvm.errors import ModelError
from streamsvm.model.saved_files import SavedFiles, write_array, write_header

_PIECE_SIZE = 2**20
_INT32, _INT64 = np.dtype("<i4"), np.dtype("<i8")
# The sparse layout is used if its size is at most this fraction of the dense size. Scoring then took 0.5 to 2
# times as long as with a dense array (wn1000, 1,000 classes). With a fraction of 0.5, it took 2 to 3 times.
_MAX_SPARSE_SHARE = 0.25
_MIN_SPARSE_CLASSES = 64  # with fewer classes, rows are so short that the cost of their indices dominates
# By default, zero rows are left out only if that saves at least half of the size and at least this many
# bytes, because scoring must then look up the stored row of each feature.
_MIN_SAVED_BYTES = 2**16
_FLOAT16 = np.dtype(np.float16)


class SparseCoef(NamedTuple):
    """CSR matrix of coefficients, shape (n_features, n_classes)."""

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

    def dense(self, begin: int, end: int) -> np.ndarray:
        result = np.zeros((end - begin, self.n_classes), self.dtype)
        ends = self.indptr[begin : end + 1]
        part = slice(int(ends[0]), int(ends[-1]))
        result[np.repeat(np.arange(len(result)), np.diff(ends)), self.indices[part]] = self.data[part]
        return result

    def matrix(self) -> Any:
        import scipy.sparse

        return scipy.sparse.csr_array(self[:3], shape=self.shape)


class DenseCoef(NamedTuple):
    """Dense coefficients, shape (n_features, n_classes); rows of zeros may be left out."""

    weights: np.ndarray  # (n, n_classes)
    n_features: int
    features: np.ndarray | None = None  # (n,) int32 or int64, increasing; None if all features are stored

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_features, self.weights.shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.weights.dtype

    def dense(self, begin: int, end: int) -> np.ndarray:
        if self.features is None:
            return self.weights[begin:end]
        result = np.zeros((end - begin, self.shape[1]), self.dtype)
        first, last = np.searchsorted(self.features, [begin, end])
        result[self.features[first:last] - begin] = self.weights[first:last]
        return result

    def matrix(self) -> Any:
        if self.features is None:
            return self.weights
        import scipy.sparse

        n, k = self.weights.shape
        lengths = np.zeros(self.n_features, np.int64)
        lengths[self.features] = k
        indptr, columns = np.concatenate([[0], np.cumsum(lengths)]), np.tile(np.arange(k, dtype=np.int32), n)
        return scipy.sparse.csr_array((self.weights.reshape(-1), columns, indptr), shape=self.shape)


StoredCoef = DenseCoef | SparseCoef


class Coefficients(NamedTuple):
    """Coefficients of a model: the columns `columns` of ``current - average_scale * average_delta``."""

    current: Any  # (n_features, K), K including padding: an array, or an object like `StoredCoef`
    columns: np.ndarray  # (n_classes,) int64: column of `current` for each class
    average_delta: np.ndarray | None = None  # (n_features, K); only if `current` is an array
    average_scale: float = 0.0
    used: np.ndarray | None = None  # (n, 2): ascending ranges of features; other rows are 0 and are not read
    shared_column: int | None = None  # column to divide by the number of classes and add to each class
    transitions: np.ndarray | None = None  # (n_classes, n_classes): (a, b) is the score of b after class a
    prune: float = 0.0  # coefficients of at most this absolute value become 0
    rounded: np.dtype | None = None  # float16 or float32: type to round to and to store

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32) if self.file_dtype == _FLOAT16 else self.file_dtype

    @property
    def file_dtype(self) -> np.dtype:
        return self.current.dtype if self.rounded is None else self.rounded

    def without_last(self, n: int) -> Coefficients:
        """Return the coefficients with the last `n` rows, if any, moved to `transitions`."""
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
            used=None if self.used is None else np.minimum(self.used, cut),
            transitions=np.ascontiguousarray(transitions[:, self.columns], self.current.dtype),
        )

    def stored(self) -> StoredCoef:
        """Return a copy in memory, which is dense if `current` is an array, and otherwise sparse."""
        n_features, n_classes = self.current.shape[0], len(self.columns)
        if isinstance(self.current, np.ndarray):
            pieces = [np.zeros((0, n_classes), self.dtype), *(piece.copy() for piece in self.pieces())]
            return DenseCoef(np.concatenate(pieces), n_features)
        parts = [(np.zeros(0, self.dtype), np.zeros(0, _INT32), np.zeros(1, _INT64))]
        parts += [(data.copy(), indices.copy(), ends) for data, indices, ends in self.sparse_pieces()]
        data, indices, indptr = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return SparseCoef(data, indices, indptr, n_classes)

    def sparse_pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield `data`, `indices` and the row ends of a CSR matrix, a few rows at a time."""
        from streamsvm.kernels.sparse_coef import compress_rows

        nnz = 0
        for piece in self.pieces():
            data, indices = np.empty(piece.size, self.dtype), np.empty(piece.size, _INT32)
            ends = np.empty(len(piece), _INT64)
            size = compress_rows(piece, data, indices, ends)
            yield data[:size], indices[:size], nnz + ends
            nnz += size

    def pieces(self) -> Iterator[np.ndarray]:
        """Yield rows in pieces, in a reused array; raise `ModelError` if values overflow `file_dtype`."""
        for piece in self._exact_pieces():
            piece = _round(piece, self.dtype)
            if self.prune > 0:
                piece = np.where(np.abs(piece) > self.prune, piece, piece.dtype.type(0))
            yield _round(piece, self.file_dtype).astype(self.dtype, copy=False)

    def _exact_pieces(self) -> Iterator[np.ndarray]:
        from streamsvm.kernels.sparse_coef import gather_rows

        n_features, n_classes = self.current.shape[0], len(self.columns)
        step = max(1, _PIECE_SIZE // (max(n_classes, 1) * self.dtype.itemsize))
        columns, is_array = self.columns, isinstance(self.current, np.ndarray)
        if self.shared_column is not None:
            columns = np.append(columns, self.shared_column)
        buffer = np.empty((min(step, n_features), len(columns)), self.current.dtype)
        used = np.array([[0, n_features]]) if self.used is None else self.used
        for begin in range(0, n_features, step):
            end = min(begin + step, n_features)
            piece = buffer[: end - begin]
            piece[:] = 0
            first, last = np.searchsorted(used[:, 1], begin, "right"), np.searchsorted(used[:, 0], end)
            for rows in (slice(*bounds) for bounds in np.clip(used[first:last], begin, end).tolist()):
                values = self.current[rows] if is_array else self.current.dense(rows.start, rows.stop)
                current = np.ascontiguousarray(values)
                delta = self.average_delta
                delta = current[:0] if delta is None else np.ascontiguousarray(delta[rows])
                scale = current.dtype.type(self.average_scale)
                gather_rows(current, delta, scale, columns, piece[rows.start - begin : rows.stop - begin])
            if self.shared_column is None:
                yield piece
            else:
                yield piece[:, :-1] + piece[:, -1:] / n_classes


def _round(piece: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if piece.dtype == dtype:
        return piece
    with np.errstate(over="ignore"):
        rounded = piece.astype(dtype)
    if not np.isfinite(rounded).all():
        largest, maximum = float(np.abs(piece).max()), float(np.finfo(dtype).max)
        raise ModelError(
            f"a coefficient is {largest:.6g}, but the maximum of {dtype} is {maximum:.6g}; use a wider dtype"
        )
    return rounded


def write_coef(folder: Path, coefficients: Coefficients, *, smallest: bool = False) -> dict[str, Any]:
    """Write `coefficients` into `folder`; return the entries of ``model.json`` that describe their layout.

    The layout is dense, which is the fastest for scoring, unless another layout is much smaller. If
    `smallest` is True, the layout with the fewest bytes is chosen.
    """
    n_features, n_classes = coefficients.current.shape[0], len(coefficients.columns)
    dtype = coefficients.file_dtype
    stored: dict[str, Any] = {format.STORED_DTYPE: str(_FLOAT16)} if dtype == _FLOAT16 else {}
    index_type, row_bytes = format.index_dtype(n_features), n_classes * dtype.itemsize
    n_bytes = n_features * row_bytes
    max_bytes = min(n_bytes if smallest else n_bytes // 2, n_bytes - _MIN_SAVED_BYTES)
    used, nnz = _measure(coefficients, max_bytes // (row_bytes + index_type.itemsize))
    if used is not None:
        n_bytes = len(used) * (row_bytes + index_type.itemsize)
    fraction = 1.0 if smallest else _MAX_SPARSE_SHARE * (n_classes >= _MIN_SPARSE_CLASSES)
    if nnz * (dtype.itemsize + _INT32.itemsize) + (n_features + 1) * _INT64.itemsize <= fraction * n_bytes:
        _write_sparse(folder, coefficients, dtype, nnz)
        return {**stored, "layout": format.SPARSE}
    n_rows, begin = n_features if used is None else len(used), 0
    with (folder / format.COEF).open("wb") as file:
        write_header(file, dtype, (n_rows, n_classes))
        for piece in coefficients.pieces():
            end = begin + len(piece)
            if used is not None:
                first, last = np.searchsorted(used, [begin, end])
                piece = piece[used[first:last] - begin]
            file.write(np.ascontiguousarray(piece, dtype).data)
            begin = end
    if used is None:
        return {**stored, "layout": format.DENSE}
    write_array(folder / format.COEF_ROWS, used.astype(index_type))
    return {**stored, "layout": format.ROWS}


def _measure(coefficients: Coefficients, max_features: int) -> tuple[np.ndarray | None, int]:
    """Return the features with non-zeros, or None if over `max_features`, and the number of sparse values."""
    from streamsvm.kernels.sparse_coef import FULL

    features, n, nnz, begin, k = [np.zeros(0, np.int64)], 0, 0, 0, len(coefficients.columns)
    for piece in coefficients.pieces():
        counts = np.count_nonzero(piece, axis=1)
        n += int(np.count_nonzero(counts))
        if n <= max_features:
            features.append(begin + np.flatnonzero(counts))
        nnz += int(np.where(counts * FULL > k, k, counts).sum())
        begin += len(piece)
    return np.concatenate(features) if n <= max_features else None, nnz


def _write_sparse(folder: Path, coefficients: Coefficients, stored: np.dtype, nnz: int) -> None:
    length = coefficients.current.shape[0] + 1
    arrays: dict[str, tuple[np.dtype, int]] = {
        "data": (stored, nnz), "indices": (_INT32, nnz), "indptr": (_INT64, length),
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        opened = []
        for name, (kind, n) in arrays.items():
            opened.append(stack.enter_context((folder / format.SPARSE_COEF[name]).open("wb")))
            write_header(opened[-1], kind, (n,))
        opened[-1].write(np.zeros(1, _INT64).data)
        for data, indices, ends in coefficients.sparse_pieces():
            for file, array in zip(opened, (data.astype(stored, copy=False), indices, ends), strict=True):
                file.write(array.data)


def open_coef(files: SavedFiles, record: dict[str, Any]) -> StoredCoef:
    """Memory-map the coefficients read-only, and check them against the model's record.

    Float16 coefficients are loaded into memory and converted to the dtype of the scores. Raises `ModelError`
    if the files are damaged, and `KeyError` or `TypeError` if the record is not valid.
    """
    (n_features, n_classes), dtype = (record["n_features"], len(record["classes"])), np.dtype(record["dtype"])
    layout, stored = record["layout"], np.dtype(record.get(format.STORED_DTYPE, dtype))
    if stored not in (dtype, _FLOAT16) or layout not in (format.DENSE, format.ROWS, format.SPARSE):
        raise TypeError("unknown type or layout")

    def values(name: str, *shape: int) -> np.ndarray:
        array = files.array(name, shape, stored)
        if stored != dtype:
            array = array.astype(dtype)
            array.flags.writeable = False
        return array

    if layout == format.DENSE:
        return DenseCoef(values(format.COEF, n_features, n_classes), n_features)
    # Checksums do not detect forged files, and kernels use these indices without bounds checks.
    if layout == format.ROWS:
        features = files.array(format.COEF_ROWS, (-1,), format.index_dtype(n_features))
        in_range = not len(features) or (features[0] >= 0 and features[-1] < n_features)
        if not (in_range and (features[1:] > features[:-1]).all()):
            raise ModelError(
                f"{files.folder / format.COEF_ROWS} is damaged: its entries are not features of the "
                "model in increasing order"
            )
        return DenseCoef(values(format.COEF, len(features), n_classes), n_features, features)
    names = format.SPARSE_COEF
    data = values(names["data"], -1)
    indices = files.array(names["indices"], data.shape, _INT32)
    indptr = files.array(names["indptr"], (n_features + 1,), _INT64)
    is_valid = indptr[0] == 0 and indptr[-1] == len(indices) and (indptr[1:] >= indptr[:-1]).all()
    if not is_valid or find_index_violation(indices, indptr, n_classes, "class") is not None:
        raise ModelError(
            f"{files.folder / names['indptr']} is damaged: with {names['indices']}, it does not describe a "
            f"matrix with {n_classes:,} classes"
        )
    return SparseCoef(data, indices, indptr, n_classes)
