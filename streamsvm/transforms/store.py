"""View that transforms the rows of a store when they are read."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.data.names import encoded_names
from streamsvm.data.rows import Rows, sparse_rows, with_index_dtype
from streamsvm.store.store import Facts, RowSizes, Store, Whole
from streamsvm.store.views import View, ViewedStore, as_sparse
from streamsvm.transforms import Transform, apply, dense_after, features_after, names_after, records_of

_FLOAT32 = 4  # bytes per value in the float32 copy that `fourier` makes


@dataclasses.dataclass(frozen=True, eq=False)
class Transformed(View):
    """View of a store with transformed rows.

    Features and fingerprint are those of the transformed rows. Sizes are upper bounds; norms are not stored.
    """

    transforms: tuple[Transform, ...]
    shift: int  # offset added to feature numbers before the transforms
    n_features: int
    where: str

    def _nnz(self, nnz: Any, n_rows: int = 1) -> Any:
        for transform in self.transforms:
            nnz = transform.nnz(nnz, n_rows)
        return nnz

    def facts(self, inner: Facts) -> Facts:
        # A transform copies its input, which stays in memory, so both are counted. Hashing also sorts int64
        # keys, and copies its arrays when it trims them.
        wide = 8 if any(transform.takes_any_feature for transform in self.transforms) else 0
        extra = wide + inner.dtype.itemsize if self.transforms else 0
        dense_rows = dense_after(self.transforms, inner.dense_rows and not self.shift)
        if inner.dense_rows and not dense_rows:  # the conversion needs the int64 row and column of each value
            extra += 2 * 8
        nnz = int(self._nnz(inner.nnz, inner.n_rows))
        extra = max(inner.extra_nnz_bytes, extra)
        if any(transform.dense for transform in self.transforms):  # convert to bytes per output value
            copy_bytes = 2 * (inner.dtype.itemsize + inner.index_bytes) + extra + _FLOAT32
            extra = -(-copy_bytes * inner.nnz // max(nnz, 1))
        return dataclasses.replace(
            inner,
            native=inner.native and not self.transforms and not self.shift,
            n_features=self.n_features,
            nnz=nnz,
            dense_rows=dense_rows,
            held_bytes=inner.held_bytes + sum(transform.held_bytes for transform in self.transforms),
            extra_nnz_bytes=extra,
            stored=inner.stored - {"norm2"} if self.transforms else inner.stored,
        )

    def sizes(self, sizes: RowSizes) -> RowSizes:
        return sizes._replace(nnz=self._nnz(sizes.nnz))

    def rows(self, rows: Rows) -> Rows:
        if self.shift:
            rows = sparse_rows(rows, np.dtype(np.int64))
            rows = rows._replace(indices=rows.features + self.shift)
        rows = apply(self.transforms, rows, where=self.where)
        return with_index_dtype(rows, format.index_dtype(self.n_features))

    def whole(self, what: Whole, inner: Store) -> Any:
        if what == "feature_names":
            names = names_after(self.transforms, inner.feature_names())
            return None if names is None else list(names)
        if what != "fingerprint":
            return (
                inner.whole(what) if what == "class_counts" or not (self.transforms or self.shift) else None
            )
        sha = hashlib.sha256(f"{inner.fingerprint} {self.shift} {records_of(self.transforms)}".encode())
        for transform in self.transforms:
            if transform.array is not None:
                sha.update(np.ascontiguousarray(transform.array).data)
        return sha.hexdigest()


def transformed(
    store: Store, transforms: Sequence[Transform], shift: int | None = None, *, dense: bool = True
) -> Store:
    """Return a view of a store with transformed rows. If `dense` is False, all rows are CSR.

    `shift` is added to column indices before the transforms. By default, it converts them to the feature
    numbers of LIBSVM text if a transform needs these numbers, and is 0 otherwise.
    """
    shift = shift_to_text(store, transforms) if shift is None else shift
    n_features = features_after(transforms, store.n_features + shift) or 0
    view = Transformed(tuple(transforms), shift, n_features, str(store.path))
    return ViewedStore(store, view) if dense else as_sparse(ViewedStore(as_sparse(store), view))


def shift_to_text(store: Store, transforms: Sequence[Transform]) -> int:
    """Return the offset from column indices to LIBSVM feature numbers; 0 if no transform needs them."""
    return (store.index_base or 0) if any(each.takes_any_feature for each in transforms) else 0


def number_columns(store: Store) -> np.ndarray | None:
    """Return the indices of the numeric columns of a table or dense matrix; None if there are none."""
    encoding = store.meta.get("encoding")
    if encoding is None:
        return np.arange(store.n_features) if store.dense else None
    features = [(each["type"], encoded_names(each)) for each in encoding["columns"]]
    numbers = {names[0] for kind, names in features if kind == "number"}
    names = store.feature_names() or [name for _, names in features for name in names]  # n-grams come last
    return np.flatnonzero([name in numbers for name in names]) if numbers else None
