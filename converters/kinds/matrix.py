"""Reader of matrices in ``.npz`` and ``.npy`` files; their labels are in another array or file."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import NO_NORMS, Features, Reader, TableCounts, without_zeros
from streamsvm_converters.label_codes import MISSING, LabelCodes
from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.position import InputFile
from streamsvm_converters.sorted_rows import CsrRows, MatrixEntries, sorted_rows

from streamsvm.base.durable import open_file, os_errors_as
from streamsvm.base.format import CHUNK_NNZ, UNSEEN_LABEL, index_dtype
from streamsvm.base.text import printable
from streamsvm.data.checks import first_outside, is_monotonic
from streamsvm.data.rows import Rows, kept_rows
from streamsvm.data.statistics import is_mostly_filled
from streamsvm.errors import InputError, Option, Remedy, SettingsError
from streamsvm.store.array_file import load_array
from streamsvm.store.container import StoredArray
from streamsvm.store.label_file import missing_labels, names_of_lines
from streamsvm.store.list_file import ListFile

_VALUES_PER_READ = 2**20  # of rows read at a time
_SPARSE = ("csr", "csc", "coo")


class MatrixReader(Reader):
    """Reader of sparse and dense matrices, whose columns are features without names."""

    what = "a matrix"
    counts: TableCounts
    _labels: LabelCodes

    def __init__(self, inputs: list[str | Path], options: ReadOptions) -> None:
        super().__init__(inputs, options)
        if options.labels is not None and options.label is not None:
            raise SettingsError("labels are given twice: by label and by labels", setting="labels")
        if options.labels is not None and len(inputs) > 1:
            raise InputError("labels in a file of their own are for one matrix; convert one at a time")
        like = options.like
        if like is not None and not like.has_plain_features:
            raise InputError(
                f"the features of {like.path} are columns of a table; give a table with the same columns"
            )
        self._labels = self._label_codes(options.memory // 4)
        self._width: int | None = None
        if like is not None and not like.takes_any_feature:
            self._width = like.n_features
        self.dense = all(self._is_dense(Path(path)) for path in inputs)

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        number = 0
        total = sum(Path(path).stat().st_size for path in self.inputs)
        for path in map(Path, self.inputs):
            with contextlib.ExitStack() as stack:
                folder = self._folder(stack)
                matrix, arrays = self._opened(path, folder, stack)
                labels = self._labels_of(path, matrix, arrays) if self.options.labelled else None
                self._check_width(path, matrix.shape[1])
                for part in matrix.parts(folder, self.options, str(path), dense=self.dense):
                    batch = self._batch(path, part, number, labels)
                    if batch is not None:
                        yield batch
                    if self.options.progress is not None:
                        share = (part.start + len(part.indptr) - 1) / max(1, matrix.shape[0])
                        done = self.counts.bytes_read + int(path.stat().st_size * share)
                        self.options.progress(done, total)
                number += matrix.shape[0]
            self.sources.append(InputFile.of(path))
            self.counts.bytes_read += path.stat().st_size
        self.counts.unseen_labels = self._labels.unseen

    def features(self) -> Features:
        like = self.options.like
        assert self._width is not None
        if like is None or like.takes_any_feature:
            return Features(self._width)
        if like.names is not None:
            self.notes.append(
                f"{self.inputs[0]} does not name its features, and {like.path} does: taken in that order"
            )
        return Features(self._width, index_base=like.index_base, names=like.names)

    # ----------------------------------------------------------------------------------------------

    def _folder(self, stack: contextlib.ExitStack) -> Path:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.options.folder)))

    def _is_dense(self, path: Path) -> bool:
        """Return True if the matrix of a file is dense, mostly not 0, and has all features."""
        like = self.options.like
        with contextlib.ExitStack() as stack:
            if _is_zip(path):
                with zipfile.ZipFile(path) as archive:
                    if "format.npy" in archive.namelist():  # sparse: need not be unpacked
                        return False
            matrix, _ = self._opened(path, self._folder(stack), stack)
            width = matrix.shape[1]
            if like is not None and (like.takes_any_feature or like.n_features != width):
                return False
            return matrix.is_mostly_filled() and width <= CHUNK_NNZ

    def _opened(
        self, path: Path, folder: Path, stack: contextlib.ExitStack
    ) -> tuple[_Matrix, Mapping[str, np.ndarray]]:
        """Return the matrix of a file, which is open as long as `stack`, and its arrays by name."""
        arrays = _unpacked(path, folder) if _is_zip(path) else {"": load_array(path)}
        return _matrix(path, arrays), arrays

    def _labels_of(self, path: Path, matrix: _Matrix, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the labels of a matrix: those of the file of labels, or one of its arrays."""
        if self.options.labels is not None:
            labels, where = self._read_labels(Path(self.options.labels)), str(self.options.labels)
        elif self.options.label is not None:
            if self.options.label not in arrays:
                names = ", ".join(map(repr, arrays)) if "" not in arrays else "one array, without a name"
                raise InputError(f"{path} has no array {self.options.label!r}; it has {names}")
            labels, where = arrays[self.options.label], f"{path}, array {self.options.label!r}"
        else:
            raise missing_labels(path)
        if labels.ndim != 1 or len(labels) != matrix.shape[0]:
            raise InputError(
                f"{where}: labels of shape {labels.shape} for the {matrix.shape[0]:,} rows of {path}"
            )
        self.has_texts |= labels.dtype.kind in "US"
        return labels

    def _read_labels(self, path: Path) -> np.ndarray:
        """Return the labels in an .npy file, or in the lines of a text file, spelled as in LIBSVM text."""
        with os_errors_as(InputError, path, "read"), open_file(path, follow=True) as file:
            is_array = file.read(6) == b"\x93NUMPY"  # not of a pipe, which could not be read twice
        if is_array:
            return load_array(path)
        with Input(path) as text:
            content = b"".join(iter(lambda: text.read(2**20), b""))
        try:
            lines = [line.strip() for line in content.decode("utf-8-sig").splitlines()]
        except UnicodeDecodeError:
            raise InputError(f"{path} is not UTF-8 text; give one label a line, or an .npy array") from None
        if self.options.labels_as != "text":
            known = set() if self.options.like is None else set(self.options.like.classes)
            return names_of_lines(lines, known)
        return np.array(lines, dtype=object)

    def _check_width(self, path: Path, width: int) -> None:
        like = self.options.like
        if self._width is None or (like is not None and like.takes_any_feature):
            self._width = max(width, self._width or 0)
        elif width != self._width and (like is None or width > self._width):
            other = self.inputs[0] if like is None else like.path
            raise InputError(f"{path} has {width:,} columns, and {other} has {self._width:,} features")

    def _batch(
        self, path: Path, part: CsrRows, number: int, labels: np.ndarray | None
    ) -> tuple[Rows, np.ndarray] | None:
        """Return the rows to keep of a part of a file, and their numbers; its first row is `number`."""
        start, data, indices, indptr = part
        n = len(indptr) - 1
        where = lambda row: f"{path}, row {start + row + 1:,}"  # noqa: E731
        codes = np.full(n, UNSEEN_LABEL, np.int32)
        if labels is not None:
            distinct, at = np.unique(np.asarray(labels[start : start + n]), return_inverse=True)
            try:
                values = distinct.tolist()
            except (ValueError, SystemError):
                raise InputError(f"{where(0)}: the labels from here on are no text of Unicode") from None
            codes = self._labels.encode(values, at.ravel(), where)
        kept = codes != MISSING
        self.counts.unlabelled += int(np.count_nonzero(~kept))
        finite = np.isfinite(data)
        if not finite.all():
            bad = np.unique(np.searchsorted(indptr, np.flatnonzero(~finite), "right") - 1)
            for row in bad[kept[bad]].tolist():
                place = int(indptr[row] + np.argmin(finite[indptr[row] : indptr[row + 1]]))
                column = place - indptr[row] if indices is None else indices[place]
                message = f"{where(row)}, column {column + 1:,}: {data[place]} is not finite in {data.dtype}"
                if self.options.on_error == "raise":
                    raise InputError(
                        message, remedy=Remedy("leave out such rows with {}", Option("on_error", "skip"))
                    )
                self.counts.skip(message)
            kept[bad] = False
        rows = without_zeros(kept_rows(Rows(data, indices, indptr, codes, NO_NORMS), kept))
        self.counts.add(rows)
        return (rows, number + start + np.flatnonzero(kept)) if rows.n_rows else None


