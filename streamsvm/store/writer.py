"""Write stores in bounded memory. The record, which completes the store, is written last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamsvm.base import format
from streamsvm.base.text import check_classes
from streamsvm.base.threads import Threads
from streamsvm.data import checks
from streamsvm.data.rows import Rows, sparse_rows
from streamsvm.data.statistics import StatisticsBuilder
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.array_writer import ArrayWriter
from streamsvm.store.ranges import numbers_in, spans
from streamsvm.store.reader import STORED
from streamsvm.store.record import Contents

_DATAFRAME = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}


class StoreWriter:
    """Writer that creates a store from batches of rows.

    The sizes of the store are fixed in advance; batches may have any size. For an atomic result, write to a
    temporary path and rename it after `finish`. Until `finish` returns, `open_store` refuses the store as
    incomplete. After an exception, the writer closes the container, and the caller must remove it.

    Parameters
    ----------
    path : path-like
        Path that does not exist; its suffix determines the container: see `store_kind`.
    contents : Contents
    classes : sequence of str
        Distinct class names by class code.
    feature_names : sequence of str, optional
        Distinct names of the features.
    meta : mapping, optional
        JSON-compatible entries for the record and `Store.meta`, such as ``shuffle_seed`` and ``sources``.
    threads : int
        If more than one, chunks are compressed and written in the background, by `threads` threads for Zarr
        and by one for HDF5. The files do not depend on the number of threads.

    Raises
    ------
    StoreError
        If the container cannot be written, or the rows do not fit the format.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        contents: Contents,
        classes: Sequence[str],
        *,
        feature_names: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        threads: int = 1,
    ) -> None:
        self.path = Path(path)
        kind = layout.store_kind(path)
        check_classes(classes, path, StoreError)
        self._contents, self._meta = contents, meta or {}
        self._texts = {layout.CATEGORIES: classes}
        if feature_names is not None:
            self._texts[layout.FEATURES] = feature_names
        self._expected = np.array([contents.n, contents.nnz, contents.n_labels])
        self._sizes: np.ndarray = np.zeros(3, np.int64)  # rows, values and labels so far
        self._class_counts = np.zeros(contents.n_classes, np.int64)
        self._weight_range = np.inf, -np.inf
        self._n_groups, self._last_group = 0, -1
        self._statistics = StatisticsBuilder(contents.n, contents.d) if contents.statistics else None
        self._threads = Threads(1 if kind == "hdf5" else threads, "streamsvm-write", background=threads > 1)
        self._container: Hdf5Container | ZarrContainer
        if kind == "hdf5":
            from streamsvm.store.hdf5_backend import Hdf5Container

            self._container = Hdf5Container(self.path, write=True)
        else:
            from streamsvm.store.zarr_backend import ZarrContainer

            self._container = ZarrContainer(self.path, write=True)
        try:
            self._arrays = self._create()
            for name in {layout.INDPTR, layout.LABELS_INDPTR} & self._arrays.keys():
                self._arrays[name].append(np.zeros(1, np.int64))
        except BaseException as error:
            self.__exit__(type(error))
            raise

    def _create(self) -> dict[str, ArrayWriter]:
        container, contents, arrays = self._container, self._contents, {}
        n, d = contents.n, contents.d
        container.create_group("", {"encoding-type": "anndata", "encoding-version": "0.1.0"})
        container.set_record(format.STORE_ATTR, {"version": contents.version, "complete": False})
        if contents.dense:
            for group in ("uns", "uns/streamsvm"):
                container.create_group(group, _DICT)
        else:
            container.create_group("X", {**_CSR, "shape": [n, d]})
        columns = [name for name in contents.columns if name != layout.LABEL_SETS]
        container.create_group("obs", {**_DATAFRAME, "column-order": [layout.LABEL, *columns]})
        container.create_group(f"obs/{layout.LABEL}", layout.CATEGORICAL_ATTRS)
        if d <= layout.VAR_LIMIT:
            statistics = list(layout.STATISTICS) if contents.statistics else []
            container.create_group("var", {**_DATAFRAME, "column-order": statistics})
        if layout.LABEL_SETS in contents.columns:
            container.create_group("obsm", _DICT)
            labels = {**_CSR, "shape": [n, contents.n_classes]}
            container.create_group(f"obsm/{layout.LABEL_SETS}", labels)
        for name, spec in contents.specs().items():
            if spec.dtype is None:
                container.create_text(name, self._texts[name], attrs=layout.TEXT_ATTRS)
                continue
            chunk = layout.chunk_length(
                name, spec.length, n=n, nnz=contents.nnz, chunk_nnz=contents.chunk_nnz
            )
            # The numbers 0, 1, 2, ... compress to almost nothing and are not read during passes.
            codec = "small" if name == layout.FEATURES else contents.codec
            attrs = {} if name.startswith(("X/", "obsm/")) else layout.ARRAY_ATTRS
            container.create_array(name, spec, chunk=chunk, codec=codec, attrs=attrs)
            arrays[name] = ArrayWriter(partial(container.write, name), spec, chunk, self._threads)
        return arrays

    def append(self, rows: Rows, names: np.ndarray) -> None:
        """Append a copy of `rows`, which must be as valid as rows returned by `Store.rows`.

        Only the norms, which are computed from the stored values, are checked. Zeros in dense rows are
        dropped unless the store is dense. `names` gives the row numbers in the original input, int64,
        starting at 0. Raises StoreError if the sizes in `contents` are exceeded, if a norm is not finite, or
        if writing fails.
        """
        contents, before = self._contents, self._sizes
        if rows.dense and not contents.dense:
            rows = sparse_rows(rows, format.index_dtype(contents.d))
        has_lists = layout.LABEL_SETS in contents.columns
        more = rows.n_rows, len(rows.data), len(rows.label_codes) if has_lists else 0
        sizes = before + np.array(more, np.int64)
        if (sizes > self._expected).any():
            raise self._misfit(sizes)
        with np.errstate(over="ignore"):  # values that become infinite are refused below
            data = np.ascontiguousarray(rows.data, contents.dtype)
        indptr, labels = np.asarray(rows.indptr, np.int64), rows.labels
        norms = checks.row_norms(data, indptr)
        if (row := checks.first_false(np.isfinite(norms))) is not None:
            what = "a value is not finite, or the squared norm overflows; drop the row or scale its values"
            raise StoreError(f"{self.path}: row {names[row] + 1} of the input: {what}")
        if rows.indices is None:
            self._arrays[layout.MATRIX].append(data)
        else:
            self._arrays[layout.INDPTR].append(indptr[1:] + before[1])
            self._arrays[layout.DATA].append(data)
            self._arrays[layout.INDICES].append(rows.indices)
            self._arrays[layout.NORM2].append(norms)
        if self._statistics is not None:
            # Kernels do not support float16.
            values = data.astype(np.result_type(data.dtype, np.float32), copy=False)
            self._statistics.add_rows(rows._replace(data=values, indptr=indptr))
        columns = {"labels": labels, "names": names, "cost": rows.cost, "qid": rows.qid}
        columns["hold_out_by"] = rows.hold_out_by
        for name, values in columns.items():
            if (array := self._arrays.get(STORED[name][0])) is not None:
                array.append(values)
        if layout.WEIGHTS in contents.columns:
            least, largest = self._weight_range
            self._weight_range = rows.cost.min(initial=least), rows.cost.max(initial=largest)
        if layout.GROUPS in contents.columns and rows.n_rows:
            self._n_groups += int(np.count_nonzero(np.diff(rows.qid, prepend=self._last_group)))
            self._last_group = int(rows.qid[-1])
        if has_lists:
            labels = rows.label_codes
            self._arrays[layout.LABELS_INDPTR].append(rows.label_indptr[1:] + before[2])
            self._arrays[layout.LABELS_CODES].append(labels)
            self._arrays[layout.LABELS_ONES].append(np.ones(len(labels), np.int8))
        self._class_counts += np.bincount(labels[labels >= 0], minlength=contents.n_classes)
        self._sizes = sizes

    def _misfit(self, sizes: np.ndarray) -> StoreError:
        each = zip(sizes, self._expected, ("rows", "non-zeros", "labels"), strict=True)
        counts = ", ".join(f"{found} {what} (expected {expected})" for found, expected, what in each)
        return StoreError(f"{self.path}: the input changed: it had {counts}; convert it again")

    def finish(self) -> str:
        """Write the remaining data, sync, write the record, and return the fingerprint.

        The fingerprint depends only on the rows, classes and names, and on their order. Raises StoreError if
        there are fewer rows, non-zeros or labels than in `contents`, or if writing fails.
        """
        container, contents = self._container, self._contents
        if (self._sizes != self._expected).any():
            raise self._misfit(self._sizes)
        self._arrays[contents.counts].append(self._class_counts)
        if layout.FEATURES in self._arrays:
            for features in spans(contents.d, 2**18):
                self._arrays[layout.FEATURES].append(numbers_in(features))
        if self._statistics is not None:
            found = self._statistics.result()
            values = (found.count.astype(np.int64), *found.moments)
            for name, value in zip(layout.STATISTICS, values, strict=True):
                self._arrays[f"var/{name}"].append(value)
        digests = {name: array.finish() for name, array in self._arrays.items()}
        digests |= {name: layout.text_digest(texts) for name, texts in self._texts.items()}
        container.sync()

        content = contents.fingerprint_of(digests)
        record = {**vars(contents), "normalisation": None, "shuffle_seed": None, "sources": []}
        record |= {**self._meta, "fingerprint": content, "arrays": digests, "complete": True}
        if layout.GROUPS in contents.columns:
            record["n_groups"] = self._n_groups
        if layout.WEIGHTS in contents.columns and contents.n:
            record["weight_range"] = [float(end) for end in self._weight_range]
        container.set_record(format.STORE_ATTR, format.sealed(record))
        self.close()
        return content

    def close(self) -> None:
        """Close the container; without `finish`, the store stays marked as incomplete."""
        self._threads.close()
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # After an error on a full disk, closing fails too; the first error is reported.
        with contextlib.suppress(*[] if kind is None else [StoreError]):
            self.close()
