"""Keep rows on disk until they are sorted, in buckets: files of rows whose keys share their first bits.

The sort key of a row is a hash of (seed, row number). If groups are kept together, it is a hash of (seed,
group), and the rows of a group stay in the order of their numbers. If there is no seed, the key is the row
number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from streamsvm_converters.kinds.reader import NO_NORMS
from streamsvm_converters.libsvm.groups import joined

from streamsvm.data.checks import row_pieces
from streamsvm.data.rows import Rows
from streamsvm.errors import StoreError
from streamsvm.kernels.jit import kernel
from streamsvm.kernels.random import draws
from streamsvm.kernels.simd import prefetch
from streamsvm.store.ranges import lengths, numbers_in

_VALUES_PER_BATCH = 2**19  # few enough for a batch to stay in the processor cache until it is used
_UINT64_MASK = 2**64 - 1
# Dtypes of the arrays in files, except values and indices. Arrays that are not listed here are int64.
_DTYPES: dict[str, Any] = {
    "labels": np.int32, "label_codes": np.int32, "norm2": np.float64, "cost": np.float64,
}  # fmt: skip
_TAKEN = ("cost", "qid", "numbers", "hold_out_by")
_PREFETCH_ROWS = 8


@dataclass
class Bucket:
    """File of rows whose keys share their first bits. An empty bucket has no file.

    `n_labels` is the total length of the label lists. `index_size` is the size of the largest index dtype in
    bytes, or 0 for dense rows. If `smallest_group` equals `largest_group`, the bucket cannot be split.
    """

    path: Path
    n_rows: int = 0
    nnz: int = 0
    n_labels: int = 0
    index_size: int = 0
    smallest_group: int = 2**63 - 1
    largest_group: int = -1

    def count(self, rows: Rows) -> None:
        self.n_rows += rows.n_rows
        self.nnz += len(rows.data)
        self.n_labels += len(rows.label_codes)
        self.index_size = max(self.index_size, _index_size(rows))
        self.smallest_group = int(rows.qid.min(initial=self.smallest_group))
        self.largest_group = int(rows.qid.max(initial=self.largest_group))


@dataclass(frozen=True)
class WaitingRows:
    """Format of the rows on disk in `folder`, and the order in which they are read back.

    If `seed` is None, the rows are in the order of their numbers. `limit` is the memory limit for one bucket
    in bytes. `columns` names the optional columns that the rows have: "cost", "qid", "hold_out_by" or
    "label_codes". If it contains "qid", rows with the same `qid` (a group) stay together.
    """

    folder: Path
    dtype: np.dtype
    seed: int | None
    limit: int
    columns: Collection[str] = ()

    def keys(self, rows: Rows) -> np.ndarray:
        """Return the sort keys of rows as uint64."""
        seed = np.uint64((self.seed or 0) & _UINT64_MASK)
        return draws(seed, rows.qid if "qid" in self.columns else rows.numbers)

    def bytes_of(self, bucket: Bucket) -> int:
        """Return the size of a bucket in memory, in bytes."""
        per_row = 28 + 8 * len(self.columns)
        per_value = bucket.index_size + self.dtype.itemsize
        return bucket.nnz * per_value + bucket.n_rows * per_row + bucket.n_labels * 4

    def must_split(self, bucket: Bucket) -> bool:
        """Return True if a bucket exceeds the memory limit and can be split."""
        has_one_key = bucket.smallest_group == bucket.largest_group or bucket.n_rows == 1
        return self.seed is not None and self.bytes_of(bucket) > self.limit and not has_one_key

    def sorted(
        self, batches: Iterable[Rows], base: int, index_dtype: np.dtype, buffers: Iterator[ValueBuffers]
    ) -> Iterator[Rows]:
        """Yield the rows of `batches` in the order of their keys, without norms.

        If `seed` is set, `batches` must be a single batch, unless all rows have the same key. `base` is
        subtracted from all indices, which get the dtype `index_dtype`. Each yielded batch uses the arrays in
        the next item of `buffers`.
        """
        for rows in batches:
            if self.seed is None:
                order = np.argsort(rows.numbers)
            elif "qid" in self.columns:
                order = np.lexsort((rows.numbers, self.keys(rows)))
            else:
                order = np.argsort(self.keys(rows))
            sizes = np.diff(rows.indptr)[order]
            for start, stop in row_pieces(np.cumsum(sizes) - sizes, len(rows.data), _VALUES_PER_BATCH):
                yield take(rows, order[start:stop], base, index_dtype, next(buffers))

    @staticmethod
    def write(file: BinaryIO, rows: Rows) -> None:
        """Append rows to a file as a segment: the index size, the lengths of the arrays, and the arrays."""
        head = [_index_size(rows), *(0 if array is None else len(array) for array in rows)]
        for array in (np.array(head, np.int64), *rows):
            if array is not None:
                file.write(np.ascontiguousarray(array).data)

    def read(self, bucket: Bucket) -> Iterator[Rows]:
        """Yield the rows of a bucket in batches that respect the memory limit."""
        batch: list[Rows] = []
        size = Bucket(bucket.path)
        with bucket.path.open("rb") as file:
            while head := file.read(8 * (1 + len(Rows._fields))):
                rows = self._segment(file, *np.frombuffer(head, np.int64).tolist())
                size.count(rows)
                if batch and self.bytes_of(size) > self.limit:
                    yield joined(batch)
                    batch, size = [], Bucket(bucket.path)
                    size.count(rows)
                batch.append(rows)
            if batch:
                yield joined(batch)

    def _segment(self, file: BinaryIO, index_size: int, *lengths: int) -> Rows:
        dtypes = _DTYPES | {"data": self.dtype, "indices": f"i{index_size or 4}"}
        arrays: dict[str, Any] = {}
        for name, length in zip(Rows._fields, lengths, strict=True):
            array = arrays[name] = np.empty(length, dtypes.get(name, np.int64))
            if length and file.readinto(array.data.cast("B")) != array.nbytes:  # type: ignore[attr-defined]
                raise StoreError(f"{file.name}: this temporary file of rows is truncated; convert again")
        return Rows(**arrays if index_size else arrays | {"indices": None})


def _index_size(rows: Rows) -> int:
    return 0 if rows.indices is None else rows.indices.itemsize


class ValueBuffers:
    """Arrays for the values and indices of a batch of rows, which are reused for later batches."""

    def __init__(self) -> None:
        self._data, self._indices = np.empty(0), np.empty(0)

    def arrays(self, nnz: int, dtype: np.dtype, index_dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return a value array and an index array, both of length `nnz`."""
        if len(self._data) < nnz or (self._data.dtype, self._indices.dtype) != (dtype, index_dtype):
            capacity = nnz + nnz // 4
            self._data, self._indices = np.empty(capacity, dtype), np.empty(capacity, index_dtype)
        return self._data[:nnz], self._indices[:nnz]


