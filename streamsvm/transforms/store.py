"""View of a store whose rows are transformed as they are read."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from streamsvm.base import format
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.errors import StreamsvmError
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.reader import Store
from streamsvm.store.views import StoreView
from streamsvm.transforms import Transform, apply, features_after, names_after, records_of


class TransformedStore(StoreView):
    """View of a store with transformed rows.

    `n_features`, `index_dtype`, norms, names of features and the fingerprint are those of the transformed
    rows; `nnz` and row pointers count at least the values that these have. The norms are not stored: each
    call of `norms` reads the rows.

    Parameters
    ----------
    inner : Store
    transforms : sequence of Transform
        Fitted.
    shift : int, optional
        Added to the numbers of features before the transforms; by default what makes them those of the text,
        if a transform takes these.

    Attributes
    ----------
    shift : int
    """

    def __init__(self, inner: Store, transforms: Sequence[Transform], shift: int | None = None) -> None:
        super().__init__(inner)
        self.transforms = list(transforms)
        shift = shift_to_text(inner, transforms) if shift is None else shift
        self.shift = shift
        self._adds = sum(transform.adds for transform in transforms)
        self.native = inner.native and not transforms and not shift
        self.n_features = features_after(transforms, inner.n_features + shift) or 0
        self.index_dtype = format.index_dtype(self.n_features)
        self.nnz = inner.nnz + self._adds * inner.n_rows
        self.held_bytes = inner.held_bytes + sum(transform.held_bytes for transform in transforms)
        # A transform makes a copy while what it is given is in memory, as reading does: that is counted. The
        # hash sorts and numbers its values in int64, and then cuts its arrays.
        wide = 8 if any(transform.takes_any_feature for transform in transforms) else 0
        if transforms:
            self.extra_nnz_bytes = max(inner.extra_nnz_bytes, wide + self.dtype.itemsize)

    def statistics(self) -> Statistics | None:
        return None if self.transforms or self.shift else self.inner.statistics()

    @functools.cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        sha = hashlib.sha256(f"{self.inner.fingerprint} {self.shift} {records_of(self.transforms)}".encode())
        for transform in self.transforms:
            if transform.array is not None:
                sha.update(np.ascontiguousarray(transform.array).data)
        return sha.hexdigest()

    def rows_of(self, ranges: Ranges) -> Rows:
        rows = self.inner.rows_of(ranges)
        try:
            return self._transformed(rows, ranges[0][0])
        except StreamsvmError:
            if len(ranges) == 1:
                raise
            for start, stop in ranges:  # to name the row
                self.rows(start, stop)
            raise

    def _transformed(self, rows: Rows, start: int) -> Rows:
        if self.shift:
            rows = rows._replace(indices=rows.indices + self.shift)
        rows = apply(self.transforms, rows, where=str(self.path), first=start)
        return rows._replace(indices=rows.indices.astype(self.index_dtype, copy=False))

    def indptr(self, start: int, stop: int) -> np.ndarray:
        return self.inner.indptr(start, stop) + self._adds * np.arange(start, stop + 1)

    def norms(self, start: int, stop: int) -> np.ndarray:
        if not self.transforms and not self.shift:
            return self.inner.norms(start, stop)
        return self.rows(start, stop).norm2

    def feature_names(self) -> list[str] | None:
        names = names_after(self.transforms, self.inner.feature_names())
        return None if names is None else list(names)


def shift_to_text(store: Store, transforms: Sequence[Transform]) -> int:
    """Return the offset that makes columns the feature numbers of text, if a transform takes these, or 0."""
    return (store.index_base or 0) if any(each.takes_any_feature for each in transforms) else 0
