"""Read AnnData, dense and sparse matrices, and columns of lists by means of `open_stores`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import NO_NORMS, Features, Reader, TableCounts, without_zeros
from streamsvm_converters.label_codes import MISSING
from streamsvm_converters.libsvm.position import InputFile

from streamsvm.base.format import CHUNK_NNZ, UNSEEN_LABEL, index_dtype
from streamsvm.base.label_values import TEXT
from streamsvm.data.checks import first_false, row_of
from streamsvm.data.names import match_features
from streamsvm.data.rows import Rows, kept_rows, with_index_dtype
from streamsvm.errors import InputError
from streamsvm.store import Store, open_stores
from streamsvm.store.views import as_sparse, matched

if TYPE_CHECKING:
    from streamsvm.inputs.schema import DataSchema

_VALUES_PER_READ = 2**20


class StoredReader(Reader):
    """Reader of labelled rows from one or more files, whose features are matched by name."""

    may_be_dense = True
    counts: TableCounts

    def __init__(self, inputs: Sequence[str | Path], options: ReadOptions) -> None:
        super().__init__(inputs, options)
        like = options.like
        if like is not None and not like.has_plain_features:
            raise InputError(f"the features of {like.path} are table columns; use a table with these columns")
        self.label_codes = self._label_codes(options.memory // 4)
        with contextlib.ExitStack() as stack:
            store = stack.enter_context(
                open_stores(
                    inputs, **options.of_store, join=options.join, labelled=options.labelled,
                    like={"labels_as": options.labels_as, "classes": () if like is None else like.classes},
                    memory=options.memory, every_row=True, hold_out_by=options.hold_out_by,
                )
            )  # fmt: skip
            if store.multilabel or any(member.native for member in store.members):
                what = "has several labels per row" if store.multilabel else "is already a store"
                raise InputError(f"{store.path} {what}, so it is not converted; fit can train on it directly")
            self._features = Features(store.n_features, names=store.feature_names())
            if like is not None and not like.takes_any_feature:
                store = self._matched(store, like)
            width = self._features.width
            self._set_dense(store.dense_rows and store.n_features == width <= CHUNK_NNZ)
            stack.pop_all()
        self._store = store if self.dense else as_sparse(store)
        self.has_strings = store.label_dtype == TEXT
        lists = {member.arrays["X/values"].name for member in store.members if member.kind == "table"}
        self.notes += [
            f"the features are the numbers in column {name!r}; other columns are ignored" for name in lists
        ]

    def _matched(self, store: Store, like: DataSchema) -> Store:
        where, model = str(store.path), str(like.path)
        match = match_features(store.feature_names(), like.names, where, model=model, encoding=like.encoding)
        self.notes += [] if match.message is None else [str(match.message)]
        store = matched(store, match, list(like.names or ()))
        if store.n_features > like.n_features:
            what = f"{store.path} has {store.n_features:,} features"
            raise InputError(f"{what}, but {like.path} has {like.n_features:,}; use matching data")
        self._features = Features(like.n_features, index_base=like.index_base, names=like.names)
        return store

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        sizes = list(map(_size, self.inputs))
        with self._store as store:
            for start, rows in store.pieces(_VALUES_PER_READ, 0, store.n_rows):
                batch, kept = self._batch(rows, start)
                if batch.n_rows:
                    yield batch, start + np.flatnonzero(kept)
                self.counts.bytes_read = sum(sizes) * (start + len(kept)) // store.n_rows
                if self.options.progress is not None:
                    self.options.progress(self.counts.bytes_read, sum(sizes))
            for member, size in zip(store.members, sizes, strict=True):
                is_large = self.options.format == "anndata" or member.path.is_dir()
                sha256 = member.fingerprint if is_large else InputFile.of(member.path).sha256
                self.sources.append(InputFile(member.path.name, size, sha256))
        del self._store
        self.counts.unseen_labels = self.label_codes.unseen

    def features(self) -> Features:
        return self._features

    @property
    def expected_bytes(self) -> int | None:
        return 8 * self._store.nnz

    def _batch(self, rows: Rows, start: int) -> tuple[Rows, np.ndarray]:
        """Return the labelled rows in the output dtype, and a mask that selects them."""
        codes = np.full(rows.n_rows, UNSEEN_LABEL, np.int32)
        if self.options.labelled:
            place = lambda row: self._place(start + row)  # noqa: E731
            codes = self.label_codes.encode(self._store.classes, rows.labels, place)
        kept = codes != MISSING
        self.counts.unlabelled += int(np.count_nonzero(~kept))
        with np.errstate(over="ignore", invalid="ignore"):
            data = rows.data.astype(self.options.dtype, copy=False)
        if (at := first_false(np.isfinite(data))) is not None:
            row = row_of(rows.indptr, at)
            column = at - rows.indptr[row] if rows.indices is None else rows.indices[at]
            what = f"{rows.data[at]} is not finite in {self.options.dtype}; drop or replace such values"
            raise InputError(f"{self._place(start + row)}, column {column + 1}: {what}")
        rows = without_zeros(kept_rows(rows._replace(data=data, labels=codes, norm2=NO_NORMS), kept))
        rows = with_index_dtype(rows, index_dtype(self._features.width))
        self.counts.add(rows)
        return rows, kept

    def _place(self, row: int) -> str:
        for member in self._store.members:
            if row < member.n_rows:
                break
            row -= member.n_rows
        return f"{member.path}, row {row + 1}"


def _size(path: str | Path) -> int:
    folders = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sum(file.stat().st_size for file in folders or [Path(path)])