def take(rows: Rows, order: np.ndarray, base: int, index_dtype: np.dtype, buffers: ValueBuffers) -> Rows:
    """Return the rows at positions `order` without norms, with `base` subtracted from the indices."""
    indptr = np.zeros(len(order) + 1, np.int64)
    np.cumsum(rows.indptr[order + 1] - rows.indptr[order], out=indptr[1:])
    data, indices = buffers.arrays(int(indptr[-1]), rows.data.dtype, index_dtype)
    if rows.dense:
        matrix = rows.matrix
        np.take(matrix, order, axis=0, out=data.reshape(len(order), matrix.shape[1]), mode="clip")
    else:
        _gather(rows.data, rows.indices, rows.indptr, order, base, data, indices)
    present = {name: column[order] for name in _TAKEN if len(column := getattr(rows, name))}
    result = Rows(data, None if rows.dense else indices, indptr, rows.labels[order], NO_NORMS, **present)
    if len(rows.label_indptr):
        lists = np.column_stack([rows.label_indptr[order], rows.label_indptr[order + 1]])
        starts = np.concatenate([[0], np.cumsum(lengths(lists))])
        result = result._replace(label_codes=rows.label_codes[numbers_in(lists)], label_indptr=starts)
    return result


@kernel
def _gather(data, indices, indptr, order, base, out_data, out_indices):
    size = 0
    for place in range(len(order)):
        if place + _PREFETCH_ROWS < len(order):  # because rows are scattered in memory
            ahead = indptr[order[place + _PREFETCH_ROWS]]
            prefetch(data, ahead)
            prefetch(indices, ahead)
        begin = indptr[order[place]]
        length = indptr[order[place] + 1] - begin
        for slot in range(length):
            out_data[size + slot] = data[begin + slot]
        for slot in range(length):
            out_indices[size + slot] = indices[begin + slot] - base
        size += length
