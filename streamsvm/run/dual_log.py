"""Log of the duals of one pass, with a part for each time that new duals were written.

A block's duals are all parts with its number. A part holds rows (int32, in any order), counts (int32,
duals of each), class ids (uint8, uint16 or uint32) and values (float32 or float64).
A loss most of whose duals are at C has bits before the class ids: of each row as many bytes as hold a bit for
each class, and the counts are of the other duals.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.base.format import DUALS_MAGIC
from streamsvm.errors import RunError
from streamsvm.kernels.dual_lists import joined
from streamsvm.kernels.duals import DualBuffer, OldDuals, RowDuals, place_duals, repeats_class
from streamsvm.kernels.memory import own_lines
from streamsvm.run.append_log import AppendLog, LogEnd, Part, check_length, check_part, mapped, offsets, scan

MAGICS: tuple[bytes, ...] = (DUALS_MAGIC,)


class DualWriter(AppendLog):
    """Log of the duals of the pass in progress, open for appending.

    Attributes
    ----------
    worker_logs : dict of str to LogEnd
        Logs of this pass that workers have written, by their names.
    """

    def __init__(self, path: Path, end: LogEnd) -> None:
        super().__init__(path, end)
        self.worker_logs: dict[str, LogEnd] = {}

    def add_worker_log(self, name: str, end: LogEnd) -> None:
        """Record the end of a worker's log, unless a later end is recorded already."""
        self.worker_logs[name] = max(self.worker_logs.get(name, end), end)

    def append_duals(self, block: int, duals: RowDuals) -> None:
        """Append the new duals of rows of a block."""
        rows, counts, ids, values, bits = duals
        self.append(DUALS_MAGIC, (block, len(rows), len(ids)), (rows, counts, bits.reshape(-1), ids, values))


class DualFormat(NamedTuple):
    """How the duals of rows are stored.

    Attributes
    ----------
    values_dtype, ids_dtype : dtype
        Types of the duals and of their ids, which mostly are classes.
    bytes_of_bits : int
        Bytes of a row's bits (see `Loss`).
    n_ids : int
        Number of ids: one for each class, except with the loss ``chain``.
    max_duals : int
        Largest number of non-zero duals of a row (see `Loss`).
    distinct_ids : bool
        True if no two duals of a row have the same id.
    """

    values_dtype: np.dtype
    ids_dtype: np.dtype
    bytes_of_bits: int = 0
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
            np.empty((n_rows, self.bytes_of_bits), np.uint8),
        )


class DualFiles(NamedTuple):
    """Picklable description of a pass's dual log.

    Attributes
    ----------
    path : Path
        Path of the log.
    length : int
        Bytes of the log; 0 if there is none: then all duals are zero, or in the logs of workers.
    format : DualFormat
    worker_logs : tuple of (str, int)
        Names, in the same folder, and lengths of the logs that workers wrote.
    """

    path: Path
    length: int
    format: DualFormat
    worker_logs: tuple[tuple[str, int], ...] = ()


