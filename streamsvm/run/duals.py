"""Store the duals of a pass in memory and in files; each file contains duals of one block of rows.

A file consists of the numbers of rows and of duals (int64), the rows (int32, in any order, relative to the
first row of the block), counts (int32, duals per row), values (float32 or float64) and ids (uint8, uint16 or
uint32). The manifest lists each file with its checksum. Files that it does not list are never read. Files
are written under their final names, because a resumed run overwrites or deletes the leftovers of a crash.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm.base import durable
from streamsvm.base.decode import Count
from streamsvm.errors import RunError
from streamsvm.kernels.duals import (
    DualBuffer,
    OldDuals,
    RowDuals,
    joined,
    new_matrix,
    repeats_class,
    to_lists,
)
from streamsvm.kernels.scratch import own_lines
from streamsvm.run.directory import RunDir
from streamsvm.run.sums import FileSum, mapped, write_summed


class DualFormat(NamedTuple):
    values_dtype: np.dtype
    ids_dtype: np.dtype
    n_ids: int = 1  # exclusive upper limit of the ids, which are usually classes
    max_duals: int = 1  # maximum number of non-zero duals per row (see `Loss`)
    distinct_ids: bool = True

    @property
    def entry_bytes(self) -> int:
        return self.values_dtype.itemsize + self.ids_dtype.itemsize

    def new_buffer(self, entries: int, n_rows: int) -> DualBuffer:
        return DualBuffer(
            np.empty(entries, self.ids_dtype),
            np.empty(entries, self.values_dtype),
            np.empty(n_rows, np.int32),
            np.empty(n_rows, np.int32),
            own_lines(2, np.int64),
        )


class DualFile(NamedTuple):
    """File of duals: number `part` among the files of the block that begins with row `first`."""

    first: Count
    part: Count
    sum: FileSum


class PassDuals:
    """Duals of one pass, which are appended block by block and read by the next pass.

    `files` are the committed files. If `run` is None, all duals stay in memory. Otherwise, they are written
    to files at a commit, and whenever they take more than `held_bytes` of memory.
    """

    def __init__(
        self,
        format: DualFormat,
        run: RunDir | None = None,
        pass_number: int = 0,
        files: tuple[DualFile, ...] = (),
        held_bytes: float = math.inf,
    ) -> None:
        self._format = format
        self._run, self._pass = run, pass_number
        self._max_bytes = self._free_bytes = held_bytes
        # Keys are the first rows of blocks.
        self._files: dict[int, list[DualFile]] = {}
        self._pending: dict[int, list[RowDuals]] = {}
        self._matrices: dict[int, np.ndarray] = {}
        self._unsynced: list[Path] = []
        for file in files:
            self._files.setdefault(file.first, []).append(file)

    @property
    def files(self) -> tuple[DualFile, ...]:
        return tuple(itertools.chain.from_iterable(self._files.values()))

    def append_duals(self, first: int, duals: RowDuals) -> None:
        self._free_bytes -= sum(array.nbytes for array in duals)
        if self._free_bytes >= 0:
            self._pending.setdefault(first, []).append(duals.copy())
        else:
            self._write_pending()
            self._write(first, [duals])

    def append_matrix(self, first: int, duals: np.ndarray) -> None:
        self._matrices[first] = duals

    def matrix(self, first: int, n_rows: int) -> np.ndarray | None:
        """Return the duals of `n_rows` rows, starting at row `first`, as one matrix; join several if needed.

        If some of the rows have no matrix, convert all matrices to lists for `segment`, and return None.
        """
        parts = [each for _, each in _between(self._matrices, first, n_rows)]
        if len(parts) > 1 and sum(map(len, parts)) == n_rows:
            merged = new_matrix(n_rows, parts[0].shape[1], parts[0].dtype)
            self._matrices = {first: np.concatenate(parts, out=merged)}
        matrix = self._matrices.get(first)
        if matrix is not None and len(matrix) == n_rows:
            return matrix
        self._list_matrices()
        return None

    def segment(self, first: int, n_rows: int) -> OldDuals:
        """Return the duals of `n_rows` rows, starting at row `first`; duals in only one file are not copied.

        Raises `RunError` if a file is damaged, or if its numbers would make kernels access invalid memory.
        """
        files, pending = _between(self._files, first, n_rows), _between(self._pending, first, n_rows)
        parts = [(begin, self._read(file, first + n_rows)) for begin, group in files for file in group]
        parts += [(begin, duals) for begin, group in pending for duals in group]
        shifted = [duals._replace(rows=duals.rows + np.int32(begin - first)) for begin, duals in parts]
        old = joined(shifted or [RowDuals.of_buffer(self._format.new_buffer(0, 0))]).in_block(n_rows)
        # The first call is made without rows, to load the kernel before training starts.
        scratch = np.zeros(self._format.n_ids, np.int64)
        if self._run is not None and self._format.distinct_ids and repeats_class(old, scratch):
            problem = f"duals of pass {self._pass} from row {first} are damaged: a row contains a class twice"
            raise RunError(f"{self._run.path}: {problem}")
        return old

    def commit(self) -> tuple[DualFile, ...]:
        """Write and sync all duals, and return all files; the caller must sync the folder."""
        self._list_matrices()
        self._write_pending()
        for path in self._unsynced:
            durable.sync_tree(path)
        self._unsynced.clear()
        return self.files

    def _list_matrices(self) -> None:
        for first, matrix in self._matrices.items():
            self._pending.setdefault(first, []).extend(to_lists(matrix, self._format.ids_dtype))
        self._matrices.clear()

    def _path(self, first: int, part: int) -> Path:
        assert self._run is not None
        return self._run.duals(self._pass, first, part)

    def _write_pending(self) -> None:
        for first, parts in self._pending.items():
            self._write(first, parts)
        self._pending.clear()
        self._free_bytes = self._max_bytes

    def _write(self, first: int, parts: list[RowDuals]) -> None:
        files = self._files.setdefault(first, [])
        path = self._path(first, len(files))
        sizes = np.array([sum(len(part.rows) for part in parts), sum(len(part.ids) for part in parts)])
        arrays = [getattr(part, name) for name in ("rows", "counts", "values", "ids") for part in parts]
        written = write_summed(path, (sizes, *arrays))
        files.append(DualFile(first, len(files), written))
        self._unsynced.append(path)

    def _read(self, file: DualFile, end: int) -> RowDuals:
        """Map a file of a block that ends before row `end`, and check the numbers that kernels rely on.

        The checksum is not verified, because this process wrote the file or verified it during recovery.
        """
        path, format = self._path(file.first, file.part), self._format
        content = mapped(path)
        n_rows, n_duals = content[:16].view(np.int64).tolist() if len(content) >= 16 else (-1, -1)
        if min(n_rows, n_duals) < 0 or len(content) != 16 + 8 * n_rows + n_duals * format.entry_bytes:
            raise RunError(f"{path} is damaged: its sizes are not valid")
        values_at, ids_at = 16 + 8 * n_rows, len(content) - n_duals * format.ids_dtype.itemsize
        rows, counts = content[16:values_at].view(np.int32).reshape(2, n_rows)
        ids = content[ids_at:].view(format.ids_dtype)
        if not (
            ((rows >= 0) & (rows < end - file.first)).all()
            and ((counts >= 0) & (counts <= format.max_duals)).all()
            and counts.sum(dtype=np.int64) == n_duals
            and ids.max(initial=0) < format.n_ids
        ):
            raise RunError(f"{path} is damaged: its numbers are not valid")
        return RowDuals(rows, counts, ids, content[values_at:ids_at].view(format.values_dtype))


def _between(parts: dict[int, Any], first: int, n_rows: int) -> list[tuple[int, Any]]:
    return [(begin, part) for begin, part in parts.items() if first <= begin < first + n_rows]
