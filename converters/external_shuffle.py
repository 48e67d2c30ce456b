"""External shuffle: rows wait on disk until all are read, and come back in random or original order.

The sort key of a row is a hash of (seed, row number), or of (seed, group) if the rows of a group stay
together; these then come in the order of their numbers. Rows go to buckets by the top bits of their key; a
bucket small enough is loaded, sorted and yielded, a larger one is first split by its next bits. The order is
therefore that of the keys alone, whatever the memory. Rows that all fit into one bucket stay in memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from streamsvm.data.csr_checks import row_pieces
from streamsvm.data.rows import Rows, row_span
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.random import draws
from streamsvm.kernels.simd import prefetch

_PIECE = 2**19  # values taken from a sorted bucket at a time, so that they are used while in the cache
_BITS = (
    6  # bits of the key that one level sorts by at most: 64 buckets, so that the pieces written stay large
)
_MASK = 2**64 - 1
_AHEAD = 8  # rows
_NO_NORMS = np.empty(0, dtype=np.float64)  # the store computes the norms of the values it stores

NumberedRows = tuple[Rows, np.ndarray]


class ExternalShuffle:
    """Rows that are stored on disk and yielded in the order of their keys.

    A context manager around the calls of `append`; `drain` follows. The files take 8 bytes per value (12 in
    float64; 4 more where indices need int64) and 20 per row, and 8 more for each of weight, group and list of
    labels, and 4 for each label of a list; each bucket is deleted once it is drained.

    Parameters
    ----------
    folder : Path
        An existing folder; the files in it belong to the shuffle.
    dtype : dtype
        Type of the values.
    columns : collection of str
        Which of "cost", "qid" and "label_codes" the rows have. With "qid" the rows of a group stay together.
    seed : int or None
        None keeps the order of the row numbers.
    limit : int
        Bytes of memory for one bucket.
    expected : int, optional
        Bytes of memory that all rows would take, which determines the number of buckets. By default there
        are as many as possible.
    name : str
        Prefix of the file names.
    used_bits : int
        Bits of the keys by which the rows have been split already.
    """

    def __init__(
        self,
        folder: Path,
        dtype: np.dtype,
        seed: int | None,
        limit: int,
        *,
        columns: Collection[str] = (),
        expected: int | None = None,
        name: str = "rows",
        used_bits: int = 0,
    ) -> None:
        self._folder, self._name = folder, name
        self._dtype, self._seed, self._limit = dtype, seed, limit
        self._used_bits = used_bits
        self._columns = columns
        self._weighted, self._grouped, self._multilabel = (
            name in columns for name in ("cost", "qid", "label_codes")
        )
        wanted = _BITS if expected is None else (expected // limit).bit_length()
        self._bits = 0 if seed is None else min(_BITS, wanted)
        self._files: list[BinaryIO | None] = [None] * (1 << self._bits)
        self._space = _Space()
        self._held = _HeldRows(min(limit, expected or limit), dtype) if self._bits == 0 else None
        self._index_size = 4  # 8 once an index needs it
        self._rows = np.zeros(1 << self._bits, dtype=np.int64)
        self._nnz = np.zeros(1 << self._bits, dtype=np.int64)
        self._labels = np.zeros(1 << self._bits, dtype=np.int64)
        # The least and largest group of each bucket: one that is alone in it cannot be split.
        self._groups = np.repeat([[np.iinfo(np.int64).max], [-1]], 1 << self._bits, axis=1)

    def append(self, rows: Rows, numbers: np.ndarray) -> None:
        """Add rows with their distinct numbers; those of one bucket become one segment of its file."""
        if self._bits == 0:
            self._count(0, rows)
            if self._held is not None and (
                self._bytes_of(0) > self._limit or not self._held.add(rows, numbers)
            ):
                for earlier in self._held.batches:
                    self._write(0, *earlier)
                self._held = None
            if self._held is None:
                self._write(0, rows, numbers)
            return
        shift = np.uint64(64 - self._used_bits - self._bits)
        buckets = (self._keys(rows, numbers) >> shift) & np.uint64((1 << self._bits) - 1)
        order = np.argsort(buckets, kind="stable")
        rows, numbers = _take(rows, order, 0, rows.indices.dtype, self._space), numbers[order]
        found, starts = np.unique(buckets[order], return_index=True)
        for bucket, start, stop in zip(found.tolist(), starts, [*starts[1:], len(order)], strict=True):
            part = row_span(rows, int(start), int(stop))
            self._count(bucket, part)
            self._write(bucket, part, numbers[start:stop])

    @property
    def n_labels(self) -> int:
        """Labels of all lists of labels together."""
        return int(self._labels.sum())

    def drain(self, base: int, index_dtype: np.dtype) -> Iterator[NumberedRows]:
        """Yield all rows in order, without norms, and delete their files.

        The arrays of a batch are used again for the one after the next.

        Parameters
        ----------
        base : int
            Is subtracted from all indices.
        index_dtype : dtype
            Type of the indices afterwards.
        """
        spaces = itertools.cycle([_Space(), _Space()])
        for bucket in np.flatnonzero(self._rows).tolist():
            path = self._path(bucket)
            size = self._bytes_of(bucket)
            least, largest = self._groups[:, bucket]
            alone = least == largest or self._rows[bucket] == 1
            if self._seed is not None and size > self._limit and not alone:
                finer = ExternalShuffle(
                    self._folder, self._dtype, self._seed, self._limit, columns=self._columns,
                    expected=2 * size, name=path.name, used_bits=self._used_bits + self._bits,
                )  # fmt: skip
                with finer:
                    for rows, numbers in self._pieces(bucket):
                        finer.append(rows, numbers)
                path.unlink()
                yield from finer.drain(base, index_dtype)
                continue
            for rows, numbers in self._pieces(bucket):  # one piece if there are several keys to sort by
                if self._seed is None:
                    order = np.argsort(numbers)
                elif self._grouped:
                    order = np.lexsort((numbers, self._keys(rows, numbers)))
                else:
                    order = np.argsort(self._keys(rows, numbers))
                lengths = np.diff(rows.indptr)[order]
                for start, stop in row_pieces(np.cumsum(lengths) - lengths, len(rows.data), _PIECE):
                    taken = order[start:stop]
                    yield _take(rows, taken, base, index_dtype, next(spaces)), numbers[taken]
            path.unlink(missing_ok=True)  # there is none if the rows were held

    def __enter__(self) -> ExternalShuffle:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            if file is not None:
                file.close()

    def _keys(self, rows: Rows, numbers: np.ndarray) -> np.ndarray:
        return draws(np.uint64((self._seed or 0) & _MASK), rows.qid if self._grouped else numbers)

    def _path(self, bucket: int) -> Path:
        return self._folder / f"{self._name}-{bucket:02x}"

    def _bytes(self, n_rows: int, nnz: int, n_labels: int) -> int:
        """Return the bytes of memory that rows take once loaded."""
        per_row = 28 + 8 * len(self._columns)
        return nnz * (self._index_size + self._dtype.itemsize) + n_rows * per_row + n_labels * 4

    def _bytes_of(self, bucket: int) -> int:
        return self._bytes(*(int(counts[bucket]) for counts in (self._rows, self._nnz, self._labels)))

    def _per_row(self, rows: Rows) -> list[np.ndarray]:
        """Return the further arrays of rows that are stored, with an entry for each row."""
        lists = [np.diff(rows.label_indptr)] if self._multilabel else []
        return [rows.cost] * self._weighted + [rows.qid] * self._grouped + lists

    def _write(self, bucket: int, rows: Rows, numbers: np.ndarray) -> None:
        file = self._files[bucket]
        if file is None:
            file = self._files[bucket] = self._path(bucket).open("wb", buffering=2**16)
        n_rows, nnz, index_size = rows.n_rows, len(rows.data), rows.indices.itemsize
        head = np.array([n_rows, nnz, index_size, len(rows.label_codes)], dtype=np.int64)
        own = (head, numbers, rows.labels, np.diff(rows.indptr), *self._per_row(rows))
        for part in (*own, rows.label_codes, rows.indices, rows.data):
            file.write(np.ascontiguousarray(part).data)

    def _count(self, bucket: int, rows: Rows) -> None:
        """Count rows that are added to a bucket."""
        self._index_size = max(self._index_size, rows.indices.itemsize)
        self._rows[bucket] += rows.n_rows
        self._nnz[bucket] += len(rows.data)
        self._labels[bucket] += len(rows.label_codes)
        if self._grouped and rows.n_rows:
            least, largest = self._groups[:, bucket]
            self._groups[:, bucket] = min(least, rows.qid.min()), max(largest, rows.qid.max())

    def _pieces(self, bucket: int) -> Iterator[NumberedRows]:
        """Yield the rows of a bucket in the order of `append`, as many at a time as stay within the limit."""
        if self._held is not None:
            yield self._held.joined()
            return
        with self._path(bucket).open("rb") as file:
            held: list[_Segment] = []
            size = 0
            while head := file.read(32):
                segment = _Segment(file.tell(), *np.frombuffer(head, dtype=np.int64).tolist())
                more = self._bytes(segment.n_rows, segment.nnz, segment.n_labels)
                if held and size + more > self._limit:
                    yield self._load(file, held)
                    held, size = [], 0
                held.append(segment)
                size += more
                per_row, per_value = 20 + 8 * len(self._columns), segment.index_size + self._dtype.itemsize
                stored = per_row * segment.n_rows + per_value * segment.nnz + 4 * segment.n_labels
                file.seek(segment.at + stored)
            yield self._load(file, held)

    def _load(self, file: BinaryIO, segments: list[_Segment]) -> NumberedRows:
        """Return the rows of some segments, one after another."""
        n_rows = sum(segment.n_rows for segment in segments)
        nnz = sum(segment.nnz for segment in segments)
        n_labels = sum(segment.n_labels for segment in segments)
        data = np.empty(nnz, self._dtype)
        indices = np.empty(nnz, f"i{max(segment.index_size for segment in segments)}")
        numbers, labels = np.empty(n_rows, np.int64), np.empty(n_rows, np.int32)
        indptr = np.zeros(n_rows + 1, np.int64)
        cost = np.empty(n_rows * self._weighted)
        qid = np.empty(n_rows * self._grouped, np.int64)
        codes = np.empty(n_labels, np.int32)
        label_indptr = np.zeros((n_rows + 1) * self._multilabel, np.int64)
        row = at = label = 0
        for segment in segments:
            file.seek(segment.at)
            rows, values = slice(row, row + segment.n_rows), slice(at, at + segment.nnz)
            _fill(file, numbers[rows])
            _fill(file, labels[rows])
            _fill(file, indptr[1:][rows])
            for own in (cost, qid, label_indptr[1:]):
                _fill(file, own[rows])
            _fill(file, codes[label : label + segment.n_labels])
            if segment.index_size == indices.itemsize:
                _fill(file, indices[values])
            else:
                narrow = np.empty(segment.nnz, f"i{segment.index_size}")
                _fill(file, narrow)
                indices[values] = narrow
            _fill(file, data[values])
            row, at, label = rows.stop, values.stop, label + segment.n_labels
        np.cumsum(indptr, out=indptr)
        np.cumsum(label_indptr, out=label_indptr)
        return Rows(data, indices, indptr, labels, _NO_NORMS, cost, codes, label_indptr, qid), numbers


class _HeldRows:
    """Rows in memory, their values and indices (int32) in two arrays that have room for `limit` bytes."""

    def __init__(self, limit: int, dtype: np.dtype) -> None:
        room = limit // (dtype.itemsize + 4)
        self._data, self._indices = np.empty(room, dtype), np.empty(room, np.int32)
        self._nnz = 0
        self.batches: list[NumberedRows] = []

    def add(self, rows: Rows, numbers: np.ndarray) -> bool:
        """Copy rows; return False, and hold no more than before, if there is no room for them."""
        own = slice(self._nnz, self._nnz + len(rows.data))
        if own.stop > len(self._data) or rows.indices.dtype != np.int32:
            return False
        self._data[own], self._indices[own] = rows.data, rows.indices
        self._nnz = own.stop
        self.batches.append((rows._replace(data=self._data[own], indices=self._indices[own]), numbers))
        return True

    def joined(self) -> NumberedRows:
        """Return the rows of all batches, one after another."""
        parts, numbers = zip(*self.batches, strict=True)
        per_row = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("labels", "cost", "qid", "label_codes")
        }
        rows = Rows(
            self._data[: self._nnz], self._indices[: self._nnz],
            _joined_indptr([part.indptr for part in parts]), per_row["labels"], _NO_NORMS, per_row["cost"],
            per_row["label_codes"], _joined_indptr([part.label_indptr for part in parts]), per_row["qid"],
        )  # fmt: skip
        return rows, np.concatenate(numbers)


def _joined_indptr(parts: list[np.ndarray]) -> np.ndarray:
    """Join the row pointers of batches; rows without lists of labels have none."""
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate([parts[0][:1], np.cumsum(lengths)])


class _Segment(NamedTuple):
    """The rows of one `append`, from offset `at` of the bucket's file."""

    at: int
    n_rows: int
    nnz: int
    index_size: int
    n_labels: int


