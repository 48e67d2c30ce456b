"""Reading of stores, whose content is checked before it is used."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
from streamsvm.base.repr import Readable
from streamsvm.base.text import check_classes
from streamsvm.data.checks import find_label_violation, find_violation, first_labels
from streamsvm.data.names import feature_names
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.errors import StoreError
from streamsvm.store import layout
from streamsvm.store.chunk_reader import Ranges
from streamsvm.store.container import DAMAGED, Container, StoredArray
from streamsvm.store.matrices import check_ends, number_in, read_pointers

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True)
class Units:
    """Ranges of successive rows that no block divides.

    Attributes
    ----------
    rows, offsets : ndarray of int64, shape (n_units + 1,)
        The first row and the first non-zero of each, and where the last one ends.
    """

    rows: np.ndarray
    offsets: np.ndarray


class Store(Readable):
    """CSR matrix with labels on disk, read in ranges of rows.

    `open_store` returns it; it is a context manager. Reading needs memory for the requested rows and one
    chunk of each array, never for the whole store. Only one thread may read at a time.

    Attributes
    ----------
    path : Path
    kind : {"zarr", "hdf5"}
    native : bool
        Whether streamsvm wrote it, with checksums and a record. False for other AnnData.
    n_rows, n_features, nnz, n_classes : int
    classes : tuple of str
        Label texts by class code.
    class_counts : ndarray of int64, shape (n_classes,)
        Rows of each class; a row of several labels counts for each.
    weighted, multilabel, grouped : bool
        True if rows have weights; if they may have several labels, or none; if they belong to groups, such
        as sequences.
    n_labels : int
        Labels of all rows together, if `multilabel`; else 0. If not `native`, at most so many.
    units : Units or None
        Ranges of rows that are read as one; None if a block may begin anywhere.
    unlabelled : int
        Rows that were left out because they have no label.
    dtype : dtype
        Of the values that `rows` returns: float32 or float64.
    index_dtype : dtype
        Of the indices that `rows` returns: int32 or int64.
    fingerprint : str
        Hash of the content.
    index_base : int or None
        The first feature index in the text that the store was converted from: 0 or 1.
    shuffled : bool
        Whether rows are in random order.
    chunk_nnz : int
        Non-zeros per chunk.
    meta : dict
        The store's record without its table of arrays; empty if not `native`.
    arrays : dict of str to StoredArray
        The arrays of the container, by the names in `layout`.
    bytes_read : int
        Decoded bytes returned so far.
    held_bytes : int
        Bytes that the store holds while it is open, beside the chunks being decoded.
    extra_nnz_bytes : int
        Bytes of each non-zero that reading needs beyond two copies of it, at most.
    """

    native = True
    unlabelled = 0
    units: Units | None = None
    held_bytes = 0
    extra_nnz_bytes = 0

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
        self.label_dtype: str = meta.get("label_dtype", TEXT)
        self.dtype = dtype
        self.index_dtype = format.index_dtype(n_features)
        self.index_base: int | None = meta.get("index_base")
        self.shuffled = meta.get("shuffle_seed") is not None
        self.chunk_nnz = int(meta["chunk_nnz"])
        self.meta = meta
        self.bytes_read = 0
        self.weighted = layout.WEIGHT in arrays
        self.grouped = layout.QID in arrays
        self.multilabel = layout.LABELS_CODES in arrays
        self.n_labels = arrays[layout.LABELS_CODES].length if self.multilabel else 0
        self._container = container
        self.arrays = arrays
        self._digests = digests or {}

    def _facts(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "nnz": self.nnz,
            "n_classes": self.n_classes,
            "dtype": str(self.dtype),
            **{name: True for name in ("weighted", "multilabel", "grouped") if getattr(self, name)},
            "shuffled": self.shuffled,
            "classes": self.classes,
        }

    @property
    def fingerprint(self) -> str:
        return self.meta["fingerprint"]

    @property
    def class_counts(self) -> np.ndarray:
        return self._read(layout.COUNTS, [(0, self.n_classes)])

    def rows(self, start: int, stop: int) -> Rows:
        """Read the rows ``start:stop``, and check that they are what compiled code relies on.

        Parameters
        ----------
        start, stop : int
            ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        Rows
            New, writable, contiguous arrays: values are finite, indices are in ``0..n_features - 1`` and
            strictly increasing within each row, labels are in ``-1..n_classes - 1``, norms are finite. `cost`
            has the weights of the rows, finite and at least 0, or is empty if the store has none.

        Raises
        ------
        StoreError
            If they are not, or cannot be read; the message names array and chunk.
        IndexError
            If there are no such rows.
        """
        self._check_range(start, stop)
        return self.rows_of([(start, stop)])

    def rows_of(self, ranges: Ranges) -> Rows:
        """Read some ranges of rows, one after the other; errors are those of `rows`.

        Each chunk is decoded once, in the order in which chunks lie on the disk.
        """
        spans, indptr = self._pointers(layout.INDPTR, ranges, self.nnz)
        data, indices = self._read(layout.DATA, spans), self._read(layout.INDICES, spans)
        violation = find_violation(data, indices, indptr, self.n_features)
        if violation is not None:
            element = number_in(spans, violation.element)
            raise self.arrays[f"X/{violation.array}"].damage(element, violation.reason)
        rows = Rows(data, indices, indptr, self.labels_of(ranges), self._norms_of(ranges))
        if self.multilabel:
            codes, starts = self._label_sets_of(ranges)
            first = first_labels(codes, starts)
            if not np.array_equal(rows.labels, first):
                at = number_in(ranges, int(np.argmax(rows.labels != first)))
                reason = f"the label of row {at} is not the first of its labels"
                raise self.arrays[layout.CODES].damage(at, reason)
            rows = rows._replace(label_codes=codes, label_indptr=starts)
        if self.weighted:
            rows = rows._replace(cost=self._weights_of(ranges))
        if self.grouped:
            rows = rows._replace(qid=self._groups_of(ranges))
        return rows

    def indptr(self, start: int, stop: int) -> np.ndarray:
        """Return where the rows ``start:stop`` begin among all non-zeros, and where the last one ends.

        Returns
        -------
        ndarray of int64, shape (stop - start + 1,)
            Monotonic, within ``0..nnz``.
        """
        self._check_range(start, stop)
        [(begin, _)], indptr = self._pointers(layout.INDPTR, [(start, stop)], self.nnz)
        return indptr + begin

    def _pointers(self, name: str, ranges: Ranges, end: int) -> tuple[list[tuple[int, int]], np.ndarray]:
        """Read row pointers of an array that ends with `end`: see `read_pointers`."""
        spans, indptr = read_pointers(self.arrays[name], ranges, end)
        self.bytes_read += indptr.nbytes
        return spans, indptr

    def labels(self, start: int, stop: int) -> np.ndarray:
        """Return the class codes of the rows ``start:stop``, int32; -1 is a label outside `classes`."""
        self._check_range(start, stop)
        return self.labels_of([(start, stop)])

    def labels_of(self, ranges: Ranges) -> np.ndarray:
        """Return the class codes of some ranges of rows, one after the other, as `labels` does."""
        codes = self._read(layout.CODES, ranges)
        if len(codes) and not -1 <= int(codes.min()) <= int(codes.max()) < self.n_classes:
            at = int(np.argmax((codes < -1) | (codes >= self.n_classes)))
            reason = f"label code {codes[at]} is out of range"
            raise self.arrays[layout.CODES].damage(number_in(ranges, at), reason)
        return codes.astype(format.LABEL_DTYPE, copy=False)

    def label_indptr(self, start: int, stop: int) -> np.ndarray:
        """Return where the labels of the rows ``start:stop`` begin among all labels, and where they end.

        Only if `multilabel`. If not `native`, they may have fewer labels than this says.

        Returns
        -------
        ndarray of int64, shape (stop - start + 1,)
            Monotonic, within ``0..n_labels``.
        """
        self._check_range(start, stop)
        [(begin, _)], indptr = self._pointers(layout.LABELS_INDPTR, [(start, stop)], self.n_labels)
        return indptr + begin

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return `label_codes` and `label_indptr` of the rows ``start:stop``, as `Rows` has them.

        Only if `multilabel`.
        """
        self._check_range(start, stop)
        return self._label_sets_of([(start, stop)])

    def _label_sets_of(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        spans, indptr = self._pointers(layout.LABELS_INDPTR, ranges, self.n_labels)
        codes = self._read(layout.LABELS_CODES, spans)
        violation = find_label_violation(codes, indptr, self.n_classes)
        if violation is not None:
            element = number_in(spans, violation.element)
            raise self.arrays[layout.LABELS_CODES].damage(element, violation.reason)
        return codes.astype(format.LABEL_DTYPE, copy=False), indptr

    def weights(self, start: int, stop: int) -> np.ndarray:
        """Return the weights of the rows ``start:stop``, float64; only if `weighted`."""
        self._check_range(start, stop)
        return self._weights_of([(start, stop)])

    def _weights_of(self, ranges: Ranges) -> np.ndarray:
        weights = self._read(layout.WEIGHT, ranges)
        good = np.isfinite(weights) & (weights >= 0)
        if not good.all():
            at = number_in(ranges, int(np.argmin(good)))
            raise self.arrays[layout.WEIGHT].damage(at, f"the weight of row {at} is not finite or negative")
        return weights

    def groups(self, start: int, stop: int) -> np.ndarray:
        """Return the groups that the rows ``start:stop`` belong to, int64; only if `grouped`."""
        self._check_range(start, stop)
        return self._groups_of([(start, stop)])

    def _groups_of(self, ranges: Ranges) -> np.ndarray:
        qid = self._read(layout.QID, ranges)
        if len(qid) and qid.min() < 0:
            at = number_in(ranges, int(np.argmin(qid)))
            raise self.arrays[layout.QID].damage(at, f"the group of row {at} is negative")
        return qid

    def numbers(self, start: int, stop: int) -> np.ndarray:
        """Return the numbers that the rows ``start:stop`` have in the data as given, int64.

        Rows of joined stores are counted through, and those without a label are not counted. Only slices
        have another order than the data.
        """
        self._check_range(start, stop)
        return np.arange(start, stop)

    def norms(self, start: int, stop: int) -> np.ndarray:
        """Return the squared norms of the rows ``start:stop``, float64; they are computed if not `native`."""
        self._check_range(start, stop)
        return self._norms_of([(start, stop)])

    def _norms_of(self, ranges: Ranges) -> np.ndarray:
        norms = self._read(layout.NORM2, ranges)
        good = np.isfinite(norms) & (norms >= 0)
        if not good.all():
            at = number_in(ranges, int(np.argmin(good)))
            raise self.arrays[layout.NORM2].damage(at, "a norm is not finite or negative")
        return norms

    def names(self, start: int, stop: int) -> np.ndarray:
        """Return the names of the rows ``start:stop``: their numbers in the original input, int64.

        If not `native`, the index of ``obs``, as str objects.
        """
        self._check_range(start, stop)
        names = self._read(layout.NAMES, [(start, stop)])
        if len(names) and names.min() < 0:
            raise self.arrays[layout.NAMES].damage(start + int(np.argmin(names)), "a row number is negative")
        return names

    def feature_names(self) -> list[str] | None:
        """Read the names of the features; None if they only have numbers, as those of LIBSVM text.

        Raises
        ------
        StoreError
            If they are not those on record, or cannot be read.
        """
        if not self.meta.get("feature_names"):
            return None
        array = self.arrays[layout.FEATURES]
        names = array.texts()
        if layout.text_digest(names) != self._digests[layout.FEATURES]:
            raise array.damage(0, "the names of the features are not those on record")
        return feature_names(names, str(self.path))

    def statistics(self) -> Statistics | None:
        """Read the statistics of the features; None if they were not gathered.

        Raises
        ------
        StoreError
            If they are impossible, or cannot be read.
        """
        if not self.meta.get("statistics"):
            return None
        arrays = [self.arrays[f"var/{name}"] for name in layout.STATISTICS]
        count, centre, deviations, largest = (array.read(0, self.n_features) for array in arrays)
        valid = ((count >= 0) & (count <= self.n_rows), np.isfinite(centre), deviations >= 0, largest >= 0)
        for array, good in zip(arrays, valid, strict=True):
            if not good.all():
                raise array.damage(int(np.argmin(good)), "it is out of range")
        return Statistics(self.n_rows, count.astype(np.float64), centre, deviations, largest)

    def verify(self, progress: Progress | None = None) -> None:
        """Read every chunk of every array, and compare the content with the fingerprint.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(done, total)`` in decoded bytes.

        Raises
        ------
        StoreError
            At the first damage; the message names the array, and the chunk if one cannot be read.
        """
        total = sum(array.length * array.dtype.itemsize for array in self.arrays.values() if array.dtype)
        done = 0
        found = {layout.CATEGORIES: layout.text_digest(self.classes)}
        named = bool(self.meta.get("feature_names"))
        if named:
            found[layout.FEATURES] = layout.text_digest(self.feature_names() or [])
        for name, array in self.arrays.items():
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
                raise StoreError(f"{self.path}: array {name} does not match the store's record ({DAMAGED})")
        whole = layout.fingerprint(
            self.n_rows, self.n_features, self.dtype, self.classes, found, named=named,
            label_dtype=self.label_dtype,
        )  # fmt: skip
        if whole != self.fingerprint:
            raise StoreError(f"{self.path}: the content does not match the recorded fingerprint ({DAMAGED})")

    def check_row_pointer_ends(self) -> None:
        """Raise StoreError unless row pointers begin with 0 and end with the number of what they point to."""
        for name, end in [(layout.INDPTR, self.nnz), (layout.LABELS_INDPTR, self.n_labels)]:
            if name in self.arrays:
                check_ends(self.arrays[name], self.n_rows, end)

    def close(self) -> None:
        """Close the container; arrays that were returned stay valid."""
        self._container.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _read(self, name: str, ranges: Ranges) -> np.ndarray:
        values = self.arrays[name].read_ranges(ranges)
        self.bytes_read += values.nbytes
        return values

    @property
    def chunk_rows(self) -> float:
        """Mean number of rows per chunk of values."""
        return self.chunk_nnz * self.n_rows / max(self.nnz, 1)

    @property
    def members(self) -> list[Store]:
        """Stores on disk that contain the rows."""
        return [self]

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.n_rows:
            raise IndexError(f"rows {start}:{stop} of {self.n_rows}")
