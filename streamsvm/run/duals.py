"""Duals of a pass: in memory, and in files, each with duals of one block.

A file has the number of rows and of duals (int64), the rows (int32, in any order, counted from the first row
of their block), counts (int32, duals of each row), values (float32 or float64) and ids (uint8, uint16 or
uint32). The manifest names each file with its checksum. A file that it does not name is never read, so files
need not be renamed: a resumed run overwrites or deletes those that a crash left.
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
    """How the duals of rows are stored.

    Attributes
    ----------
    values_dtype, ids_dtype : dtype
        Types of the duals and of their ids, which mostly are classes.
    n_ids : int
        Number of ids: one for each class, except with the loss ``chain``.
    max_duals : int
        Largest number of non-zero duals of a row (see `Loss`).
    distinct_ids : bool
        True if no two duals of a row have the same id.
    """

    values_dtype: np.dtype
    ids_dtype: np.dtype
    n_ids: int = 1
    max_duals: int = 1
    distinct_ids: bool = True

    @property
    def entry_bytes(self) -> int:
        """Bytes of a dual and its id."""
        return self.values_dtype.itemsize + self.ids_dtype.itemsize

    def new_buffer(self, entries: int, n_rows: int) -> DualBuffer:
        """Return an empty buffer for `entries` new duals of up to `n_rows` rows."""
        return DualBuffer(
            np.empty(entries, self.ids_dtype),
            np.empty(entries, self.values_dtype),
            np.empty(n_rows, np.int32),
            np.empty(n_rows, np.int32),
            own_lines(2, np.int64),
        )


class DualFile(NamedTuple):
    """A file of duals of one pass.

    Attributes
    ----------
    first : int
        The first row of the block, in the order of the data.
    part : int
        Number of the file among those of the block.
    sum : FileSum
    """

    first: Count
    part: Count
    sum: FileSum


class PassDuals:
    """Duals of one pass, to which blocks are appended, and from which the next pass reads them.

    Parameters
    ----------
    format : DualFormat
    run : RunDir, optional
        Run with the files; by default all duals are in memory.
    pass_number : int
    files : tuple of DualFile
        Files that a commit names.
    held_bytes : float
        Memory for duals, which go to files when they take more, or at a commit.
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
        self._most = self._left = held_bytes
        # By the first row of the block:
        self._files: dict[int, list[DualFile]] = {}
        self._held: dict[int, list[RowDuals]] = {}
        self._matrices: dict[int, np.ndarray] = {}
        self._unsynced: list[Path] = []
        for file in files:
            self._files.setdefault(file.first, []).append(file)

    @property
    def files(self) -> tuple[DualFile, ...]:
        return tuple(itertools.chain.from_iterable(self._files.values()))

    def append_duals(self, first: int, duals: RowDuals) -> None:
        """Append the new duals of rows of the block that begins with row `first`."""
        self._left -= sum(array.nbytes for array in duals)
        if self._left >= 0:
            self._held.setdefault(first, []).append(duals.copy())
        else:
            self._write_held()
            self._write(first, [duals])

    def append_matrix(self, first: int, duals: np.ndarray) -> None:
        """Keep the duals of all rows of a block, in memory."""
        self._matrices[first] = duals

    def matrix(self, first: int, n_rows: int) -> np.ndarray | None:
        """Return the duals of rows from `first` on as a matrix; None if `append_matrix` has not kept all.

        Then they become lists, which `segment` has. Those of several blocks are joined.
        """
        parts = [each for _, each in _between(self._matrices, first, n_rows)]
        if len(parts) > 1 and sum(map(len, parts)) == n_rows:
            whole = new_matrix(n_rows, parts[0].shape[1], parts[0].dtype)
            self._matrices = {first: np.concatenate(parts, out=whole)}
        found = self._matrices.get(first)
        if found is not None and len(found) == n_rows:
            return found
        self._list_matrices()
        return None

    def segment(self, first: int, n_rows: int) -> OldDuals:
        """Return the duals of rows from `first` on; rows without any have a count of 0.

        The blocks of this pass may be parts of the range, whose duals are copied then. Duals that are in a
        single file are views of it.

        Raises
        ------
        RunError
            If a file is damaged, or its numbers would lead kernels out of their arrays.
        """
        files, held = _between(self._files, first, n_rows), _between(self._held, first, n_rows)
        parts = [(begin, self._read(file, first + n_rows)) for begin, some in files for file in some]
        parts += [(begin, duals) for begin, some in held for duals in some]
        shifted = [duals._replace(rows=duals.rows + np.int32(begin - first)) for begin, duals in parts]
        old = joined(shifted or [RowDuals.of_buffer(self._format.new_buffer(0, 0))]).in_block(n_rows)
        # The first call, without rows, loads the kernel before training begins.
        seen = np.zeros(self._format.n_ids, np.int64)
        if self._run is not None and self._format.distinct_ids and repeats_class(old, seen):
            problem = (
                f"duals of pass {self._pass} from row {first} on are damaged: two duals of one class in a row"
            )
            raise RunError(f"{self._run.path}: {problem}")
        return old

    def commit(self) -> tuple[DualFile, ...]:
        """Make the duals durable in files whose names are not yet durable, and return all files."""
        self._list_matrices()
        self._write_held()
        for path in self._unsynced:
            durable.sync_tree(path)
        self._unsynced.clear()
        return self.files

    def _list_matrices(self) -> None:
        for first, matrix in self._matrices.items():
            self._held.setdefault(first, []).extend(to_lists(matrix, self._format.ids_dtype))
        self._matrices.clear()

    def _path(self, first: int, part: int) -> Path:
        assert self._run is not None
        return self._run.duals(self._pass, first, part)

    def _write_held(self) -> None:
        for first, parts in self._held.items():
            self._write(first, parts)
        self._held.clear()
        self._left = self._most

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

        This process has written the file, or summed it when the run was recovered.
        """
        path, format = self._path(file.first, file.part), self._format
        content = mapped(path)
        n_rows, n_duals = content[:16].view(np.int64).tolist() if len(content) >= 16 else (-1, -1)
        if min(n_rows, n_duals) < 0 or len(content) != 16 + 8 * n_rows + n_duals * format.entry_bytes:
            raise RunError(f"{path} is damaged: impossible sizes")
        values_at, ids_at = 16 + 8 * n_rows, len(content) - n_duals * format.ids_dtype.itemsize
        rows, counts = content[16:values_at].view(np.int32).reshape(2, n_rows)
        ids = content[ids_at:].view(format.ids_dtype)
        if not (
            ((rows >= 0) & (rows < end - file.first)).all()
            and ((counts >= 0) & (counts <= format.max_duals)).all()
            and counts.sum(dtype=np.int64) == n_duals
            and ids.max(initial=0) < format.n_ids
        ):
            raise RunError(f"{path} is damaged: impossible numbers")
        return RowDuals(rows, counts, ids, content[values_at:ids_at].view(format.values_dtype))


def _between(parts: dict[int, Any], first: int, n_rows: int) -> list[tuple[int, Any]]:
    """Return the parts whose first row is in a range, with that row."""
    return [(begin, part) for begin, part in parts.items() if first <= begin < first + n_rows]
