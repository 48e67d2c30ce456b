"""Log of the duals of one pass, with a part for each time that new duals were written.

A block's duals are all parts with its number. A part holds rows (int32, in any order), counts (int32,
duals of each), class ids (uint8, uint16 or uint32) and values (float32 or float64).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.base.format import DUALS_MAGIC
from streamsvm.errors import RunError
from streamsvm.kernels.duals import DualBuffer, OldDuals, RowDuals, place_duals, repeats_class
from streamsvm.kernels.scratch import own_lines
from streamsvm.run.append_log import AppendLog, Part, mapped, scan


class DualWriter(AppendLog):
    """Log of the duals of the pass in progress, open for appending."""

    def append_duals(self, block: int, duals: RowDuals) -> None:
        """Append the new duals of rows of a block."""
        self.append(DUALS_MAGIC, (block, len(duals.rows), len(duals.ids)), duals)


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


class DualLog:
    """Duals of a pass, for reading; a log of length 0 need not exist: then all duals are zero."""

    def __init__(self, path: Path, length: int, format: DualFormat) -> None:
        self.path, self.format = path, format
        self._content = mapped(path, length)
        self._counts = self._content.view(np.int32)
        self._ids = self._content.view(format.ids_dtype)
        self._values = self._content.view(format.values_dtype)
        self._parts: dict[int, list[Part]] = {}
        for part in scan(path, length) if length else ():
            self._parts.setdefault(part.numbers[0], []).append(part)

    def segment(self, block: int, n_rows: int) -> OldDuals:
        """Return the duals of a block, as views of the log; rows without any have a count of 0.

        Raises `RunError` if they are damaged, or lead kernels out of their arrays.
        """
        duals = OldDuals(
            self._ids, self._values,
            np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int32),
        )  # fmt: skip
        place_duals(self._counts[:0], self._counts[:0], 0, 0, 0, duals)  # loads it, before training begins
        for part in self._parts.get(block, ()):
            part.check(self._content)
            self._place(part, duals)
        if self.format.distinct_ids and repeats_class(duals, np.zeros(self.format.n_ids, np.int64)):
            raise RunError(f"{self.path} is damaged: two duals of one class in a row of block {block}")
        return duals

    def _place(self, part: Part, duals: OldDuals) -> None:
        """Write the places of a part's duals to `duals`."""
        _, n, n_entries = part.numbers
        id_size, value_size = self._ids.itemsize, self._values.itemsize
        rows_at, counts_at, ids_at, values_at = part.offsets(
            4 * n, 4 * n, n_entries * id_size, n_entries * value_size
        )
        rows, counts = (self._counts[at // 4 : at // 4 + n] for at in (rows_at, counts_at))
        ids_at, values_at = ids_at // id_size, values_at // value_size
        placed = place_duals(rows, counts, ids_at, values_at, self.format.max_duals, duals)
        if placed != n_entries or self._ids[ids_at : ids_at + n_entries].max(initial=0) >= self.format.n_ids:
            raise part.damaged("impossible numbers")
