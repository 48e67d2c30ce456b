"""Writing of rows to the arrays of a store: each batch is checked and counted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.data import checks
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import StatisticsBuilder
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.array_writer import ArrayWriter
from streamsvm.store.reader import STORED, first_invalid
from streamsvm.store.record import Contents


class Sizes(NamedTuple):
    """Lengths of the arrays of some rows."""

    n_rows: int = 0
    nnz: int = 0
    n_labels: int = 0  # of a store with lists of labels


class RowsWriter:
    """Writer that appends rows to the arrays of a store.

    Parameters
    ----------
    path : Path
        Of the store, for messages.
    contents : Contents
    arrays : mapping of str to ArrayWriter
        Those with an entry for each row, value or label, by name.
    statistics : StatisticsBuilder or None
        Accumulates the statistics of the rows.

    Attributes
    ----------
    sizes : Sizes
        Of the rows so far.
    class_counts : ndarray of int64, shape (n_classes,)
    weight_range : tuple of float
        The least and the largest weight.
    n_groups : int
    """

    def __init__(
        self,
        path: Path,
        contents: Contents,
        arrays: Mapping[str, ArrayWriter],
        statistics: StatisticsBuilder | None,
    ) -> None:
        self.path, self._contents, self._arrays, self._statistics = path, contents, arrays, statistics
        self.sizes = Sizes()
        self.class_counts = np.zeros(contents.n_classes, np.int64)
        self.weight_range = np.inf, -np.inf
        self.n_groups, self._last_group = 0, -1

    def append(self, rows: Rows, names: np.ndarray) -> None:
        """Write rows, which `StoreWriter.append` describes; raises `StoreError` if they are not valid."""
        contents, before = self._contents, self.sizes
        has_lists = layout.LABEL_SETS in contents.columns
        more = (rows.n_rows, len(rows.data), len(rows.label_codes) if has_lists else 0)
        sizes = Sizes(*(one + another for one, another in zip(before, more, strict=True)))
        announced = (contents.n, contents.nnz, contents.n_labels)
        if any(found > expected for found, expected in zip(sizes, announced, strict=True)):
            what = f"more rows or non-zeros than announced ({self.given(sizes)})"
            raise StoreError(f"{self.path}: {what}; the input changed while it was read")
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            data = np.ascontiguousarray(rows.data, contents.dtype)
        indices = None if rows.indices is None else np.ascontiguousarray(rows.indices)
        indptr, labels = np.asarray(rows.indptr, np.int64), np.asarray(rows.labels)
        rows = rows._replace(data=data, indices=indices, indptr=indptr, labels=labels)
        columns = {"labels": labels, "names": names, "cost": rows.cost, "qid": rows.qid}
        columns = {name: values for name, values in columns.items() if STORED[name][0] in self._arrays}
        reason = self._invalid(rows, columns)
        if reason is None:
            norms = checks.row_norms(data, indptr)
            if (row := checks.first_false(np.isfinite(norms))) is not None:
                reason = f"row {row}: the squared norm overflows"
        if reason is not None:
            raise StoreError(f"{self.path}: rows from {before.n_rows} on cannot be stored: {reason}")
        if indices is None:
            self._arrays[layout.MATRIX].append(data)
        else:
            self._arrays[layout.INDPTR].append(indptr[1:] + before.nnz)
            self._arrays[layout.DATA].append(data)
            self._arrays[layout.INDICES].append(indices)
            self._arrays[layout.NORM2].append(norms)
        if self._statistics is not None:
            # The kernels have no float16.
            values = data.astype(np.result_type(data.dtype, np.float32), copy=False)
            self._statistics.add_rows(rows._replace(data=values))
        for name, values in columns.items():
            self._arrays[STORED[name][0]].append(values)
        if "cost" in columns:
            least, largest = self.weight_range
            self.weight_range = rows.cost.min(initial=least), rows.cost.max(initial=largest)
        if "qid" in columns and rows.n_rows:
            self.n_groups += int(np.count_nonzero(np.diff(rows.qid, prepend=self._last_group)))
            self._last_group = int(rows.qid[-1])
        if has_lists:
            labels = rows.label_codes
            self._arrays[layout.LABELS_INDPTR].append(rows.label_indptr[1:] + before.n_labels)
            self._arrays[layout.LABELS_CODES].append(labels)
            self._arrays[layout.LABELS_ONES].append(np.ones(len(labels), np.int8))
        self.class_counts += np.bincount(labels[labels >= 0], minlength=contents.n_classes)
        self.sizes = sizes

    def given(self, sizes: Sizes) -> str:
        """Say how many rows, non-zeros and labels were given, and how many were announced."""
        announced = (self._contents.n, self._contents.nnz, self._contents.n_labels)
        each = zip(sizes, announced, ("rows", "non-zeros", "labels"), strict=True)
        return ", ".join(f"{found} of {wanted} {what}" for found, wanted, what in each)

    def _invalid(self, rows: Rows, columns: Mapping[str, np.ndarray]) -> str | None:
        """Return why a reader would refuse these rows, or None."""
        data, indices, indptr, labels, *_ = rows
        n, d, n_classes = len(labels), self._contents.d, self._contents.n_classes
        if indices is None and len(data) != n * d:
            return f"{len(data)} values for {n} dense rows of {d} features"
        for name, values in columns.items():
            if len(values) != n:
                return f"the column {name!r} has {len(values)} entries for {n} rows"
            if (row := first_invalid(name, values, n_classes)) is not None:
                return STORED[name][1].format(value=values[row], row=row)
        if indices is None:
            at = checks.first_false(np.isfinite(data))
            violation = None if at is None else checks.Violation("data", at, "a value is not finite")
        else:
            violation = checks.find_violation(data, indices, indptr, d)
        if violation is None and layout.LABEL_SETS in self._contents.columns:
            indptr = rows.label_indptr
            violation = checks.find_label_violation(rows.label_codes, indptr, n_classes)
        return violation and f"row {checks.row_of(indptr, violation.element)}: {violation.reason}"
