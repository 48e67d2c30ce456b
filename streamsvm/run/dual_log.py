"""What a run works on: arrays in memory or over files, and the log of duals of each pass."""

from __future__ import annotations

import hashlib
import mmap
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamsvm import durable
from streamsvm.errors import RunError
from streamsvm.kernels.duals import DualBuffer, OldDuals, repeats_class


def map_array(
    path: Path | None, shape: tuple[int, int], dtype: np.dtype, *, fresh: bool = True
) -> np.ndarray:
    """An array over the file `path`, or in memory. It is zero, and takes no disk where it stays so.

    If not `fresh`, the file's content begins the array.

    A mapped file may exceed memory. For that the system writes to disk whatever changed, again and
    again: more than all else that a fit writes.
    """
    size = shape[0] * shape[1] * dtype.itemsize
    if path is None:
        if size == 0:
            return np.zeros(shape, dtype)
        # Begins on a page, as a line of 64 bytes wants it; private, so that it counts as ours.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(memory, dtype).reshape(shape)
    with durable.open_file(path, "wb" if fresh else "r+b") as file:
        file.truncate(size)
    if size == 0:
        return np.zeros(shape, dtype)
    with durable.open_file(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), size)
    # Rows are visited in no order: reading ahead would fetch megabytes for each of a few hundred
    # bytes, and under a tight limit push out the rows in use.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype).reshape(shape)


# -- duals -----------------------------------------------------------------------------------------
#
# A log is a sequence of parts; a block's segment is the parts with its number. A part holds, each
# padded to 8 bytes: a header, rows (int32, in visiting order), counts (int32, non-zeros of each),
# ids (uint8, uint16 or uint32) and values (float32 or float64). Nothing is ever overwritten.

LARGEST_FILE = 2**43  # bytes: ext4 ends at 16 TB

_MAGIC = b"SSVMDUAL"
_HEADER = struct.Struct("<8sqqqII")  # magic, block, n_rows, n_entries, CRC of payload, CRC of header
_HEADER_CRC = struct.Struct("<I")


class _Part(NamedTuple):
    at: int  # offset of the payload
    block: int
    n_rows: int
    n_entries: int
    crc: int
    header: bytes


def chained(digest: str, header: bytes) -> str:
    """The digest of a log with one part more; ``""`` is that of a log without parts.

    A header holds the checksums of its payload and of itself, so the digest stands for all of the log.
    """
    return hashlib.sha256(bytes.fromhex(digest) + header).hexdigest()


