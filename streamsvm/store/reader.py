"""Read streamsvm stores, checking all content before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Set
from typing import Any, cast

import numpy as np

from streamsvm.base import format
from streamsvm.base.text import check_classes
from streamsvm.data import checks
from streamsvm.data.names import feature_names
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.container import DAMAGED, Container, StoredArray
from streamsvm.store.matrices import read_pointers
from streamsvm.store.ranges import Ranges, lengths, number_at, numbers_in
from streamsvm.store.record import StoreRecord
from streamsvm.store.store import COLUMNS, Columns, Facts, Progress, RowSizes, Store, Whole, only

# Array that stores each column, and the message for an invalid value.
STORED = {
    "labels": (layout.CODES, "label code {value} is out of range"),
    "norm2": (layout.NORM2, "a norm is negative or not finite"),
    "cost": (layout.WEIGHT, "the weight of row {row} is negative or not finite"),
    "qid": (layout.QID, "the group of row {row} is negative"),
    "hold_out_by": (layout.HASHES, "the hash of row {row} is negative"),
    "names": (layout.NAMES, "a row number is negative"),
}


class ContainerStore(Store):
    """Store in one container; `record` is None unless streamsvm wrote the store."""

    def __init__(
        self,
        container: Container,
        arrays: dict[str, StoredArray],
        facts: Facts,
        record: StoreRecord | None = None,
    ) -> None:
        check_classes(facts.classes, container.path, StoreError)
        self.facts = facts
        self._arrays = arrays
        self._bytes_read = 0
        self._container = container
        self.record = cast(StoreRecord, record)

    @property
    def members(self) -> list[Store]:
        return [self]

    @property
    def arrays(self) -> dict[str, StoredArray]:
        return self._arrays

    @property
    def bytes_read(self) -> int:
        return self._bytes_read

    def sizes(self, ranges: Ranges) -> RowSizes:
        if self.dense_rows:
            nnz = np.full(int(lengths(ranges).sum()), self.n_features)
        else:
            nnz = np.diff(self._pointers(layout.INDPTR, ranges, self.nnz)[1])
        labels = np.zeros(1, np.int64)
        if self.multilabel:
            _, labels = self._pointers(layout.LABELS_INDPTR, ranges, self.n_labels)
        return RowSizes(nnz, np.diff(labels))

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        wanted = wanted & self.facts.stored
        found: Columns = {}
        for name in COLUMNS:  # in a fixed order, unlike a set
            if name in wanted and name not in found:
                found |= self._read_column(name, ranges)
        return only(found, wanted)

    def _read_column(self, name: str, ranges: Ranges) -> Columns:
        """Read and check a column; for `label_codes`, also return `label_indptr`."""
        if name == "numbers":
            return {name: numbers_in(ranges)}
        if name == "label_codes":
            return self._label_sets(ranges)
        array, reason = STORED[name]
        values = self._read(array, ranges)
        if name == "labels":
            at = checks.first_outside(values, self.n_classes, format.UNSEEN_LABEL)
        else:
            at = checks.first_no_amount(values)
        if at is not None:
            row = number_at(ranges, at)
            raise self.arrays[array].damage(row, reason.format(value=values[at], row=row + 1))
        return {name: values}

    def _label_sets(self, ranges: Ranges) -> Columns:
        spans, indptr = self._pointers(layout.LABELS_INDPTR, ranges, self.n_labels)
        codes = self._read(layout.LABELS_CODES, spans)
        violation = checks.find_index_violation(codes, indptr, self.n_classes, "label code")
        if violation is not None:
            element = number_at(spans, violation.element)
            raise self.arrays[layout.LABELS_CODES].damage(element, violation.reason)
        return {"label_codes": codes.astype(format.LABEL_DTYPE, copy=False), "label_indptr": indptr}

    def read(self, ranges: Ranges) -> Rows:
        matrix = self._read_matrix(ranges)
        return Rows(**matrix, **self.columns(ranges, self.facts.stored - {"names"}))

    def _read_matrix(self, ranges: Ranges) -> dict[str, Any]:
        if self.dense_rows:
            return self._read_dense(ranges)
        spans, indptr = self._pointers(layout.INDPTR, ranges, self.nnz)
        data, indices = self._read(layout.DATA, spans), self._read(layout.INDICES, spans)
        violation = checks.find_violation(data, indices, indptr, self.n_features)
        if violation is not None:
            element = number_at(spans, violation.element)
            raise self.arrays[f"X/{violation.array}"].damage(element, violation.reason)
        return {"data": data, "indices": indices, "indptr": indptr}

    def _read_dense(self, ranges: Ranges) -> dict[str, Any]:
        matrix = self._read(layout.MATRIX, ranges)
        data = matrix.reshape(-1).astype(self.dtype, copy=False)
        indptr = np.arange(len(matrix) + 1) * self.n_features
        norm2 = checks.row_norms(data, indptr)
        if (row := checks.first_false(np.isfinite(norm2))) is not None:
            reason = "a value or a norm is not finite"
            raise self.arrays[layout.MATRIX].damage(number_at(ranges, row), reason)
        return {"data": data, "indices": None, "indptr": indptr, "norm2": norm2}

    def _pointers(self, name: str, ranges: Ranges, end: int) -> tuple[Ranges, np.ndarray]:
        spans, indptr = read_pointers(self.arrays[name], ranges, end)
        self._bytes_read += indptr.nbytes
        return spans, indptr

    def _read(self, name: str, ranges: Ranges) -> np.ndarray:
        values = self.arrays[name].read_ranges(ranges)
        self._bytes_read += values.nbytes
        return values

    def whole(self, what: Whole) -> Any:
        if what == "fingerprint":
            return self.record.fingerprint
        if what == "class_counts":
            return self.arrays[self.record.counts].read(0, self.n_classes)
        return self._feature_names() if what == "feature_names" else self._statistics()

    def _feature_names(self) -> list[str] | None:
        if not self.record.feature_names:
            return None
        array = self.arrays[layout.FEATURES]
        names = array.read(0, self.n_features).tolist()
        if layout.text_digest(names) != self.record.arrays[layout.FEATURES]:
            raise array.damage(0, "the feature names differ from the store's record")
        return feature_names(names, str(self.path))

    def _statistics(self) -> Statistics | None:
        if not self.record.statistics:
            return None
        arrays = (self.arrays[f"var/{name}"] for name in layout.STATISTICS)
        count, *moments = (array.read(0, self.n_features) for array in arrays)
        return Statistics(self.n_rows, count.astype(np.float64), np.stack(moments))

    def verify(self, progress: Progress | None = None) -> None:
        self.feature_names()  # compared with the record, as the classes were on opening
        numbers = {name: array for name, array in self.arrays.items() if array.dtype}
        done, total = 0, sum(array.length * array.width for array in numbers.values())
        for name, array in numbers.items():
            sha = hashlib.sha256()
            for start in range(0, array.length, array.chunk):
                stop = min(start + array.chunk, array.length)
                values = array.read(start, stop)
                values = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
                sha.update(values.reshape(-1).data)
                done += values.nbytes
                if progress is not None:
                    progress(done, total)
            if sha.hexdigest() != self.record.arrays[name]:
                raise array.error(f" does not match the store's record ({DAMAGED})")

    def close(self) -> None:
        self._container.close()
