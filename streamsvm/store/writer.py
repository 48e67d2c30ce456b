"""Write a store: whole chunks in bounded memory, and the mark that says `complete` last of all."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamsvm import format
from streamsvm.data.rows import Rows
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.container import Container, describe, open_container
from streamsvm.store.csr_checks import find_fault, is_monotonic, row_norms
from streamsvm.store.layout import ArraySpec
from streamsvm.text import check_classes

CODECS = ("fast", "small", "none")

_DATAFRAME = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"}
_ARRAY = {"encoding-type": "array", "encoding-version": "0.2.0"}
_TEXT = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


class StoreWriter:
    """Write a store from batches of rows.

    Everything is known beforehand; batches may be of any size. The writer writes at `path` and nowhere
    else: a caller who wants all or nothing gives a temporary path and renames it after `finish`. On an
    exception it closes what it has open and leaves removal to the caller. Until `finish` returns, the
    store bears no mark of completeness, and `open_store` refuses it by name.

    Parameters
    ----------
    path : path-like
        Must not exist.
    kind : {"zarr", "hdf5"}
    shape : tuple of int
        Rows and features; either may be 0.
    nnz : int
    classes : sequence of str
        Label texts by class code, distinct.
    dtype : dtype
        float32 or float64.
    index_base : {0, 1} or None
        Of the text that the rows come from.
    codec : {"fast", "small", "none"}
        Blosc-lz4, Blosc-zstd or nothing in Zarr; nothing, gzip or nothing in HDF5 (where
        "fast" is "none"). Checksums always.
    chunk_nnz : int
        Non-zeros a chunk.
    threads : int
        With more than one, chunks are compressed and written by threads of their own, one of them for
        HDF5, as many for Zarr. What is written does not depend on them. The arrays given to `append`
        must then stay as they are until `finish`.
    meta : mapping, optional
        JSON-compatible entries for the record, such as ``shuffle_seed``, ``sources`` and the options of
        the conversion; they come back as `Store.meta`.

    Raises
    ------
    StoreError
        When the container cannot be written, or rows are not what the format allows.
    ValueError
        For arguments that contradict the above.
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
        codec: str = "fast",
        chunk_nnz: int = format.CHUNK_NNZ,
        threads: int = 1,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        self.n_rows, self.n_features = (int(size) for size in shape)
        self.nnz = int(nnz)
        self.classes = tuple(classes)
        self.dtype = np.dtype(dtype)
        if kind not in ("zarr", "hdf5") or codec not in CODECS:
            raise ValueError(f"no container {kind!r} with codec {codec!r}")
        if self.dtype not in (np.float32, np.float64):
            raise ValueError(f"values are float32 or float64, not {self.dtype}")
        if min(self.n_rows, self.n_features, self.nnz) < 0 or not 1 <= chunk_nnz <= layout.MAX_CHUNK:
            raise ValueError("shape and nnz are at least 0, chunk_nnz is 1 to 2**27")
        if index_base not in (None, 0, 1):
            raise ValueError(f"index_base is 0, 1 or None, not {index_base!r}")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes must be distinct")
        check_classes(self.classes, path, StoreError)

        self._record: dict[str, Any] = {
            "version": format.STORE_VERSION,
            "n": self.n_rows,
            "d": self.n_features,
            "nnz": self.nnz,
            "n_classes": len(self.classes),
            "dtype": self.dtype.name,
            "index_base": index_base,
            "chunk_nnz": int(chunk_nnz),
            "codec": codec,
        }
        extra = {"normalisation": None, "shuffle_seed": None, "sources": [], **(meta or {})}
        if (
            clash := {*self._record, "fingerprint", "arrays", "complete", "chunk_checksums", "checksum"}
            & extra.keys()
        ):
            raise ValueError(f"meta may not set {sorted(clash)}")
        self._record.update(extra)

        self._rows = 0
        self._nnz = 0
        self._counts = np.zeros(len(self.classes), np.int64)
        self._crew = _Crew(0 if threads == 1 else 1 if kind == "hdf5" else threads)
        self._container: Container | None = open_container(self.path, kind, write=True)
        try:
            self._columns = self._create(self._container)
            self._columns[layout.INDPTR].append(np.zeros(1, np.int64))
        except BaseException:
            self._give_up()
            raise

    def _create(self, container: Container) -> dict[str, _Column]:
        """All groups and arrays, empty, with what anndata wants to see on them."""
        record = self._record
        n, d, codec = self.n_rows, self.n_features, record["codec"]
        container.create_group("", {"encoding-type": "anndata", "encoding-version": "0.1.0"})
        container.set_record(format.STORE_ATTR, {"version": format.STORE_VERSION, "complete": False})
        matrix = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n, d]}
        container.create_group("X", matrix)
        container.create_group("obs", {**_DATAFRAME, "column-order": [layout.LABEL]})
        categorical = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
        container.create_group(f"obs/{layout.LABEL}", categorical)
        if d <= layout.VAR_LIMIT:
            container.create_group("var", {**_DATAFRAME, "column-order": []})
        columns = {}
        for name, spec in layout.array_specs(n, d, self.nnz, len(self.classes), self.dtype).items():
            if spec.dtype is None:
                container.create_text(name, self.classes, attrs=_TEXT)
                continue
            chunk = layout.chunk_length(name, spec.length, n=n, nnz=self.nnz, chunk_nnz=record["chunk_nnz"])
            # Plain counting numbers shrink to nothing, and nobody streams them.
            used = "small" if name == layout.FEATURES else codec
            attrs = {} if name.startswith("X/") else _ARRAY
            container.create_array(name, spec, chunk=chunk, codec=used, attrs=attrs)
            columns[name] = _Column(container, name, spec, chunk, self._crew)
        return columns

    def append(self, rows: Rows, names: np.ndarray) -> None:
        """Add rows at the end.

        Parameters
        ----------
        rows : Rows
            `norm2` is not used: the norms stored are those of the values as stored.
        names : ndarray of int64, shape (n_rows,)
            Number of each row in the original input, at least 0.

        Raises
        ------
        StoreError
            If the rows exceed the announced totals, are no valid CSR, or cannot be written.
        """
        if self._container is None:
            raise StoreError(f"{self.path}: the writer is closed")
        start, n = self._rows, rows.n_rows
        indptr = np.asarray(rows.indptr, np.int64)
        data = np.ascontiguousarray(rows.data, self.dtype)
        self._rows += n
        self._nnz += len(data)
        if self._rows > self.n_rows or self._nnz > self.nnz:
            raise StoreError(
                f"{self.path}: more rows or non-zeros than announced ({self._rows} of {self.n_rows} rows, "
                f"{self._nnz} of {self.nnz} non-zeros); the input changed while it was read"
            )
        labels = np.asarray(rows.labels)
        indices = np.ascontiguousarray(rows.indices)
        reason = self._refusal(data, indices, indptr, labels, names)
        if reason is None:
            norms = row_norms(data, indptr)
            if not np.isfinite(norms).all():
                reason = f"row {int(np.argmin(np.isfinite(norms)))}: the squared norm overflows"
        if reason is not None:
            raise StoreError(f"{self.path}: rows from {start} on cannot be stored: {reason}")
        self._columns[layout.INDPTR].append(indptr[1:] + (self._nnz - len(data)))
        self._columns[layout.DATA].append(data)
        self._columns[layout.INDICES].append(indices)
        self._columns[layout.NORM2].append(norms)
        self._columns[layout.CODES].append(labels)
        self._columns[layout.NAMES].append(names)
        self._counts += np.bincount(labels[labels >= 0], minlength=len(self.classes))

    def _refusal(
        self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, labels: np.ndarray, names: np.ndarray
    ) -> str | None:
        """Why a reader would refuse these rows, if it would."""
        if not len(indptr) == len(labels) + 1 == len(names) + 1 or len(data) != len(indices):
            return "the arrays' lengths do not fit together"
        if indptr[0] != 0 or indptr[-1] != len(data) or not is_monotonic(indptr):
            return "indptr does not rise from 0 to the number of values"
        if len(labels) and not -1 <= labels.min() <= labels.max() < len(self.classes):
            return f"a label code is outside -1..{len(self.classes) - 1}"
        if len(names) and np.min(names) < 0:
            return "a row name is below 0"
        fault = find_fault(data, indices, indptr, self.n_features)
        if fault is None:
            return None
        return f"row {int(np.searchsorted(indptr, fault.element, 'right')) - 1}: {fault.reason}"

    def finish(self) -> str:
        """Complete the store: what is left in buffers, then durability, then the mark.

        Returns
        -------
        str
            The content fingerprint: equal for equal rows, classes and names in equal order, whatever the
            container, codec and chunk length.

        Raises
        ------
        StoreError
            If fewer rows or non-zeros came than announced, or writing fails.
        """
        container = self._container
        if container is None:
            raise StoreError(f"{self.path}: the writer is closed")
        if (self._rows, self._nnz) != (self.n_rows, self.nnz):
            raise StoreError(
                f"{self.path}: {self._rows} of {self.n_rows} rows and {self._nnz} of {self.nnz} non-zeros "
                "came; the input changed while it was read"
            )
        self._columns[layout.COUNTS].append(self._counts)
        if layout.FEATURES in self._columns:
            for start in range(0, self.n_features, 2**18):
                stop = min(start + 2**18, self.n_features)
                self._columns[layout.FEATURES].append(np.arange(start, stop, dtype=np.int64))
        digests = {name: column.finish() for name, column in self._columns.items()}
        self._crew.finish()
        digests[layout.CATEGORIES] = layout.text_digest(self.classes)
        checksums = container.write_checksums()
        container.sync()

        content = layout.fingerprint(self.n_rows, self.n_features, self.dtype, self.classes, digests)
        arrays = {
            name: {**describe(container.array(name)), "sha256": digest} for name, digest in digests.items()
        }
        record = {**self._record, "fingerprint": content, "arrays": arrays, "complete": True}
        if checksums:
            record["chunk_checksums"] = checksums
        container.set_record(format.STORE_ATTR, format.sealed(record))
        self.close()
        return content

    def close(self) -> None:
        """Close the container; without `finish` before, what is there stays marked as incomplete."""
        self._crew.close()
        container, self._container = self._container, None
        if container is not None:
            container.close()

    def _give_up(self) -> None:
        """Close after an error. A full disk fails this too, but the first reason counts."""
        with contextlib.suppress(StoreError):
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._give_up()


