"""Open a store and hand out its rows, validated; nothing of a store is trusted before it is checked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from streamsvm import format
from streamsvm.data.rows import Rows
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.container import REMEDY, Container, StoredArray, describe, open_container
from streamsvm.store.csr_checks import Fault, find_fault, is_monotonic
from streamsvm.text import check_classes, check_local

Progress = Callable[[int, int], None]


def open_store(path: str | os.PathLike[str], *, label: str | None = None, labelled: bool = True) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    path : path-like
        A ``.zarr`` folder, or an ``.h5``, ``.hdf5`` or ``.h5ad`` file.
    label : str, optional
        The categorical column of ``obs`` that holds the classes, for AnnData that streamsvm did not
        write. A store of ours has just one, ``"label"``.
    labelled : bool
        Whether labels are read from such AnnData; if not, it needs none, has no classes, and all label
        codes are -1.

    Returns
    -------
    Store

    Raises
    ------
    StoreError
        If there is no store, or an incomplete, damaged or altered one, or one of a newer version; or if
        AnnData does not hold what training needs. The message says which, where, and what to do.
    """
    path = Path(path)
    check_local(path, StoreError)
    if not path.exists():
        raise StoreError(
            f"{path}: nothing is there; check the path, or make a store with `streamsvm convert`"
        )
    if path.suffix.lower() not in layout.SUFFIXES:
        raise StoreError(
            f"{path} is no store, whose name ends in {', '.join(layout.SUFFIXES)}; make one with "
            "`streamsvm convert`"
        )
    kind = layout.store_kind(path)
    if path.is_dir() != (kind == "zarr"):
        expected = "a folder, as Zarr stores are" if kind == "zarr" else "a file, as HDF5 stores are"
        raise StoreError(f"{path}: not {expected}; check the path and its suffix")
    container = open_container(path, kind)
    try:
        record = container.record(format.STORE_ATTR)
        if record is not None:
            return _open_native(container, record, label if labelled else None)
        if container.attr("", "encoding-type") != "anndata":
            raise StoreError(
                f"{path}: neither a streamsvm store nor AnnData (the root says neither); "
                "an interrupted conversion leaves such a thing: convert again"
            )
        from streamsvm.store.anndata import open_foreign

        return open_foreign(container, label, labelled)
    except BaseException:
        container.close()
        raise


