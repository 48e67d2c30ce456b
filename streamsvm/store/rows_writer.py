"""Writing of rows to the arrays of a store: each batch is checked and counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from streamsvm.data import checks
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import StatisticsBuilder
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.array_writer import ArrayWriter


class Sizes(NamedTuple):
    """Lengths of the arrays of some rows."""

    n_rows: int = 0
    nnz: int = 0
    n_labels: int = 0  # of a store with lists of labels

    def plus(self, other: Sizes) -> Sizes:
        return Sizes(*(one + more for one, more in zip(self, other, strict=True)))


class RowsWriter:
    """Writer that appends rows to the arrays of a store.

    Parameters
    ----------
    path : Path
        Of the store, for messages.
    n_features, n_classes : int
    dtype : dtype
        Of the values.
    columns : collection of str
        Which of `layout.COLUMNS` the store has.
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
        n_features: int,
        n_classes: int,
        dtype: np.dtype,
        columns: Collection[str],
        arrays: Mapping[str, ArrayWriter],
        statistics: StatisticsBuilder | None,
    ) -> None:
        self.path, self.n_features, self.n_classes, self.dtype = path, n_features, n_classes, dtype
        self.columns, self._arrays, self._statistics = columns, arrays, statistics
        self.sizes = Sizes()
        self.class_counts = np.zeros(n_classes, np.int64)
        self.weight_range = np.inf, -np.inf
        self.n_groups, self._last_group = 0, -1

    def sizes_of(self, rows: Rows) -> Sizes:
        """Return the lengths of the arrays of `rows` in this store."""
        has_lists = layout.LABEL_SETS in self.columns
        return Sizes(rows.n_rows, len(rows.data), len(rows.label_codes) if has_lists else 0)

    def append(self, rows: Rows, names: np.ndarray) -> None:
        """Write rows, which `StoreWriter.append` describes; raises `StoreError` if they are not valid."""
        before = self.sizes
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            data = np.ascontiguousarray(rows.data, self.dtype)
        indices = None if rows.indices is None else np.ascontiguousarray(rows.indices)
        indptr, labels = np.asarray(rows.indptr, np.int64), np.asarray(rows.labels)
        rows = rows._replace(data=data, indices=indices, indptr=indptr, labels=labels)
        reason = self._invalid(rows, names) or self._invalid_columns(rows)
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
        self._arrays[layout.CODES].append(labels)
        self._arrays[layout.NAMES].append(names)
        if layout.WEIGHTS in self.columns:
            self._arrays[layout.WEIGHT].append(rows.cost)
            least, largest = self.weight_range
            self.weight_range = rows.cost.min(initial=least), rows.cost.max(initial=largest)
        if layout.GROUPS in self.columns and rows.n_rows:
            self._arrays[layout.QID].append(rows.qid)
            self.n_groups += int(np.count_nonzero(np.diff(rows.qid, prepend=self._last_group)))
            self._last_group = int(rows.qid[-1])
        if layout.LABEL_SETS in self.columns:
            labels = rows.label_codes
            self._arrays[layout.LABELS_INDPTR].append(rows.label_indptr[1:] + before.n_labels)
            self._arrays[layout.LABELS_CODES].append(labels)
            self._arrays[layout.LABELS_ONES].append(np.ones(len(labels), np.int8))
        self.class_counts += np.bincount(labels[labels >= 0], minlength=self.n_classes)
        self.sizes = before.plus(self.sizes_of(rows))

    def _invalid(self, rows: Rows, names: np.ndarray) -> str | None:
        """Return why a reader would refuse the values, labels or names of these rows, or None."""
        data, indices, indptr, labels, *_ = rows
        n_values = len(labels) * self.n_features if indices is None else len(indices)
        if not len(indptr) == len(labels) + 1 == len(names) + 1 or len(data) != n_values:
            return "the lengths of the arrays do not match"
        if indptr[0] != 0 or indptr[-1] != len(data) or not checks.is_monotonic(indptr):
            return "indptr does not rise from 0 to the number of values"
        if len(labels) and not -1 <= labels.min() <= labels.max() < self.n_classes:
            return f"a label code is outside -1..{self.n_classes - 1}"
        if len(names) and np.min(names) < 0:
            return "a row name is negative"
        if indices is None:
            at = checks.first_false(np.isfinite(data))
            return None if at is None else f"row {at // self.n_features}: a value is not finite"
        violation = checks.find_violation(data, indices, indptr, self.n_features)
        if violation is None:
            return None
        return f"row {checks.row_of(indptr, violation.element)}: {violation.reason}"

    def _invalid_columns(self, rows: Rows) -> str | None:
        """Return why a reader would refuse the weights, groups or labels of these rows, or None."""
        if layout.WEIGHTS in self.columns:
            if len(rows.cost) != rows.n_rows:
                return "there is not one weight a row"
            if checks.first_no_amount(rows.cost) is not None:
                return "a weight is negative or not finite"
        if layout.GROUPS in self.columns:
            if len(rows.qid) != rows.n_rows:
                return "there is not one group a row"
            if rows.n_rows and np.min(rows.qid) < 0:
                return "the number of a group is negative"
        if layout.LABEL_SETS in self.columns:
            codes, indptr = rows.label_codes, rows.label_indptr
            if len(indptr) != rows.n_rows + 1 or indptr[0] != 0 or indptr[-1] != len(codes):
                return "the lengths of the lists of labels do not match"
            if not checks.is_monotonic(indptr):
                return "label_indptr does not rise"
            if (violation := checks.find_label_violation(codes, indptr, self.n_classes)) is not None:
                return f"row {checks.row_of(indptr, violation.element)}: {violation.reason}"
            if not np.array_equal(checks.first_labels(codes, indptr), rows.labels):
                return "the label of a row is not the first of its labels"
        return None
