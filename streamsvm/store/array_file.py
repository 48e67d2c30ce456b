"""Read ``.npy`` and ``.npz`` matrices: in place, or by loading the whole matrix if compressed or sparse."""

from __future__ import annotations

import os
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from streamsvm.base import durable
from streamsvm.data.label_sets import canonical_csr
from streamsvm.errors import InputError, PlanError, StoreError, StreamsvmError
from streamsvm.store.chunk_reader import read_bytes
from streamsvm.store.container import Container, StoredArray, one_line

_PIECE = 2**18  # values per read
_PAGE = 2**12  # bytes
_MEMBER = struct.Struct("<26xHH")  # header of a zip member: lengths of its name and of the extra field

_BY_ROWS = (
    "import scipy.sparse, anndata; X = scipy.sparse.load_npz({path!r}).tocsr(); "
    "anndata.AnnData(X, obs={{'label': labels}}).write_h5ad('by-rows.h5ad')"
)
_NOT_COMPRESSED = "import numpy; numpy.savez('X.npz', **numpy.load({path!r}))"
_LONGER = "{} is damaged: it is longer than its header says; fetch it again"


class _Header(NamedTuple):
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype
    offset: int  # position of the first value, in bytes


class FileArray(StoredArray):
    """Two-dimensional array in a file, in C or Fortran order."""

    name = "X"

    def __init__(self, container: ArrayFile, header: _Header) -> None:
        self.container: ArrayFile = container
        self._header = header
        length, columns = header.shape
        # Reading fewer rows of a column would still read a whole page from the disk.
        min_rows = _PAGE // header.dtype.itemsize if header.by_columns else 1
        rows = max(min_rows, _PIECE // max(1, columns))
        self._set_layout((length, columns), (min(length, rows), columns), header.dtype, 2, text=False)

    def _read(self, start: int, stop: int, *columns_read: slice) -> np.ndarray:
        _, by_columns, dtype, offset = self._header
        columns = self.columns or 0
        first, end, _ = (*columns_read, slice(None))[0].indices(columns)
        if by_columns:
            result = np.empty((end - first, stop - start), dtype)
            for values, column in zip(result, range(first, end), strict=True):
                place = offset + (column * self.length + start) * dtype.itemsize
                read_bytes(self.container.descriptor, values, place)
            result = result.T
        else:
            result = np.empty((stop - start, columns), dtype)
            read_bytes(self.container.descriptor, result, offset + start * columns * dtype.itemsize)
            result = result[:, first:end]
        return result


class LoadedArray(StoredArray):
    def __init__(self, container: Container, name: str, values: np.ndarray, axes: int = 1) -> None:
        self.container, self.name, self._values = container, name, values
        self.nbytes = values.nbytes
        self._set_layout(values.shape, values.shape, values.dtype, axes, text=False)

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        return self._values[(slice(start, stop), *columns)].copy()


class MatrixFile(Container):
    is_matrix = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with durable.os_errors_as(StoreError, path, "read"):
            self._file: BinaryIO = durable.open_file(path, follow=True)
        try:
            self._opened = os.fstat(self.descriptor)
            self.size = self._opened.st_size
            with durable.os_errors_as(StoreError, path, "read"):
                self._open_matrix()
        except BaseException:
            self.close()
            raise

    def _open_matrix(self) -> None:
        raise NotImplementedError

    @property
    def descriptor(self) -> int:
        return self._file.fileno()

    def node(self, path: str) -> str | None:
        return "array" if path == "X" else None

    def labels(self, name: str) -> tuple[Any, np.ndarray | None]:
        arrays = load_array(self.path)
        if isinstance(arrays, np.ndarray) or name not in arrays:
            available = "one array, without a name" if isinstance(arrays, np.ndarray) else ", ".join(arrays)
            raise InputError(f"{self.path} has no array {name!r}; it has {available}")
        return np.asarray(arrays[name]), None

    def close(self) -> None:
        self.is_closed, self._opened = True, None
        self._file.close()


class ArrayFile(MatrixFile):
    """Matrix in an ``.npy`` file or an uncompressed ``.npz`` archive.

    The file is not memory-mapped, because the process would crash if a mapped file were truncated.
    """

    kind = "npy"

    def _open_matrix(self) -> None:
        path = self.path
        is_archive = self._file.read(2) == b"PK"
        self._header = self._find_member() if is_archive else _read_header(self._file, 0, str(path))
        shape, dtype = self._header.shape, self._header.dtype
        if dtype.kind not in "fiub" or dtype.itemsize > 8:
            raise StoreError(f"{path} holds values of type {dtype}; convert them to float32 or float64")
        if len(shape) != 2 or shape[0] < 0 or shape[1] < 1:
            raise StoreError(f"{path} has an array of shape {shape} instead of (rows, features)")
        end = self._header.offset + shape[0] * shape[1] * dtype.itemsize
        if end > self.size:
            raise StoreError(f"{path} is truncated: it is shorter than its header says; fetch it again")
        if end < self.size and not is_archive:
            raise StoreError(_LONGER.format(path))

    def _find_member(self) -> _Header:
        found: dict[str, _Header] = {}
        try:
            with zipfile.ZipFile(self._file) as archive:
                members = archive.infolist()
            for each in members:
                self._file.seek(each.header_offset)
                head = _MEMBER.unpack(self._file.read(_MEMBER.size))
                where = f"{self.path}, array {each.filename}"
                begin = each.header_offset + _MEMBER.size + sum(head)
                found[each.filename] = _read_header(self._file, begin, where)
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError) as error:
            raise StoreError(f"{self.path} is damaged or truncated ({error}); fetch it again") from None
        return cast(_Header, only_matrix(self.path, found))

    def _array(self, path: str, axes: int) -> FileArray:
        return FileArray(self, self._header)