class Store:
    """A CSR matrix with labels on disk, read in ranges of rows.

    Made by `open_store`; a context manager. Reading needs memory for the rows asked for and a chunk of
    each array, never for the store. One thread reads at a time.

    Attributes
    ----------
    path : Path
    kind : {"zarr", "hdf5"}
    native : bool
        Whether streamsvm wrote it, with checksums and a record.
    n_rows, n_features, nnz, n_classes : int
    classes : tuple of str
        Label texts by class code.
    class_counts : ndarray of int64, shape (n_classes,)
        Rows of each class.
    dtype : dtype
        Of the values that `rows` gives.
    index_dtype : dtype
        Of the indices that `rows` gives.
    fingerprint : str
        Hash of the content.
    index_base : int or None
        Of the text that the store was converted from.
    shuffled : bool
        Whether rows are in random order.
    chunk_nnz : int
        Non-zeros a chunk.
    meta : dict
        The store's record without its array table; empty for AnnData of others.
    bytes_read : int
        Decoded bytes handed out so far.
    """

    native = True

    def __init__(
        self,
        container: Container,
        arrays: dict[str, StoredArray],
        *,
        n_rows: int,
        n_features: int,
        nnz: int,
        classes: Sequence[str],
        dtype: np.dtype,
        meta: dict[str, Any],
        digests: dict[str, str] | None = None,
    ) -> None:
        check_classes(classes, container.path, StoreError)
        self.path = container.path
        self.kind = container.kind
        self.n_rows = n_rows
        self.n_features = n_features
        self.nnz = nnz
        self.classes = tuple(classes)
        self.n_classes = len(self.classes)
        self.dtype = dtype
        self.index_dtype = format.index_dtype(n_features)
        self.index_base: int | None = meta.get("index_base")
        self.shuffled = meta.get("shuffle_seed") is not None
        self.chunk_nnz = int(meta.get("chunk_nnz", arrays[layout.DATA].chunk))
        self.meta = meta
        self.bytes_read = 0
        self._container = container
        self._arrays = arrays
        self._digests = digests or {}

    @property
    def fingerprint(self) -> str:
        return self.meta["fingerprint"]

    @property
    def class_counts(self) -> np.ndarray:
        return self._read(layout.COUNTS, 0, self.n_classes)

    def rows(self, start: int, stop: int) -> Rows:
        """Rows ``start:stop``, checked to be what compiled code may rely on.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        Rows
            Fresh, writable, contiguous arrays: values finite, indices inside the matrix and strictly
            increasing within each row, labels in ``-1..n_classes - 1``, norms finite.

        Raises
        ------
        StoreError
            Naming array and chunk, when they are not.
        """
        offsets = self.indptr(start, stop)
        lo, hi = int(offsets[0]), int(offsets[-1])
        offsets -= lo
        data, indices = self._values(lo, hi, offsets)
        fault = find_fault(data, indices, offsets, self.n_features)
        if fault is not None:
            raise self._fault(start, lo, offsets, fault)
        return Rows(data, indices, offsets, self.labels(start, stop), self._norms(start, stop, data, offsets))

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Where rows ``start:stop`` begin among all non-zeros, and where the last one ends.

        Returns
        -------
        ndarray of int64, shape (stop - start + 1,)
            Monotonic, within ``0..nnz``.
        """
        self._check_range(start, stop)
        offsets = self._read(layout.INDPTR, start, stop + 1).astype(format.INDPTR_DTYPE, copy=False)
        if not (offsets[0] >= 0 and offsets[-1] <= self.nnz and is_monotonic(offsets)):
            previous = np.concatenate([[0], offsets[:-1]])
            at = int(np.argmax((offsets < previous) | (offsets > self.nnz)))
            raise self._arrays[layout.INDPTR].fault(start + at, "the row pointers are not in order")
        return offsets

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Class codes of rows ``start:stop``, int32; -1 marks a label that training did not know."""
        self._check_range(start, stop)
        codes = self._read(layout.CODES, start, stop)
        if len(codes) and not -1 <= int(codes.min()) <= int(codes.max()) < self.n_classes:
            at = int(np.argmax((codes < -1) | (codes >= self.n_classes)))
            raise self._arrays[layout.CODES].fault(start + at, f"label code {codes[at]} is out of range")
        return codes.astype(format.LABEL_DTYPE, copy=False)

    def norms(self, start: int, stop: int) -> np.ndarray:
        """Squared norms of the rows ``start:stop``, float64; AnnData of others is read for them."""
        self._check_range(start, stop)
        norms = self._read(layout.NORM2, start, stop)
        good = np.isfinite(norms) & (norms >= 0)
        if not good.all():
            at = start + int(np.argmin(good))
            raise self._arrays[layout.NORM2].fault(at, "a norm is not finite, or below 0")
        return norms

    def names(self, start: int, stop: int) -> np.ndarray:
        """What the rows ``start:stop`` are called: their numbers in the original input, int64.

        AnnData of others gives its own row names, of any dtype.
        """
        self._check_range(start, stop)
        names = self._read(layout.NAMES, start, stop)
        if len(names) and names.min() < 0:
            raise self._arrays[layout.NAMES].fault(start + int(np.argmin(names)), "a row number is below 0")
        return names

    def feature_names(self) -> list[str] | None:
        """Names of the features, read anew; None if they have none but their numbers, as in stores of ours.

        Raises `FeatureError` if a name occurs twice.
        """
        return None

    def verify(self, progress: Progress | None = None) -> None:
        """Read every chunk of every array, and compare the content with the fingerprint.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done, total)`` in decoded bytes.

        Raises
        ------
        StoreError
            At the first damage, naming array and chunk.
        """
        total = sum(array.length * array.dtype.itemsize for array in self._arrays.values() if array.dtype)
        done = 0
        found = {layout.CATEGORIES: layout.text_digest(self.classes)}
        for name, array in self._arrays.items():
            if array.dtype is None:
                continue
            sha = hashlib.sha256()
            for start in range(0, array.length, array.chunk):
                stop = min(start + array.chunk, array.length)
                values = np.ascontiguousarray(array.read(start, stop), array.dtype.newbyteorder("<"))
                sha.update(values.data)
                done += values.nbytes
                if progress is not None:
                    progress(done, total)
            found[name] = sha.hexdigest()
            if found[name] != self._digests[name]:
                raise StoreError(f"{self.path}: array {name} is not what the store's record says ({REMEDY})")
        whole = layout.fingerprint(self.n_rows, self.n_features, self.dtype, self.classes, found)
        if whole != self.fingerprint:
            raise StoreError(f"{self.path}: the content does not have the recorded fingerprint ({REMEDY})")

    def _check_ends(self) -> None:
        """Raise StoreError unless the row pointers begin with 0 and end with `nnz`."""
        ends = [(0, 0), (self.n_rows, self.nnz)]
        array = self._arrays[layout.INDPTR]
        for row, expected in ends:
            if int(array.read(row, row + 1)[0]) != expected:
                raise array.fault(row, f"row pointer {row} is not {expected}")

    def close(self) -> None:
        """Close the container; the arrays handed out stay valid."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _values(self, lo: int, hi: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and indices of non-zeros ``lo:hi``; `offsets` are those of their rows, from 0."""
        return self._read(layout.DATA, lo, hi), self._read(layout.INDICES, lo, hi)

    def _fault(self, start: int, lo: int, offsets: np.ndarray, fault: Fault) -> StoreError:
        """The error for a fault in rows from `start` on, whose non-zeros begin at `lo`."""
        return self._arrays[f"X/{fault.array}"].fault(lo + fault.element, fault.reason)

    def _norms(self, start: int, stop: int, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        return self.norms(start, stop)

    def _read(self, name: str, start: int, stop: int) -> np.ndarray:
        values = self._arrays[name].read(start, stop)
        self.bytes_read += values.nbytes
        return values

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}:{stop} of {self.n_rows}")