class ListReader(MatrixReader):
    """Reader of the column of lists of numbers of a Parquet or Arrow file; other columns may be labels."""

    def _opened(
        self, path: Path, folder: Path, stack: contextlib.ExitStack
    ) -> tuple[_Matrix, Mapping[str, np.ndarray]]:
        file = stack.enter_context(contextlib.closing(ListFile(path)))
        array = file.array("X", axes=2)
        note = f"the features are the numbers of the column {file.column!r}, and no others"
        self.notes += [note] * (note not in self.notes)
        label = self.options.label
        labels = {} if label is None or not self.options.labelled else {label: file.labels(label)}
        return _Matrix((array.length, array.columns or 0), "dense", {"data": array}), labels


class _Matrix:
    """Matrix whose rows are read in parts: dense, or in one of SciPy's formats."""

    def __init__(self, shape: tuple[int, int], kind: str, arrays: Mapping[str, Any]) -> None:
        self.shape, self._kind, self._arrays = shape, kind, arrays

    def is_mostly_filled(self) -> bool:
        return self._kind == "dense" and is_mostly_filled(self.shape, lambda *rows: [self._dense_part(*rows)])

    def parts(self, folder: Path, options: ReadOptions, where: str, *, dense: bool) -> Iterator[CsrRows]:
        """Yield all rows; temporary files are in `folder`.

        If `dense`, as the matrix must then be, there are no indices.
        """
        with np.errstate(over="ignore"):  # what becomes infinite is refused, or left out
            if self._kind in ("dense", "csr"):
                yield from self._by_rows(np.dtype(options.dtype), where, dense)
                return
            yield from sorted_rows(self._entries, self.shape, options.dtype, folder, options.memory // 4)

    def _dense_part(self, start: int, stop: int) -> np.ndarray:
        data = self._arrays["data"]
        return data.read(start, stop) if isinstance(data, StoredArray) else np.asarray(data[start:stop])

    def _by_rows(self, dtype: np.dtype, where: str, dense: bool) -> Iterator[CsrRows]:
        import scipy.sparse

        (n, d), is_dense = self.shape, self._kind == "dense"
        start = 0
        while start < n:
            if is_dense:
                most = start + _VALUES_PER_READ // max(d, 1)
            else:
                offsets = self._arrays["indptr"]
                most = int(np.searchsorted(offsets, offsets[start] + _VALUES_PER_READ, "right")) - 1
            stop = min(max(most, start + 1), start + _VALUES_PER_READ, n)
            part: Any
            if is_dense:
                part = self._dense_part(start, stop).astype(dtype, order="C")
            else:
                own = np.asarray(offsets[start : stop + 1]).astype(np.int64)
                values = slice(int(own[0]), int(own[-1]))
                found = np.asarray(self._arrays["indices"][values])
                _check_range(found, d, "column", where)
                data = np.asarray(self._arrays["data"][values]).astype(dtype)
                part = scipy.sparse.csr_array((data, found, own - own[0]), shape=(stop - start, d))
                part.sum_duplicates()
            if dense:
                yield CsrRows(start, part.reshape(-1), None, np.arange(stop - start + 1) * d)
            else:
                part = scipy.sparse.csr_array(part)
                indices = part.indices.astype(index_dtype(d), copy=False)
                yield CsrRows(start, part.data, indices, part.indptr.astype(np.int64))
            start = stop

    def _entries(self) -> Iterator[MatrixEntries]:
        """Yield the values of a CSC or COO matrix in pieces."""
        n_values = len(self._arrays["data"])
        for low in range(0, n_values, _VALUES_PER_READ):
            part = slice(low, min(low + _VALUES_PER_READ, n_values))
            rows = np.asarray(self._arrays["row" if self._kind == "coo" else "indices"][part])
            if self._kind == "coo":
                columns = np.asarray(self._arrays["col"][part])
            else:
                columns = np.searchsorted(self._arrays["indptr"], np.arange(low, part.stop), "right") - 1
            _check_range(rows, self.shape[0], "row", "the matrix")
            _check_range(columns, self.shape[1], "column", "the matrix")
            yield MatrixEntries(rows, columns, np.asarray(self._arrays["data"][part]))


def _matrix(path: Path, arrays: dict[str, np.ndarray]) -> _Matrix:
    """Return the matrix among the arrays of a file; raise `InputError` unless there is one, undamaged."""
    if "format" in arrays and "shape" in arrays:
        return _sparse_matrix(path, arrays)
    matrices = {name: array for name, array in arrays.items() if array.ndim == 2}
    if len(matrices) != 1:
        shapes = ", ".join(f"{name or 'the array'} {array.shape}" for name, array in arrays.items())
        raise InputError(f"{path} has {len(matrices)} arrays of two axes, not one: {shapes}")
    (matrix,) = matrices.values()
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"{path} holds {matrix.dtype}, and not numbers")
    return _Matrix((matrix.shape[0], matrix.shape[1]), "dense", {"data": matrix})