class PackedFile(MatrixFile):
    """Matrix loaded from an ``.npz`` archive that cannot be read by rows; see `kinds.is_packed`."""

    kind = "npz"

    def __init__(self, path: Path, memory: int) -> None:
        self._memory = memory
        self._arrays: dict[str, np.ndarray] = {}
        self._attrs: dict[str, Any] = {}
        super().__init__(path)

    def _open_matrix(self) -> None:
        try:
            self._load()
        except StreamsvmError:
            raise
        except Exception as error:  # codecs and the header parser raise many types
            what = f"{self.path} is damaged or truncated ({one_line(error):.100}); fetch it again"
            raise InputError(what) from None

    def _load(self) -> None:
        import scipy.sparse

        with zipfile.ZipFile(self._file) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
        lines = _BY_ROWS if "format.npy" in sizes else _NOT_COMPRESSED
        check_memory(self.path, sum(sizes.values()), self._memory, lines.format(path=str(self.path)))
        with cast(Any, load_array(self.path)) as archive:
            if "format" in archive:
                found = canonical_csr(scipy.sparse.load_npz(self.path), InputError, str(self.path))
                self._attrs = {"encoding-type": "csr_matrix", "shape": list(map(int, found.shape))}
                self._arrays = {f"X/{part}": getattr(found, part) for part in ("data", "indices", "indptr")}
            else:
                self._arrays = {"X": only_matrix(self.path, dict(archive))}

    def attrs(self, group: str) -> dict[str, Any]:
        return self._attrs if group == "X" else {}

    def node(self, path: str) -> str | None:
        return "array" if path in self._arrays else "group" if path == "X" else None

    def _array(self, path: str, axes: int) -> LoadedArray:
        return LoadedArray(self, path, self._arrays[path], axes)


def check_memory(where: object, nbytes: int, memory: int, lines: str) -> None:
    """Raise `PlanError`, which suggests the code `lines`, unless two copies of a matrix fit in `memory`."""
    if 2 * nbytes > memory:
        raise PlanError(
            f"{where} cannot be read by rows, and loading its {nbytes:,} bytes needs twice as much memory; "
            f"to make it readable by rows, run `{lines}` in Python",
            needed_memory=2 * nbytes,
        )


def only_matrix(path: Path, arrays: dict[str, Any]) -> Any:
    """Return the only two-dimensional array, or its header; raise StoreError unless there is exactly one."""
    matrices = [array for array in arrays.values() if len(array.shape) == 2]
    if len(matrices) != 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise StoreError(f"{path} has {len(matrices)} two-dimensional arrays instead of one: {shapes}")
    return matrices[0]


def _read_header(file: BinaryIO, begin: int, where: str) -> _Header:
    file.seek(begin)
    try:
        major, _ = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except OSError:
        raise
    except Exception:  # NumPy parses the header as Python, which may fail in many ways
        raise StoreError(f"{where} is damaged: its header cannot be read; fetch it again") from None
    return _Header(shape, by_columns, dtype, file.tell())


def load_array(path: Path) -> np.ndarray:
    """Return a memory-mapped ``.npy`` array or an ``.npz`` archive; raise InputError if it cannot be read."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 2 headers, and sizes that overflow
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # as in `_read_header`
        if isinstance(error, OSError) and error.errno:
            raise InputError(f"{path} cannot be read: {durable.reason(error)}") from None
        what = "is damaged or truncated: its header cannot be read; fetch it again"
        if "Python objects" in str(error) or "pickle" in str(error):
            what = "holds pickled Python objects, which are not loaded; save numbers or text"
        raise InputError(f"{path} {what}") from None
    if isinstance(found, np.memmap) and found.offset + found.nbytes < path.stat().st_size:
        raise InputError(_LONGER.format(path))
    return cast(np.ndarray, found)