def _open_native(container: Container, record: Any, label: str | None) -> Store:
    """A store of ours: its record must be whole, and the arrays must be those of the record."""
    path = container.path
    if not isinstance(record, dict):
        raise StoreError(f"{path}: the store's record is no JSON object ({REMEDY})")
    version = record.get("version")
    if isinstance(version, int) and version > format.STORE_VERSION:
        raise StoreError(
            f"{path}: written by a newer streamsvm (store format {version}, this one reads "
            f"{format.STORE_VERSION}); update streamsvm"
        )
    if record.get("complete") is False:
        raise StoreError(f"{path}: incomplete: its conversion did not finish; convert again")
    if not _is_sealed(record):
        raise StoreError(f"{path}: the store's record was altered: its checksum does not fit ({REMEDY})")
    if label not in (None, layout.LABEL):
        raise StoreError(f"{path}: a streamsvm store has one label column, {layout.LABEL!r}; omit {label!r}")

    n, d, nnz, k = (_count(path, record, key) for key in ("n", "d", "nnz", "n_classes"))
    listed, checksums = record.get("arrays"), record.get("chunk_checksums", {})
    if (
        version != format.STORE_VERSION
        or record.get("complete") is not True
        or record.get("dtype") not in ("float32", "float64")
        or record.get("index_base") not in (None, 0, 1)
        or not 1 <= _count(path, record, "chunk_nnz") <= layout.MAX_CHUNK
        or not isinstance(checksums, dict)
    ):
        raise StoreError(f"{path}: the store's record makes no sense ({REMEDY})")
    dtype = np.dtype(record["dtype"])
    specs = layout.array_specs(n, d, nnz, k, dtype)
    if not isinstance(listed, dict) or listed.keys() != specs.keys():
        raise StoreError(f"{path}: the store's record lists other arrays than a store has ({REMEDY})")
    if container.attr("X", "shape") != [n, d]:
        raise StoreError(f"{path}: the shape of X is not the recorded {n} x {d} ({REMEDY})")

    arrays: dict[str, StoredArray] = {}
    digests: dict[str, str] = {}
    for name, spec in specs.items():
        array = container.array(name)
        there = {**describe(array), "sha256": digests.setdefault(name, _text(listed[name], "sha256"))}
        if there != listed[name] or (array.length, array.dtype) != (spec.length, spec.dtype):
            raise StoreError(f"{path}: array {name} has other metadata than the store recorded ({REMEDY})")
        if array.chunk > min(max(1, array.length), layout.MAX_CHUNK):
            raise StoreError(f"{path}: array {name} has chunks above 2**27 elements or its length ({REMEDY})")
        array.check_held()
        array.check_chunks()
        if name in checksums:
            array.expect_chunks(str(checksums[name]))
        arrays[name] = array
    texts = arrays[layout.CATEGORIES]
    classes: list[str] = []
    for start in range(0, k, texts.chunk):
        classes += texts.read(start, min(start + texts.chunk, k)).tolist()
    if layout.text_digest(classes) != digests[layout.CATEGORIES]:
        raise arrays[layout.CATEGORIES].fault(0, "the class names are not the recorded ones")
    if layout.fingerprint(n, d, dtype, classes, digests) != record.get("fingerprint"):
        raise StoreError(f"{path}: the recorded fingerprint is not that of the recorded arrays ({REMEDY})")
    meta = {
        key: value for key, value in record.items() if key not in ("arrays", "chunk_checksums", "checksum")
    }
    store = Store(
        container,
        arrays,
        n_rows=n,
        n_features=d,
        nnz=nnz,
        classes=classes,
        dtype=dtype,
        meta=meta,
        digests=digests,
    )
    store._check_ends()
    return store


def _is_sealed(record: dict[str, Any]) -> bool:
    try:
        return format.is_sealed(record)
    except (ValueError, RecursionError):  # NaN, or nested without end: nothing that was ever sealed
        return False


def _count(path: Path, record: dict[str, Any], key: str) -> int:
    value = record.get(key)
    if type(value) is not int or not 0 <= value < 2**62:
        raise StoreError(f"{path}: the store's record has no sensible {key!r} ({REMEDY})")
    return value


def _text(entry: Any, key: str) -> str:
    return str(entry.get(key)) if isinstance(entry, dict) else ""