def _padded(size: int) -> int:
    return -(-size // 8) * 8


class DualLog:
    """The duals written in one pass: append-only, a segment a block.

    Parameters
    ----------
    path : Path
    values_dtype, ids_dtype : dtype
        Types of the duals and of their class ids.
    n_classes : int
    max_duals : int, optional
        The most duals of a row: by default one for each class but its own.
    length : int
        Committed bytes: whatever follows them is cut off. 0 begins a new log.
    digest : str
        Of the parts in them (see `chained`); it goes on as parts are appended.
    write : bool
        Whether parts will be appended.
    """

    def __init__(
        self,
        path: Path,
        values_dtype: np.dtype,
        ids_dtype: np.dtype,
        n_classes: int,
        *,
        max_duals: int | None = None,
        length: int = 0,
        digest: str = "",
        write: bool,
    ) -> None:
        self.path = path
        self.length = length
        self.digest = digest
        self._values_dtype = values_dtype
        self._ids_dtype = ids_dtype
        self._n_classes = n_classes
        self._max_duals = n_classes - 1 if max_duals is None else max_duals
        self._parts: dict[int, list[_Part]] = {}
        self._file = None
        if write:
            self._file = durable.open_file(path, "r+b" if length else "wb")
            self._file.truncate(length)
            self._file.seek(length)
        self._bytes = np.zeros(0, np.uint8)
        if length and not write:
            self._bytes = _mapped(path, length)
            for part in scan_log(path, length, values_dtype, ids_dtype):
                self._parts.setdefault(part.block, []).append(part)
        self._bytes.flags.writeable = False  # one type for compiled code, with a log and without

    def append(self, block: int, pool: DualBuffer) -> None:
        """Append what a kernel left in `pool` as a part of the block's segment, and empty the pool."""
        n_entries, n_rows = int(pool.used[0]), int(pool.used[1])
        arrays = pool.rows[:n_rows], pool.counts[:n_rows], pool.ids[:n_entries], pool.values[:n_entries]
        pieces: list[Any] = []
        for array in arrays:
            pieces += [array.data, bytes(_padded(array.nbytes) - array.nbytes)]
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
        header = _HEADER.pack(_MAGIC, block, n_rows, n_entries, crc, 0)
        header = header[: -_HEADER_CRC.size] + _HEADER_CRC.pack(zlib.crc32(header[: -_HEADER_CRC.size]))
        assert self._file is not None
        for piece in [header, *pieces]:
            self._file.write(piece)
            self.length += memoryview(piece).nbytes
        self.digest = chained(self.digest, header)
        pool.used[:] = 0

    def segment(self, block: int, n_rows: int) -> OldDuals:
        """A block's duals, checked, as views of the mapped log; rows without any have a count of 0."""
        ids = self._bytes[: self.length // 8 * 8].view(self._ids_dtype)
        values = self._bytes[: self.length // 8 * 8].view(self._values_dtype)
        ids_at, values_at = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
        counts = np.zeros(n_rows, np.int32)
        for part in self._parts.get(block, ()):
            check_part(self.path, self._bytes, part, self._values_dtype, self._ids_dtype)
            at = part.at
            rows = self._bytes[at : at + 4 * part.n_rows].view(np.int32)
            at += _padded(4 * part.n_rows)
            part_counts = self._bytes[at : at + 4 * part.n_rows].view(np.int32)
            at += _padded(4 * part.n_rows)
            before = np.cumsum(part_counts, dtype=np.int64) - part_counts
            first_id = at // self._ids_dtype.itemsize
            part_ids = ids[first_id : first_id + part.n_entries]
            at += _padded(part_ids.nbytes)
            # The checksum finds damage; these find a log that was never ours. Compiled code
            # trusts the numbers.
            if (
                (part.n_rows and not 0 <= rows.min() <= rows.max() < n_rows)
                or (part.n_rows and not 0 <= part_counts.min() <= part_counts.max() <= self._max_duals)
                or part_counts.sum(dtype=np.int64) != part.n_entries
                or (part.n_entries and part_ids.max() >= self._n_classes)
            ):
                raise self._foreign(block)
            ids_at[rows] = first_id + before
            values_at[rows] = at // self._values_dtype.itemsize + before
            counts[rows] = part_counts
        old = OldDuals(ids, values, ids_at, values_at, counts)
        if repeats_class(old, np.zeros(self._n_classes, np.int64)):
            raise self._foreign(block)
        return old

    def _foreign(self, block: int) -> RunError:
        return RunError(f"{self.path}: block {block} does not belong to this run; fit again")

    def flush(self) -> None:
        """Hand everything appended so far to the system, which has not yet made it durable."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _mapped(path: Path, length: int) -> np.ndarray:
    """The first `length` bytes of a file, memory-mapped."""
    with durable.open_file(path) as file:
        return np.asarray(np.memmap(file, np.uint8, "r", shape=(length,)))


def scan_log(path: Path, length: int, values_dtype: np.dtype, ids_dtype: np.dtype) -> Iterator[_Part]:
    """The parts in the first `length` bytes of a log, by their headers; `RunError` if one is damaged."""
    at = 0
    with durable.named(path), durable.open_file(path) as file:
        while at < length:
            file.seek(at)
            header = file.read(_HEADER.size)
            damaged = len(header) < _HEADER.size or at + _HEADER.size > length
            if not damaged:
                magic, block, n_rows, n_entries, crc, header_crc = _HEADER.unpack(header)
                damaged = magic != _MAGIC or header_crc != zlib.crc32(header[: -_HEADER_CRC.size])
            if not damaged:
                part = _Part(at + _HEADER.size, block, n_rows, n_entries, crc, header)
                at = part.at + _payload(part, values_dtype, ids_dtype)
                damaged = n_rows < 0 or n_entries < 0 or at > length
            if damaged:
                raise RunError(f"{path} is damaged: no whole segment at byte {at}")
            yield part


def check_part(path: Path, log: np.ndarray, part: _Part, values_dtype: np.dtype, ids_dtype: np.dtype) -> None:
    """Raise `RunError` unless the payload of `part` has its recorded checksum."""
    if zlib.crc32(log[part.at : part.at + _payload(part, values_dtype, ids_dtype)].data) != part.crc:
        raise RunError(f"{path} is damaged: wrong checksum in block {part.block} at byte {part.at}")


def check_log(path: Path, length: int, values_dtype: np.dtype, ids_dtype: np.dtype) -> str:
    """The digest of the first `length` bytes of a log; `RunError` unless they are whole and undamaged."""
    if (size := durable.size(path)) < length:
        raise RunError(f"{path} is cut short: {size:,} of {length:,} bytes")
    digest = ""
    if length:
        log = _mapped(path, length)
        for part in scan_log(path, length, values_dtype, ids_dtype):
            check_part(path, log, part, values_dtype, ids_dtype)
            digest = chained(digest, part.header)
    return digest


def _payload(part: _Part, values_dtype: np.dtype, ids_dtype: np.dtype) -> int:
    return (
        2 * _padded(4 * part.n_rows)
        + _padded(part.n_entries * ids_dtype.itemsize)
        + _padded(part.n_entries * values_dtype.itemsize)
    )


def make_pool(entries: int, n_rows: int, values_dtype: np.dtype, ids_dtype: np.dtype) -> DualBuffer:
    """Room for `entries` new duals of up to `n_rows` rows."""
    return DualBuffer(
        np.empty(entries, ids_dtype),
        np.empty(entries, values_dtype),
        np.empty(n_rows, np.int32),
        np.empty(n_rows, np.int32),
        np.zeros(2, np.int64),
    )
