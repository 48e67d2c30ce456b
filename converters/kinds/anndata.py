"""Reader of AnnData in HDF5 files and Zarr folders; features of several files are matched by name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from itertools import starmap
from pathlib import Path

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import NO_NORMS, Features, Reader, TableCounts, without_zeros
from streamsvm_converters.label_codes import MISSING, LabelCodes
from streamsvm_converters.libsvm.position import InputFile
from streamsvm_converters.sorted_rows import MatrixEntries, sorted_rows

from streamsvm.base.format import CHUNK_NNZ, UNSEEN_LABEL, index_dtype
from streamsvm.base.label_values import TEXT
from streamsvm.data.checks import first_false, row_of
from streamsvm.data.names import match_features, with_columns
from streamsvm.data.rows import Rows, kept_rows, sparse_rows, with_index_dtype
from streamsvm.errors import InputError, SettingsError
from streamsvm.store import Store, open_store
from streamsvm.store.anndata import AnnDataStore
from streamsvm.store.joined import common_features
from streamsvm.store.matrices import CscMatrix

_VALUES_PER_READ = 2**20  # of rows read at a time


class AnnDataReader(Reader):
    """Reader of the labelled rows of AnnData; a CSC matrix is first sorted by rows on disk."""

    counts: TableCounts
    _labels: LabelCodes

    def __init__(self, inputs: list[str | Path], options: ReadOptions) -> None:
        super().__init__(inputs, options)
        like = options.like
        if options.on_error != "raise":
            raise SettingsError("on_error does not apply to AnnData: its rows are sound", setting="on_error")
        if like is not None and not like.has_plain_features:
            raise InputError(f"the features of {like.path} are columns of a table; give such a table")
        self._labels = self._label_codes(options.memory // 4)
        self._values = 0
        self._find_features()

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        number = done = 0
        for path in self.inputs:
            with contextlib.ExitStack() as stack:
                store = stack.enter_context(self._open(path))
                names = store.feature_names()
                match = match_features(names, self._names, str(store.path), model="the joined data")
                if self.options.like is not None and match.message is not None:
                    self.notes.append(str(match.message))
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=self.options.folder)))
                for start, rows in self._rows(store, folder):
                    batch, kept = self._batch(store, rows, start, match.columns)
                    if batch.n_rows:
                        yield batch, number + start + np.flatnonzero(kept)
                    done += len(rows.data)
                    if self.options.progress is not None:
                        self.options.progress(8 * min(done, self._values), 8 * self._values)
                number += store.n_rows
                source = self._source(store)
            self.sources.append(source)
            self.counts.bytes_read += source.size
        self.counts.unseen_labels = self._labels.unseen

    def features(self) -> Features:
        base = None if self.options.like is None else self.options.like.index_base
        return Features(self._width, index_base=base, names=self._names)

    @property
    def expected_bytes(self) -> int | None:
        return 8 * self._values

    # ----------------------------------------------------------------------------------------------

    def _open(self, path: str | Path) -> AnnDataStore:
        """Open a file, including its rows without a label."""
        options = self.options
        store: Store = open_store(
            path, label=options.label, labelled=options.labelled, layer=options.layer, raw=options.raw,
            obsm=options.obsm,
        )  # fmt: skip
        inner = getattr(store, "inner", store)
        if not isinstance(inner, AnnDataStore):
            store.close()
            raise InputError(f"{path} is a store already, and AnnData of other origin was expected")
        if inner.multilabel:
            store.close()
            raise InputError(
                f"{path}: {options.label!r} holds several labels a row, which cannot be converted; "
                "fit trains on such a file as it is"
            )
        self.has_texts |= inner.label_dtype == TEXT
        return inner

    def _find_features(self) -> None:
        """Take the features from earlier data, or from all files together."""
        known: list[list[str] | None] = []
        widths: list[int] = []
        dense = []
        for path in self.inputs:
            with self._open(path) as store:
                known.append(store.feature_names())
                widths.append(store.n_features)
                dense.append(store.dense_rows)
                self._values += store.nnz
        like = self.options.like
        if like is None:
            self._names = common_features(self.inputs, known, widths, self.options.join)
            self._width = widths[0] if self._names is None else len(self._names)
        else:
            self._names = None if like.names is None else list(like.names)
            self._width = max(widths) if like.takes_any_feature else like.n_features
            if max(widths) > self._width and (self._names is None or None in known):
                raise InputError(
                    f"{self.inputs[0]} has {max(widths):,} features without names in common, and {like.path} "
                    f"has {self._width:,}"
                )
        all_in_each = (self._names is not None and None not in known) or {*widths} == {self._width}
        self.dense = all(dense) and all_in_each and self._width <= CHUNK_NNZ

    def _rows(self, store: AnnDataStore, folder: Path) -> Iterator[tuple[int, Rows]]:
        """Yield batches of consecutive rows with their first row; label codes are those of the file."""
        dtype = np.dtype(self.options.dtype)
        if isinstance(store.matrix, CscMatrix):
            matrix = store.matrix
            parts = sorted_rows(
                lambda: starmap(MatrixEntries, matrix.pieces(_VALUES_PER_READ)), matrix.shape, matrix.dtype,
                folder, self.options.memory // 4, row_pieces=lambda: matrix.row_pieces(_VALUES_PER_READ),
            )  # fmt: skip
            for part in parts:
                labels = store.labels(part.start, part.start + len(part.indptr) - 1)
                data = part.data.astype(dtype, copy=False)
                yield part.start, Rows(data, part.indices, part.indptr, labels, NO_NORMS)
            return
        for start, rows in store.pieces(_VALUES_PER_READ, 0, store.n_rows):
            rows = rows if self.dense else sparse_rows(rows, store.index_dtype)
            with np.errstate(over="ignore"):  # what becomes infinite is refused
                data = rows.data.astype(dtype, copy=False)
            yield start, rows._replace(data=data, norm2=NO_NORMS)

    def _batch(
        self, store: AnnDataStore, rows: Rows, start: int, columns: np.ndarray | None
    ) -> tuple[Rows, np.ndarray]:
        """Return the rows with a label, in the joined features, and a mask of the rows that have one."""
        codes = np.full(rows.n_rows, UNSEEN_LABEL, np.int32)
        if self.options.labelled:
            codes = self._labels.encode(
                store.classes, rows.labels, lambda row: f"{store.path}, row {start + row}"
            )
        kept = codes != MISSING
        self.counts.unlabelled += int(np.count_nonzero(~kept))
        if (at := first_false(np.isfinite(rows.data))) is not None:
            row = row_of(rows.indptr, at)
            column = at - rows.indptr[row] if rows.indices is None else rows.indices[at]
            raise InputError(
                f"{store.path}: {store.matrix.name}, row {start + row}, column {column}: "
                f"{rows.data[at]} is not finite in {self.options.dtype}; drop or replace such values"
            )
        rows = without_zeros(kept_rows(rows._replace(labels=codes), kept))
        if columns is not None:
            before = np.count_nonzero(rows.data)
            rows = with_columns(rows, columns, self._width)
            self.counts.unseen_features += int(before - np.count_nonzero(rows.data))
        rows = with_index_dtype(rows, index_dtype(self._width))
        self.counts.add(rows)
        return rows, kept

    def _source(self, store: AnnDataStore) -> InputFile:
        """Return name and size of a file, and a hash of samples of it."""
        path = store.path
        files = [path]
        if path.is_dir():
            files = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        if isinstance(store.matrix, CscMatrix):
            sha256 = hashlib.sha256()
            for sample in store.matrix.samples():
                sha256.update(sample)
            fingerprint = sha256.hexdigest()
        else:
            fingerprint = store.fingerprint
        return InputFile(path.name, sum(file.stat().st_size for file in files), fingerprint)
