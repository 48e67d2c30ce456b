"""Read a Parquet or Arrow column of lists of numbers as a dense matrix, by row groups or batches."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.base.label_values import MAX_LABEL, MISSING_TEXTS
from streamsvm.data.checks import first_true
from streamsvm.errors import Call, InputError, Remedy, StoreError, extra
from streamsvm.store.array_file import MatrixFile
from streamsvm.store.container import StoredArray
from streamsvm.store.parquet import open_parquet, row_bytes

_READ_BYTES = 2**22  # approximate bytes per read of Parquet
_MAX_ROWS = 2**16  # maximum rows per read of Parquet


class ListArray(StoredArray):
    """Column of lists of numbers. A chunk is as long as the largest row group or batch, up to a limit."""

    def __init__(self, container: ListFile, shape: tuple[int, int], dtype: np.dtype) -> None:
        self.container: ListFile = container
        self.name = container.column
        chunk = min(int(np.diff(container.starts).max()), container.chunk)
        self._set_layout(shape, (chunk, shape[1]), dtype, 2, text=False)
        self._ahead: tuple[int, Any, Iterator[Any]] = (self.length, (), iter(()))

    def stored_bytes(self) -> int:
        return self.container.size

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        found = np.empty((stop - start, self.columns or 0), self.dtype)
        at = start
        with self.container.lock:
            while at < stop:
                lists = self._lists_from(at)[: stop - at]
                found[at - start : at - start + len(lists)] = self._values(lists, at)
                at += len(lists)
        return found[(slice(None), *columns)]

    def _lists_from(self, row: int) -> Any:
        """Return lists starting at `row`: continue the last read if possible, else read the row's group."""
        begin, lists, more = self._ahead
        self._ahead = (self.length, (), iter(()))  # after an error, nothing is kept
        starts = self.container.starts
        group = int(np.searchsorted(starts, row, "right")) - 1
        if row < begin or begin + len(lists) < starts[group]:
            begin, lists, more = int(starts[group]), (), self.container.values(self.name, group)
        while row >= begin + len(lists):
            begin += len(lists)
            lists = next(more)
        self._ahead = begin, lists, more
        return lists[row - begin :]

    def _values(self, lists: Any, row: int) -> np.ndarray:
        import pyarrow.compute as pc

        sizes = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
        if (at := first_true(sizes != self.columns)) is not None:
            what = "the list is missing" if sizes[at] < 0 else f"the list has {sizes[at]} numbers"
            raise StoreError(
                f"{self.container.path}: column {self.name!r}, row {row + at + 1}: {what}, but the first "
                f"row has {self.columns}; all rows must have the same number"
            )
        values = lists.flatten()
        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // max(1, self.columns or 0)
            raise StoreError(
                f"{self.container.path}: column {self.name!r}, row {row + at + 1}: a number is missing"
            )
        return values.to_numpy(zero_copy_only=False).reshape(len(lists), -1)


class ListFile(MatrixFile):
    """Parquet file, or Arrow IPC file or stream (from ``datasets``), with one column of lists of numbers."""

    kind = "table"

    def _open_matrix(self) -> None:
        self.lock = threading.Lock()  # Parquet readers are not thread-safe
        with extra(StoreError, f"reading {self.path} needs pyarrow, which is not installed", "tables"):
            import pyarrow as pa
        with self.wrapped(""):
            head = self._file.read(6)
            self._file.seek(0)
            self._parquet: Any = open_parquet(self._file) if head.startswith(b"PAR1") else None
            if self._parquet is not None:
                meta = self._parquet.metadata
                sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
                self._schema: Any = self._parquet.schema_arrow
            else:
                opened = pa.ipc.open_file if head == b"ARROW1" else pa.ipc.open_stream
                table = opened(pa.memory_map(str(self.path))).read_all()  # stays on disk unless compressed
                self._batches = table.to_batches()
                sizes = [batch.num_rows for batch in self._batches]
                self._schema = table.schema
        self.starts = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
        self.column = self._find_column()
        self.chunk = max(sizes)
        if self._parquet is not None:
            self.chunk = max(1, _READ_BYTES // row_bytes(meta, [self.column])[self.column])

    @property
    def reads_groups(self) -> bool:
        """True if every row group is small enough to read as a whole even if only a few rows are needed."""
        return int(np.diff(self.starts).max()) <= self.chunk

    def _find_column(self) -> str:
        from pyarrow import types

        value_types = {
            field.name: field.type.value_type
            for field in self._schema
            if any(
                is_it(field.type) for is_it in (types.is_list, types.is_large_list, types.is_fixed_size_list)
            )
        }
        found = [name for name, t in value_types.items() if types.is_floating(t) or types.is_integer(t)]
        if len(found) != 1:
            raise StoreError(
                f"{self.path} has {len(found)} columns of lists of numbers instead of one, among "
                f"{', '.join(self._schema.names)}",
                remedy=None if found else Remedy("convert its columns with {}", Call("convert")),
            )
        if not self.starts[-1]:
            raise StoreError(f"{self.path} has no rows")
        return str(found[0])

    def values(self, name: str, group: int = 0) -> Iterator[Any]:
        """Yield batches of a column's values, from row group or batch `group` to the end.

        String columns of Parquet files are dictionary-encoded.
        """
        groups = range(group, len(self.starts) - 1)
        if self._parquet is None:
            for batch in map(self._batches.__getitem__, groups):
                self.check_unchanged()  # reading a truncated memory-mapped file would crash
                yield batch.column(name)
            return
        file = self._parquet if name == self.column else open_parquet(self._file, [name])
        size = row_bytes(file.metadata, [name])[name]
        if name != self.column and size > MAX_LABEL:
            raise InputError(f"{self.path}: column {name!r} has {size:,} bytes per row, too many for labels")
        rows = max(1, min(_MAX_ROWS, _READ_BYTES // size))
        for batch in file.iter_batches(rows, list(groups), [name], use_threads=False):
            yield batch.column(0)

    def labels(self, name: str) -> tuple[Any, np.ndarray | None]:
        """Return the distinct values of a label column, and the position of each row's value among them."""
        from pyarrow import types

        if name not in self._schema.names or name == self.column:
            available = ", ".join(each for each in self._schema.names if each != self.column) or "none"
            raise InputError(f"{self.path} has no label column {name!r}; it has {available}")
        kind = self._schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_nested(kind) or types.is_temporal(kind):
            raise InputError(f"{self.path}: column {name!r} has type {kind}; labels must be text or integers")
        number: dict[Any, int] = {}
        found = []
        with self.wrapped(name):
            for column in self.values(name):
                column = column if types.is_dictionary(column.type) else column.dictionary_encode()
                texts = [None if v in MISSING_TEXTS else v for v in [*column.dictionary.to_pylist(), None]]
                numbers = np.array([number.setdefault(v, len(number)) for v in texts], np.int32)
                found.append(numbers[column.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)])
        return list(number), np.concatenate(found)

    def _array(self, path: str, axes: int) -> ListArray:
        kind = self._schema.field(self.column).type
        first = next(values[0].as_py() for values in self.values(self.column) if len(values))
        if not first:
            raise StoreError(f"{self.path}: column {self.column!r}, row 1: the list is empty")
        shape = int(self.starts[-1]), len(first)
        return ListArray(self, shape, np.dtype(kind.value_type.to_pandas_dtype()))
