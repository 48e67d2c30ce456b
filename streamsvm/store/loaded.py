"""Matrices that are loaded into memory: those in ``.npz`` archives that are sparse or compressed, and CSC."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.label_sets import canonical_csr
from streamsvm.errors import InputError, PlanError, StreamsvmError
from streamsvm.store.array_file import ArrayFile, MatrixFile, load_array, only_matrix
from streamsvm.store.container import Container, StoredArray, one_line

_BY_ROWS = (
    "import scipy.sparse, anndata; X = scipy.sparse.load_npz({path!r}).tocsr(); "
    "anndata.AnnData(X, obs={{'label': labels}}).write_h5ad('by-rows.h5ad')"
)
_NOT_COMPRESSED = "import numpy; numpy.savez('X.npz', **numpy.load({path!r}))"


def check_memory(where: object, nbytes: int, memory: int, lines: str) -> None:
    """Raise `PlanError`, with the Python that stores it by rows, unless a matrix fits in memory twice."""
    if 2 * nbytes > memory:
        raise PlanError(
            f"{where} is not stored by rows, and loading its {nbytes:,} bytes takes twice as many; in Python "
            f"`{lines}` stores it by rows",
            needed_memory=2 * nbytes,
        )


class LoadedArray(StoredArray):
    """Array in memory."""

    def __init__(self, container: Container, name: str, values: np.ndarray, axes: int = 1) -> None:
        self.container, self.name, self._values = container, name, values
        self._set_layout(values.shape, values.shape, values.dtype, axes, text=False)

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        return self._values[(slice(start, stop), *columns)].copy()


class PackedFile(ArrayFile):
    """Matrix of an ``.npz`` archive that cannot be read by rows: see `kinds.is_packed`."""

    kind = "npz"

    def __init__(self, path: Path, memory: int) -> None:
        MatrixFile.__init__(self, path)
        self._sparse: dict[str, Any] = {}
        try:
            self._arrays = self._load(memory)
        except StreamsvmError:
            self.close()
            raise
        except Exception as error:  # each codec, and the parser of headers, raises types of its own
            self.close()
            what = f"{path} is damaged or truncated ({one_line(error):.100}); fetch it again"
            raise InputError(what) from None

    def _load(self, memory: int) -> dict[str, np.ndarray]:
        import scipy.sparse

        with zipfile.ZipFile(self._file) as archive:
            sizes = {each.filename: each.file_size for each in archive.infolist()}
        lines = _BY_ROWS if "format.npy" in sizes else _NOT_COMPRESSED
        check_memory(self.path, sum(sizes.values()), memory, lines.format(path=str(self.path)))
        loaded: Any = load_array(self.path)
        with loaded as archive:
            if "format" in archive:
                found = canonical_csr(scipy.sparse.load_npz(self.path), InputError, str(self.path))
                self._sparse = {"encoding-type": "csr_matrix", "shape": list(map(int, found.shape))}
                return {f"X/{part}": getattr(found, part) for part in ("data", "indices", "indptr")}
            arrays = dict(archive)
        return {"X": only_matrix(self.path, arrays)}

    def attrs(self, group: str) -> dict[str, Any]:
        return self._sparse if group == "X" else {}

    def node(self, path: str) -> str | None:
        return "array" if path in self._arrays else "group" if path == "X" else None

    def _array(self, path: str, axes: int) -> LoadedArray:  # type: ignore[override]
        return LoadedArray(self, path, self._arrays[path], axes)