class _Crew:
    """Threads that write chunks, with few of them on their way; none: they are written at once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streamsvm-write") if threads else None
        self._limit = 2 * threads
        self._waiting: deque[Future[None]] = deque()

    def __call__(self, write: Callable[..., None], *args: Any) -> None:
        """Have `write` called; raises what an earlier call raised."""
        if self._pool is None:
            write(*args)
            return
        self._waiting.append(self._pool.submit(write, *args))
        while len(self._waiting) > self._limit:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for all of them."""
        while self._waiting:
            self._waiting.popleft().result()

    def close(self) -> None:
        """Let those under way come to an end, whatever it is, and forget the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class _Column:
    """One array being filled: cuts what comes into whole chunks, and hashes it on the way."""

    def __init__(self, container: Container, name: str, spec: ArraySpec, chunk: int, crew: _Crew) -> None:
        assert spec.dtype is not None
        self._container = container
        self._crew = crew
        self._name = name
        self._length = spec.length
        self._dtype = spec.dtype.newbyteorder("<")
        self._buffer = np.empty(chunk, self._dtype)
        self._held = 0
        self._written = 0
        self._sha = hashlib.sha256()

    def append(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values, self._dtype)
        self._sha.update(values.data)
        chunk = len(self._buffer)
        while len(values):
            if not self._held and len(values) >= chunk:
                self._write(values[:chunk])
                values = values[chunk:]
                continue
            part = values[: chunk - self._held]
            self._buffer[self._held : self._held + len(part)] = part
            self._held += len(part)
            values = values[len(part) :]
            if self._held == chunk:
                self._flush()

    def _flush(self) -> None:
        self._write(self._buffer[: self._held])
        self._buffer = np.empty_like(self._buffer)  # the other may still be on its way
        self._held = 0

    def _write(self, values: np.ndarray) -> None:
        self._crew(self._container.write, self._name, self._written, values)
        self._written += len(values)

    def finish(self) -> str:
        self._flush()
        if self._written != self._length:
            raise StoreError(f"{self._name}: {self._written} elements written, {self._length} announced")
        return self._sha.hexdigest()
