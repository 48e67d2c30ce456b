"""Store of rows in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
from streamsvm.data.rows import Rows, joined_rows, kept_rows, row_span, with_index_dtype
from streamsvm.store.ranges import Ranges, numbers_in
from streamsvm.store.store import COLUMNS, IN_MEMORY, Columns, Facts, RowSizes, Store, Whole, only


class ArrayStore(Store):
    """Store of `rows` in memory; the costs in `rows`, if any, are sample weights.

    `labels` gives the class names and the label dtype, as returned by `class_record`. `meta` records how the
    rows were read. `dense` is True if the rows come from a dense matrix.
    """

    def __init__(
        self,
        rows: Rows,
        labels: Mapping[str, Any],
        n_features: int,
        feature_names: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        *,
        dense: bool = False,
    ) -> None:
        rows = with_index_dtype(rows, format.index_dtype(n_features))
        self._rows = rows = rows._replace(numbers=np.arange(rows.n_rows))
        self._feature_names = feature_names
        stored = {name for name in COLUMNS if len(getattr(rows, name, ())) and name != "label_codes"}
        if len(rows.label_indptr):
            stored.add("label_codes")
        self.facts = Facts(
            path=Path("X"),
            kind=IN_MEMORY,
            n_rows=rows.n_rows,
            n_features=n_features,
            nnz=len(rows.data),
            classes=tuple(labels["classes"]),
            label_dtype=labels.get("label_dtype", TEXT),
            dtype=rows.data.dtype,
            chunk_nnz=0,
            chunk_rows=float(rows.n_rows),
            stored=frozenset(stored),
            n_labels=len(rows.label_codes),
            native=True,
            dense=dense or rows.dense,
            dense_rows=rows.dense,
            meta=dict(meta or {}),
        )

    @property
    def members(self) -> list[Store]:
        return []

    def sizes(self, ranges: Ranges) -> RowSizes:
        found = self.read(ranges)
        return RowSizes(np.diff(found.indptr), np.diff(found.label_indptr))

    def columns(self, ranges: Ranges, wanted: Set[str]) -> Columns:
        return only(self.read(ranges)._asdict(), wanted & self.facts.stored)

    def read(self, ranges: Ranges) -> Rows:
        """Return the rows in ranges. If there is only one range, the arrays are views of the store's."""
        if len(ranges) > 1 and (ranges[1:, 0] >= ranges[:-1, 1]).all():
            kept = np.zeros(self.n_rows, np.bool_)
            kept[numbers_in(ranges)] = True
            return kept_rows(self._rows, kept)
        parts = [row_span(self._rows, start, stop) for start, stop in ranges.tolist() or [(0, 0)]]
        return parts[0] if len(parts) == 1 else joined_rows(parts)

    def whole(self, what: Whole) -> Any:
        if what == "class_counts":
            return self._rows._replace(cost=np.empty(0)).class_counts(self.n_classes)
        return self._feature_names if what == "feature_names" else None


def in_memory(store: Store) -> ArrayStore:
    """Load a whole store into memory, so that its views are not computed again at every read."""
    labels = {"classes": store.classes, "label_dtype": store.label_dtype}
    rows = store.rows(0, store.n_rows)
    return ArrayStore(rows, labels, store.n_features, store.feature_names(), store.meta)