class _Log:
    """Memory-mapped log."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self.content = mapped(path, length)
        self.parts = list(scan(path, length, MAGICS)) if length else []


def _read_part(files: DualFiles, log: _Log, part: Part, n_rows: int) -> RowDuals:
    """Return the duals of a part that a worker wrote, of a block of `n_rows` rows, as views of its log.

    Raises `RunError` if they are damaged, or impossible.
    """
    check_length(log.path, len(log.content))
    check_part(log.path, part, log.content)
    (block, n, n_duals), format = part.numbers, files.format
    int32, uint8 = np.dtype(np.int32), np.dtype(np.uint8)
    kinds: list[np.dtype] = [int32, int32, uint8, format.ids_dtype, format.values_dtype]
    counts = [n, n, n * format.bytes_of_bits, n_duals, n_duals]
    sizes = [count * kind.itemsize for count, kind in zip(counts, kinds, strict=True)]
    if n <= 0 or n_duals < 0 or (places := offsets(part.at, *sizes))[-1] != part.at + part.size:
        raise _foreign(log.path, block)
    views = (
        log.content[at : at + size].view(kind) for at, size, kind in zip(places, sizes, kinds, strict=False)
    )
    rows, counts_, bits, ids, values = views
    if not (
        0 <= rows.min() <= rows.max() < n_rows
        and 0 <= counts_.min() <= counts_.max() <= format.max_duals
        and counts_.sum(dtype=np.int64) == n_duals
        and (n_duals == 0 or ids.max() < format.n_ids)
    ):
        raise _foreign(log.path, block)
    return RowDuals(rows, counts_, ids, values, bits.reshape(n, format.bytes_of_bits))


class DualLog:
    """Duals of a pass, for reading."""

    def __init__(self, files: DualFiles) -> None:
        self.files = files
        self._log = _Log(files.path, files.length)
        self._counts = self._log.content.view(np.int32)
        self._ids = self._log.content.view(files.format.ids_dtype)
        self._values = self._log.content.view(files.format.values_dtype)
        self._parts: dict[int, list[Part]] = {}
        for part in self._log.parts:
            self._parts.setdefault(part.numbers[0], []).append(part)

    @functools.cached_property
    def _of_workers(self) -> dict[int, list[tuple[_Log, Part]]]:
        """Parts that workers wrote, by block; read when first used, which the main process never does."""
        found: dict[int, list[tuple[_Log, Part]]] = {}
        for name, length in self.files.worker_logs:
            log = _Log(self.files.path.parent / name, length)
            for part in log.parts:
                found.setdefault(part.numbers[0], []).append((log, part))
        return found

    def segment(self, block: int, n_rows: int) -> OldDuals:
        """Return the duals of a block; rows without any have a count of 0.

        They are views of the log, unless workers wrote them. Raises `RunError` if they are damaged, or
        impossible numbers: kernels rely on them.
        """
        if block in self._of_workers:
            return self._without_repeats(block, self._joined(block, n_rows))
        files, content, n_bytes = self.files, self._log.content, self.files.format.bytes_of_bits
        if files.length:
            check_length(files.path, files.length)
        duals = OldDuals(
            self._ids, self._values,
            np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int32),
            content, np.full(n_rows if n_bytes else 0, -1, np.int64),
        )  # fmt: skip
        place_duals(self._counts[:0], self._counts[:0], 0, 0, 0, duals)  # loads it, before training begins
        for part in self._parts.get(block, ()):
            check_part(files.path, part, content)
            if not self._place(part, duals):
                raise _foreign(files.path, block)
        return self._without_repeats(block, duals)

    def _joined(self, block: int, n_rows: int) -> OldDuals:
        """Join the parts of a block that workers wrote; work that was done twice counts once.

        Parts differ by their first row and first id: no two workers share a row of a block, except for duals
        of different classes.
        """
        files, found = self.files, dict[tuple[int, int], RowDuals]()
        for log, part in self._of_workers[block]:
            duals = _read_part(files, log, part, n_rows)
            found.setdefault((int(duals.ids[0]) if len(duals.ids) else -1, int(duals.rows[0])), duals)
        by_id = sorted(found, key=lambda key: key[0])
        return joined([found[key] for key in by_id], n_rows, files.format.bytes_of_bits)

    def _without_repeats(self, block: int, duals: OldDuals) -> OldDuals:
        if self.files.format.distinct_ids and repeats_class(
            duals, np.zeros(self.files.format.n_ids, np.int64)
        ):
            raise _foreign(self.files.path, block)
        return duals

    def _place(self, part: Part, duals: OldDuals) -> bool:
        """Write the places of a part's duals to `duals`; return False if the part cannot be of this run."""
        _, n, n_entries = part.numbers
        if n < 0 or n_entries < 0:
            return False
        files, n_bytes = self.files, self.files.format.bytes_of_bits
        id_size, value_size = self._ids.itemsize, self._values.itemsize
        sizes = (4 * n, 4 * n, n * n_bytes, n_entries * id_size, n_entries * value_size)
        rows_at, counts_at, bits_at, ids_at, values_at, end = offsets(part.at, *sizes)
        if end != part.at + part.size:
            return False
        rows, counts = (self._counts[at // 4 : at // 4 + n] for at in (rows_at, counts_at))
        ids = self._ids[ids_at // id_size :][:n_entries]
        if n_entries and ids.max() >= files.format.n_ids:
            return False
        placed = place_duals(
            rows, counts, ids_at // id_size, values_at // value_size, files.format.max_duals, duals
        )
        if placed != n_entries:
            return False
        if n_bytes:
            duals.bits_at[rows] = bits_at + n_bytes * np.arange(n)
        return True


def _foreign(path: Path, block: int) -> RunError:
    return RunError(f"{path}: block {block} does not belong to this run; fit again")
