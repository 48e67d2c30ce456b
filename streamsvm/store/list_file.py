"""Columns of lists of numbers in Parquet and Arrow files: a dense matrix, read by row groups or batches."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from streamsvm.base.label_values import MISSING_TEXTS
from streamsvm.data.checks import first_true
from streamsvm.errors import Call, InputError, Remedy, StoreError, extra
from streamsvm.store.array_file import MatrixFile
from streamsvm.store.container import StoredArray


class ListArray(StoredArray):
    """Column of lists, each of which is a row. A chunk is the largest row group or batch."""

    def __init__(self, container: ListFile, shape: tuple[int, int], dtype: np.dtype) -> None:
        self.container: ListFile = container
        self.name = container.column
        most = int(np.diff(container.starts).max())
        self._set_layout(shape, (most, shape[1]), dtype, 2, text=False)

    def stored_bytes(self) -> int:
        return self.container.size

    def _read(self, start: int, stop: int, *columns: slice) -> np.ndarray:
        found = np.empty((stop - start, self.columns or 0), self.dtype)
        starts = self.container.starts
        for group in range(int(np.searchsorted(starts, start, "right")) - 1, len(starts) - 1):
            begin, end = max(start, int(starts[group])), min(stop, int(starts[group + 1]))
            if begin < end:
                at, row = begin - start, begin - int(starts[group])
                for lists in self.container.column_of(group, self.name).slice(row, end - begin).chunks:
                    found[at : at + len(lists)] = self._values(lists, start + at)
                    at += len(lists)
        return found[(slice(None), *columns)]

    def _values(self, lists: Any, row: int) -> np.ndarray:
        """Return the numbers of some lists; raises StoreError unless they are of one length, without gaps."""
        import pyarrow.compute as pc

        sizes = pc.fill_null(pc.list_value_length(lists), -1).to_numpy(zero_copy_only=False)
        if (at := first_true(sizes != self.columns)) is not None:
            what = "no list" if sizes[at] < 0 else f"a list of {sizes[at]}"
            raise StoreError(
                f"{self.container.path}: column {self.name!r}, row {row + at}: {what}, and the first row has "
                f"{self.columns} numbers"
            )
        values = lists.flatten()
        if values.null_count:
            at = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // max(1, self.columns or 0)
            raise StoreError(
                f"{self.container.path}: column {self.name!r}, row {row + at}: a number is missing"
            )
        return values.to_numpy(zero_copy_only=False).reshape(len(lists), -1)


class ListFile(MatrixFile):
    """Parquet or Arrow file (IPC, a file or a stream, as ``datasets`` writes it) with one column of lists."""

    kind = "table"

    def _open_matrix(self) -> None:
        self._lock = threading.Lock()  # a reader of Parquet is for one thread
        with extra(StoreError, f"{self.path} is read with pyarrow, which is not installed", "tables"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        with self.wrapped(""):
            head = self._file.read(6)
            self._file.seek(0)
            self._parquet: Any = pq.ParquetFile(self._file) if head.startswith(b"PAR1") else None
            if self._parquet is not None:
                meta = self._parquet.metadata
                sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
                self._schema: Any = self._parquet.schema_arrow
            else:
                opened = pa.ipc.open_file if head == b"ARROW1" else pa.ipc.open_stream
                table = opened(pa.memory_map(str(self.path))).read_all()  # not into memory, unless compressed
                self._batches = table.to_batches()
                sizes = [batch.num_rows for batch in self._batches]
                self._schema = table.schema
        self.starts = np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])
        self.column = self._find_column()

    def _find_column(self) -> str:
        from pyarrow import types

        of_lists = {
            field.name: field.type.value_type
            for field in self._schema
            if any(
                is_it(field.type) for is_it in (types.is_list, types.is_large_list, types.is_fixed_size_list)
            )
        }
        found = [name for name, of in of_lists.items() if types.is_floating(of) or types.is_integer(of)]
        if len(found) != 1:
            raise StoreError(
                f"{self.path} has {len(found)} columns of lists of numbers, not one, among "
                f"{', '.join(self._schema.names)}",
                remedy=None if found else Remedy("make a store of its columns with {}", Call("convert")),
            )
        if not self.starts[-1]:
            raise StoreError(f"{self.path} has no rows")
        return str(found[0])

    def column_of(self, group: int, name: str) -> Any:
        """Return a column of a row group or batch, as a chunked array."""
        if self._parquet is None:
            import pyarrow as pa

            self.check_unchanged()  # a file that became shorter cannot be read from a memory map
            return pa.chunked_array([self._batches[group].column(name)])
        with self._lock:
            return self._parquet.read_row_group(group, columns=[name]).column(0)

    def labels(self, name: str) -> np.ndarray:
        """Return a column of labels: texts, integers, booleans or whole numbers."""
        from pyarrow import types

        if name not in self._schema.names or name == self.column:
            others = ", ".join(each for each in self._schema.names if each != self.column) or "none"
            raise InputError(f"{self.path} has no column {name!r} of labels; it has {others}")
        with self.wrapped(name):
            import pyarrow as pa

            groups = range(len(self.starts) - 1)
            values = pa.chunked_array([chunk for at in groups for chunk in self.column_of(at, name).chunks])
            kind = values.type
            if types.is_dictionary(kind):
                kind = kind.value_type
                values = values.cast(kind)
        if types.is_string(kind) or types.is_large_string(kind):
            return np.array(["" if v is None or v in MISSING_TEXTS else v for v in values.to_pylist()], str)
        is_boolean = types.is_boolean(kind) and not values.null_count
        if is_boolean or types.is_integer(kind) or types.is_floating(kind):
            return np.asarray(values.to_numpy())
        raise InputError(f"{self.path}: column {name!r} is of {kind}; labels are texts, integers or booleans")

    def _array(self, path: str, axes: int) -> ListArray:
        kind = self._schema.field(self.column).type
        first = self.column_of(int(np.argmax(np.diff(self.starts) > 0)), self.column)[0].as_py()
        if not first:
            raise StoreError(f"{self.path}: column {self.column!r}, row 0: it has no numbers")
        shape = int(self.starts[-1]), len(first)
        return ListArray(self, shape, np.dtype(kind.value_type.to_pandas_dtype()))
