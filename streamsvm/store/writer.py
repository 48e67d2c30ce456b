"""Writing of stores: whole chunks in bounded memory; the record that completes the store comes last."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
from streamsvm.base.text import check_classes
from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows, sparse_rows
from streamsvm.data.statistics import StatisticsBuilder
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.array_writer import ArrayWriter
from streamsvm.store.container import Container, array_metadata
from streamsvm.store.open import open_container
from streamsvm.store.rows_writer import RowsWriter, Sizes

CODECS = ("fast", "small", "none")

_DATAFRAME = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}
_DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}


class StoreWriter:
    """Writer of a store from batches of rows.

    The sizes of the store are given in advance; batches may be of any size. The writer only writes at
    `path`: for an atomic result, write at a temporary path and rename it after `finish`. After an exception
    the writer closes the container and leaves its removal to the caller. Until `finish` returns, the store
    is not marked as complete, and `open_store` refuses it as incomplete.

    Parameters
    ----------
    path : path-like
        Must not exist.
    kind : {"zarr", "hdf5"}
    shape : tuple of int
        Numbers of rows and features; either may be 0.
    nnz : int
    classes : sequence of str
        Label texts by class code, distinct.
    dtype : dtype
        float32 or float64; of dense rows also float16.
    index_base : {0, 1} or None
        The first feature index in the text that the rows come from.
    label_dtype : {"str", "int64"}
        Type of the labels in Python.
    codec : {"fast", "small", "none"}
        Blosc-lz4, Blosc-zstd or nothing in Zarr; nothing, gzip or nothing in HDF5 (where "fast" is
        "none"). Chunks always have checksums.
    chunk_nnz : int
        Values per chunk, of dense rows at most, unless a row has more.
    threads : int
        With more than one, background threads compress and write the chunks: that many for Zarr, one for
        HDF5. The files do not depend on it.
    meta : mapping, optional
        JSON-compatible entries for the record, such as ``shuffle_seed``, ``sources`` and the options of
        the conversion; `Store.meta` returns them.
    weighted : bool
        Whether `append` stores the weights of rows.
    grouped : bool
        Whether `append` stores the groups of rows.
    n_labels : int, optional
        If rows may have several labels: how many they have in all.
    feature_names : sequence of str, optional
        Distinct names of the features, at most 2**27.
    encoding : mapping, optional
        How columns of a table became features, as JSON: `Store.meta` returns it as ``encoding``.
    statistics : bool
        Whether to gather the statistics of at most 2**27 features, which takes 32 bytes of each.
    dense : bool
        Whether the rows are dense: each has a value of every one of at most 2**27 features.

    Raises
    ------
    StoreError
        If the container cannot be written, or rows are not what the format allows.
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: str,
        *,
        shape: tuple[int, int],
        nnz: int,
        classes: Sequence[str],
        dtype: np.typing.DTypeLike,
        index_base: int | None,
        label_dtype: str = TEXT,
        codec: str = "fast",
        chunk_nnz: int = format.CHUNK_NNZ,
        threads: int = 1,
        meta: Mapping[str, Any] | None = None,
        weighted: bool = False,
        grouped: bool = False,
        n_labels: int | None = None,
        feature_names: Sequence[str] | None = None,
        encoding: Mapping[str, Any] | None = None,
        statistics: bool = False,
        dense: bool = False,
    ) -> None:
        self.path = Path(path)
        self.n_rows, self.n_features = (int(size) for size in shape)
        self.nnz = int(nnz)
        self.classes = tuple(classes)
        self.dtype = np.dtype(dtype)
        if kind not in ("zarr", "hdf5") or codec not in CODECS:
            raise ValueError(f"no container {kind!r} with codec {codec!r}")
        self.dense = dense
        if self.dtype not in (np.float32, np.float64) and not (dense and self.dtype == np.float16):
            raise ValueError(f"values are float32 or float64, or float16 of dense rows, not {self.dtype}")
        sizes = (self.n_rows, self.n_features, self.nnz, n_labels or 0)
        if min(sizes) < 0 or not 1 <= chunk_nnz <= layout.MAX_CHUNK:
            raise ValueError("shape, nnz and n_labels are at least 0, chunk_nnz is 1 to 2**27")
        if dense and not (0 < self.nnz == self.n_rows * self.n_features <= layout.MAX_CHUNK * self.n_rows):
            raise ValueError("dense rows have values, one of each of at most 2**27 features")
        if index_base not in (None, 0, 1):
            raise ValueError(f"index_base is 0, 1 or None, not {index_base!r}")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes must be distinct")
        check_classes(self.classes, path, StoreError)
        self.feature_names = None if feature_names is None else list(feature_names)
        if self.feature_names is not None:
            if len(self.feature_names) != self.n_features or self.n_features > layout.VAR_LIMIT:
                raise ValueError("there is not one name for each of at most 2**27 features")
            if len(set(self.feature_names)) != self.n_features:
                raise ValueError("feature names must be distinct")

        self.columns = [
            name
            for name, present in zip(layout.COLUMNS, (weighted, grouped, n_labels is not None), strict=True)
            if present
        ]
        self.n_labels = int(n_labels or 0)
        self._record: dict[str, Any] = {
            "version": format.COLUMNS_STORE_VERSION if self.columns else 1,
            "n": self.n_rows,
            "d": self.n_features,
            "nnz": self.nnz,
            "n_classes": len(self.classes),
            "dtype": self.dtype.name,
            "index_base": index_base,
            "chunk_nnz": int(chunk_nnz),
            "codec": codec,
        }
        if self.columns:
            self._record["columns"] = self.columns
        if n_labels is not None:
            self._record["n_labels"] = self.n_labels
        if label_dtype != TEXT:
            self._record["label_dtype"] = label_dtype
        self.label_dtype = label_dtype
        if statistics and self.n_features > layout.VAR_LIMIT:
            raise ValueError("there are more than 2**27 features")
        self._statistics = StatisticsBuilder(self.n_rows, self.n_features) if statistics else None
        if self.feature_names is not None or encoding is not None or statistics or dense:
            self._record["version"] = format.DENSE_STORE_VERSION if dense else format.FEATURES_STORE_VERSION
            self._record["statistics"] = statistics
            self._record["feature_names"] = self.feature_names is not None
            self._record["encoding"] = None if encoding is None else dict(encoding)
        extra = {"normalisation": None, "shuffle_seed": None, "sources": [], **(meta or {})}
        ours = {"fingerprint", "arrays", "complete", "chunk_checksums", "checksum", "label_dtype"}
        ours |= {"columns", "n_labels", "n_groups", "weight_range", "feature_names", "encoding", "statistics"}
        if clash := {*self._record, *ours} & extra.keys():
            raise ValueError(f"meta may not set {sorted(clash)}")
        self._record.update(extra)

        self._sizes = Sizes(self.n_rows, self.nnz, self.n_labels)  # as announced
        self._threads = Threads(1 if kind == "hdf5" else threads, "streamsvm-write", background=threads > 1)
        self._container: Container | None = open_container(self.path, kind, write=True)
        try:
            self._arrays = self._create(self._container)
            for name in {layout.INDPTR, layout.LABELS_INDPTR} & self._arrays.keys():
                self._arrays[name].append(np.zeros(1, np.int64))
            self._rows = RowsWriter(
                self.path, self.n_features, len(self.classes), self.dtype, self.columns, self._arrays,
                self._statistics,
            )  # fmt: skip
        except BaseException:
            self._close_after_error()
            raise

    def _create(self, container: Container) -> dict[str, ArrayWriter]:
        """Create all groups and arrays, empty, with the attributes that anndata needs."""
        record = self._record
        n, d, codec = self.n_rows, self.n_features, record["codec"]
        container.create_group("", {"encoding-type": "anndata", "encoding-version": "0.1.0"})
        container.set_record(format.STORE_ATTR, {"version": record["version"], "complete": False})
        if self.dense:
            for group in ("uns", "uns/streamsvm"):
                container.create_group(group, _DICT)
        else:
            container.create_group("X", {**_CSR, "shape": [n, d]})
        columns = [name for name in (layout.WEIGHTS, layout.GROUPS) if name in self.columns]
        container.create_group("obs", {**_DATAFRAME, "column-order": [layout.LABEL, *columns]})
        container.create_group(f"obs/{layout.LABEL}", layout.CATEGORICAL_ATTRS)
        if d <= layout.VAR_LIMIT:
            columns = list(layout.STATISTICS) if self._statistics else []
            container.create_group("var", {**_DATAFRAME, "column-order": columns})
        if layout.LABEL_SETS in self.columns:
            container.create_group("obsm", _DICT)
            labels = {**_CSR, "shape": [n, len(self.classes)]}
            container.create_group(f"obsm/{layout.LABEL_SETS}", labels)
        arrays = {}
        specs = layout.array_specs(
            n, d, self.nnz, len(self.classes), self.dtype, self.columns, self.n_labels,
            named=self.feature_names is not None, statistics=self._statistics is not None, dense=self.dense,
        )  # fmt: skip
        for name, spec in specs.items():
            if spec.dtype is None:
                texts = (self.feature_names or []) if name == layout.FEATURES else self.classes
                container.create_text(name, texts, attrs=layout.TEXT_ATTRS)
                continue
            chunk = layout.chunk_length(name, spec.length, n=n, nnz=self.nnz, chunk_nnz=record["chunk_nnz"])
            # The numbers 0, 1, 2, ... compress to almost nothing, and are not read in passes.
            used = "small" if name == layout.FEATURES else codec
            attrs = {} if name.startswith(("X/", "obsm/")) else layout.ARRAY_ATTRS
            container.create_array(name, spec, chunk=chunk, codec=used, attrs=attrs)
            arrays[name] = ArrayWriter(container, name, spec, chunk, self._threads)
        return arrays

    def append(self, rows: Rows, names: np.ndarray) -> None:
        """Add rows at the end; their arrays are copied.

        Parameters
        ----------
        rows : Rows
            Of dense ones the zeros are left out, unless the store is dense. `norm2` is not used: norms are
            computed from the values as they are stored. With `weighted`, `cost` has the weights: finite, and
            at least 0.
        names : ndarray of int64, shape (n_rows,)
            Number of each row in the original input, at least 0.

        Raises
        ------
        StoreError
            If there are more rows, non-zeros or labels than announced, they are not valid, or they cannot
            be written.
        """
        if self._container is None:
            raise StoreError(f"{self.path}: the writer is closed")
        if self.dense != rows.dense:
            if self.dense:
                raise ValueError("the rows of a dense store are dense")
            rows = sparse_rows(rows, format.index_dtype(self.n_features))
        sizes = self._rows.sizes.plus(self._rows.sizes_of(rows))
        if any(found > announced for found, announced in zip(sizes, self._sizes, strict=True)):
            raise StoreError(
                f"{self.path}: more rows or non-zeros than announced ({self._announced(sizes)}); "
                "the input changed while it was read"
            )
        self._rows.append(rows, names)

    def _announced(self, given: Sizes) -> str:
        """Say how many rows, non-zeros and labels were given, and how many were announced."""
        labels = f", {given.n_labels} of {self.n_labels} labels" if layout.LABEL_SETS in self.columns else ""
        return f"{given.n_rows} of {self.n_rows} rows, {given.nnz} of {self.nnz} non-zeros{labels}"

    def finish(self) -> str:
        """Complete the store: write the rest, make it durable, then write the record.

        Returns
        -------
        str
            The fingerprint of the content: equal for equal rows, classes and names in equal order; it does
            not depend on container, codec or chunk length.

        Raises
        ------
        StoreError
            If there were fewer rows or non-zeros than announced, or writing fails.
        """
        container = self._container
        if container is None:
            raise StoreError(f"{self.path}: the writer is closed")
        if self._rows.sizes != self._sizes:
            raise StoreError(
                f"{self.path}: {self._announced(self._rows.sizes)} were given; "
                "the input changed while it was read"
            )
        counts = layout.DENSE_COUNTS if self.dense else layout.COUNTS
        self._arrays[counts].append(self._rows.class_counts)
        if layout.FEATURES in self._arrays:
            for start in range(0, self.n_features, 2**18):
                stop = min(start + 2**18, self.n_features)
                self._arrays[layout.FEATURES].append(np.arange(start, stop, dtype=np.int64))
        if self._statistics is not None:
            found = self._statistics.result()
            values = (found.count.astype(np.int64), *found.moments)
            for name, value in zip(layout.STATISTICS, values, strict=True):
                self._arrays[f"var/{name}"].append(value)
        digests = {name: array.finish() for name, array in self._arrays.items()}
        digests[layout.CATEGORIES] = layout.text_digest(self.classes)
        if self.feature_names is not None:
            digests[layout.FEATURES] = layout.text_digest(self.feature_names)
        checksums = container.write_checksums()
        container.sync()

        content = layout.fingerprint(
            self.n_rows, self.n_features, self.dtype, self.classes, digests,
            named=self.feature_names is not None, label_dtype=self.label_dtype,
        )  # fmt: skip
        arrays = {}
        for name, digest in digests.items():
            array = container.array(name, axes=2 if name == layout.MATRIX else 1)
            arrays[name] = {**array_metadata(array), "sha256": digest}
        record = {**self._record, "fingerprint": content, "arrays": arrays, "complete": True}
        if layout.GROUPS in self.columns:
            record["n_groups"] = self._rows.n_groups
        if layout.WEIGHTS in self.columns and self.n_rows:
            record["weight_range"] = [float(end) for end in self._rows.weight_range]
        if checksums:
            record["chunk_checksums"] = checksums
        container.set_record(format.STORE_ATTR, format.sealed(record))
        self.close()
        return content

    def close(self) -> None:
        """Close the container; unless `finish` was called, the store stays marked as incomplete."""
        self._threads.close()
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _close_after_error(self) -> None:
        """Close after an error; on a full disk closing fails as well, but the first error is reported."""
        with contextlib.suppress(StoreError):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close_after_error()