def _fill(file: BinaryIO, array: np.ndarray) -> None:
    if len(array) and file.readinto(array.data.cast("B")) != array.nbytes:  # type: ignore[attr-defined]
        raise OSError(f"{file.name} has been truncated")


class _Space:
    """Arrays for the values of rows that are taken; those of the next rows take their place."""

    def __init__(self) -> None:
        self._data, self._indices = np.empty(0), np.empty(0)

    def arrays(self, nnz: int, dtype: np.dtype, index_dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return an array for values and one for indices, of length `nnz`."""
        if len(self._data) < nnz or (self._data.dtype, self._indices.dtype) != (dtype, index_dtype):
            room = nnz + nnz // 4
            self._data, self._indices = np.empty(room, dtype), np.empty(room, index_dtype)
        return self._data[:nnz], self._indices[:nnz]


def _take(rows: Rows, order: np.ndarray, base: int, index_dtype: np.dtype, space: _Space) -> Rows:
    """Return rows `order` without norms, each index less `base`; values and indices are in `space`."""
    indptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(rows.indptr[order + 1] - rows.indptr[order], out=indptr[1:])
    data, indices = space.arrays(int(indptr[-1]), rows.data.dtype, index_dtype)
    _gather(rows.data, rows.indices, rows.indptr, order, base, data, indices)
    taken = Rows(data, indices, indptr, rows.labels[order], _NO_NORMS)
    if len(rows.cost):
        taken = taken._replace(cost=rows.cost[order])
    if len(rows.qid):
        taken = taken._replace(qid=rows.qid[order])
    if len(rows.label_indptr):
        lengths = np.diff(rows.label_indptr)[order]
        ends = np.cumsum(lengths)
        entries = np.arange(lengths.sum()) + np.repeat(rows.label_indptr[order] - (ends - lengths), lengths)
        taken = taken._replace(
            label_codes=rows.label_codes[entries], label_indptr=np.concatenate([[0], ends])
        )
    return taken


@kernel
def _gather(data, indices, indptr, order, base, out_data, out_indices):
    """Write rows `order` of a CSR matrix to the `out` arrays, each index less `base`."""
    size = 0
    for place in range(len(order)):
        if place + _AHEAD < len(order):  # rows are far apart: begin with one while others are copied
            ahead = indptr[order[place + _AHEAD]]
            prefetch(data, ahead)
            prefetch(indices, ahead)
        begin = indptr[order[place]]
        length = indptr[order[place] + 1] - begin
        for slot in range(length):
            out_data[size + slot] = data[begin + slot]
        for slot in range(length):
            out_indices[size + slot] = indices[begin + slot] - base
        size += length