def _sparse_matrix(path: Path, arrays: dict[str, np.ndarray]) -> _Matrix:
    """Return the matrix that arrays of SciPy form, whose lengths and pointers are checked."""
    try:
        kind = arrays["format"].item()
        shape = tuple(int(size) for size in np.asarray(arrays["shape"]).ravel())
    except (ValueError, TypeError, OverflowError) as error:
        raise _damaged(path, error) from None
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind not in _SPARSE:
        raise InputError(
            f"{path} is a {kind[:20]!r} matrix of SciPy, which is not read; "
            "scipy.sparse.save_npz(path, matrix.tocsr()) writes one that is"
        )
    others = ("row", "col") if kind == "coo" else ("indices",)  # an integer for each value
    names = ("data", *others) if kind == "coo" else ("data", *others, "indptr")
    if missing := [name for name in names if name not in arrays]:
        raise InputError(f"{path} is damaged: the {kind} matrix has no array {missing[0]!r}")
    good = len(shape) == 2 and min(shape) >= 0 and all(arrays[name].ndim == 1 for name in names)
    good = good and arrays["data"].dtype.kind in "biuf"
    good = good and all(arrays[name].dtype.kind in "iu" for name in names[1:])
    good = good and all(len(arrays[name]) == len(arrays["data"]) for name in others)
    if good and kind != "coo":
        pointers, n = arrays["indptr"], shape[0 if kind == "csr" else 1]
        good = len(pointers) == n + 1 and is_monotonic(pointers)
        good = good and pointers[0] == 0 and pointers[-1] == len(arrays["data"])
    if not good:
        raise InputError(f"{path} is damaged: its arrays are not those of a {kind} matrix of two axes")
    return _Matrix((shape[0], shape[1]), kind, arrays)


def _check_range(found: np.ndarray, size: int, what: str, where: str) -> None:
    if first_outside(found, size) is not None:
        raise InputError(f"{where} is damaged: it has a value in {what} {int(found.max())} of {size}")


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _unpacked(path: Path, folder: Path) -> dict[str, np.ndarray]:
    """Unpack the arrays of an .npz file into `folder`, and return them memory-mapped."""
    arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for number, name in enumerate(archive.namelist()):
                out = folder / f"array-{number}.npy"
                with archive.open(name) as packed, out.open("wb") as file:
                    shutil.copyfileobj(packed, file, 2**20)
                arrays[name.removesuffix(".npy")] = load_array(out, f"{path}, array {name}")
    except Exception as error:  # each codec has types of its own
        if isinstance(error, InputError) or getattr(error, "errno", None):
            raise
        raise _damaged(path, error) from None
    return arrays


def _damaged(where: object, error: Exception) -> InputError:
    text = " ".join(str(error.args[0] if error.args else type(error).__name__).split())
    return InputError(f"{where} is damaged or truncated ({printable(text[:100])}); fetch it again")
