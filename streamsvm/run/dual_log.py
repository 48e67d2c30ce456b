"""The log of the duals of one pass: a part for each time that new duals were written out.

A block's duals are all parts with its number. A part holds rows (int32, in the order in which they were
trained), counts (int32, duals of each), class ids (uint8, uint16 or uint32) and values (float32 or float64).
A loss most of whose duals are at C has bits before the class ids: of each row as many bytes as hold a bit for
each class, and the counts are of the other duals.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from streamsvm.errors import RunError
from streamsvm.format import DUALS_MAGIC
from streamsvm.kernels.duals import DualBuffer, OldDuals, place_duals, repeats_class
from streamsvm.run.append_log import AppendLog, Part, check_length, check_part, mapped, offsets, scan

MAGICS: tuple[bytes, ...] = (DUALS_MAGIC,)


class DualWriter(AppendLog):
    """The log of the duals of the pass in progress, open for appending."""

    def append_duals(self, block: int, buffer: DualBuffer) -> None:
        """Append the new duals of rows of a block."""
        n_entries, n_rows = int(buffer.used[0]), int(buffer.used[1])
        arrays = (
            buffer.rows[:n_rows], buffer.counts[:n_rows], buffer.bits[:n_rows].reshape(-1),
            buffer.ids[:n_entries], buffer.values[:n_entries],
        )  # fmt: skip
        self.append(DUALS_MAGIC, (block, n_rows, n_entries), arrays)


class DualLog:
    """The duals of a pass, for reading.

    Parameters
    ----------
    path : Path
    length : int
        Bytes of the log; 0 if there is none: then all duals are zero.
    values_dtype, ids_dtype : dtype
        Types of the duals and of their ids.
    n_ids : int
        How many ids there are: one for each class, but for the loss ``chain``.
    max_duals : int
        Non-zero duals that a row can have, by its loss.
    bytes_of_bits : int
        Bytes of a row's bits, by its loss.
    distinct_ids : bool
        Whether no two duals of a row have one id.
    """

    def __init__(
        self,
        path: Path,
        length: int,
        values_dtype: np.dtype,
        ids_dtype: np.dtype,
        n_ids: int,
        max_duals: int,
        bytes_of_bits: int = 0,
        *,
        distinct_ids: bool = True,
    ) -> None:
        self.path = path
        self._length = length
        self._n_ids = n_ids
        self._distinct_ids = distinct_ids
        self._max_duals = max_duals
        self._bytes_of_bits = bytes_of_bits
        self._parts: dict[int, list[Part]] = {}
        for part in scan(path, length, MAGICS) if length else ():
            self._parts.setdefault(part.numbers[0], []).append(part)
        self._content = mapped(path, length)
        self._counts = self._content.view(np.int32)
        self._ids = self._content.view(ids_dtype)
        self._values = self._content.view(values_dtype)

    def segment(self, block: int, n_rows: int) -> OldDuals:
        """Return the duals of a block, as views of the log; rows without any have a count of 0.

        Raises `RunError` if they are damaged, or impossible numbers: kernels rely on them.
        """
        if self._length:
            check_length(self.path, self._length)
        duals = OldDuals(
            self._ids, self._values,
            np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int32),
            self._content, np.full(n_rows if self._bytes_of_bits else 0, -1, np.int64),
        )  # fmt: skip
        place_duals(self._counts[:0], self._counts[:0], 0, 0, 0, duals)  # loads it, before training begins
        for part in self._parts.get(block, ()):
            check_part(self.path, part, self._content)
            if not self._place(part, duals):
                raise self._foreign(block)
        if self._distinct_ids and repeats_class(duals, np.zeros(self._n_ids, np.int64)):
            raise self._foreign(block)
        return duals

    def _place(self, part: Part, duals: OldDuals) -> bool:
        """Write to `duals` where those of a part are; return False if it cannot be a part of this run."""
        _, n, n_entries = part.numbers
        if n < 0 or n_entries < 0:
            return False
        id_size, value_size = self._ids.itemsize, self._values.itemsize
        sizes = (4 * n, 4 * n, n * self._bytes_of_bits, n_entries * id_size, n_entries * value_size)
        rows_at, counts_at, bits_at, ids_at, values_at, end = offsets(part.at, *sizes)
        if end != part.at + part.size:
            return False
        rows, counts = (self._counts[at // 4 : at // 4 + n] for at in (rows_at, counts_at))
        ids = self._ids[ids_at // id_size :][:n_entries]
        if n_entries and ids.max() >= self._n_ids:
            return False
        placed = place_duals(rows, counts, ids_at // id_size, values_at // value_size, self._max_duals, duals)
        if placed != n_entries:
            return False
        if self._bytes_of_bits:
            duals.bits_at[rows] = bits_at + self._bytes_of_bits * np.arange(n)
        return True

    def _foreign(self, block: int) -> RunError:
        return RunError(f"{self.path}: block {block} does not belong to this run; fit again")
