"""AnnData that streamsvm did not write, as a store: CSR `X`, labels in `obs` or `obsm`, weights in `obs`."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm import format
from streamsvm.data.csr_checks import Violation, first_labels, row_norms
from streamsvm.data.feature_names import feature_names, sort_rows
from streamsvm.errors import Option, Remedy, StoreError
from streamsvm.store import layout
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.indicator import Indicator, open_indicator
from streamsvm.store.reader import Progress, Store
from streamsvm.store.row_names import RowNames

PIECE = 2**18  # elements of a per-row array processed at a time


def open_anndata(
    container: Container, label: str | None, labelled: bool, sample_weight: str | None = None
) -> AnnDataStore:
    """Open AnnData as a store, whose metadata is checked; parameters and errors as in `open_store`."""
    path = container.path
    shape = _csr_shape(container)
    arrays = {name: container.array(name) for name in (layout.DATA, layout.INDICES, layout.INDPTR)}
    nnz = arrays[layout.DATA].length
    lengths = {layout.INDICES: nnz, layout.INDPTR: shape[0] + 1}
    classes: list[str] = []
    indicator = None
    if labelled:
        codes, indicator, classes = _labels(container, label, shape[0])
        if codes is not None:
            arrays[layout.CODES] = codes
            lengths[layout.CODES] = shape[0]
    for name, length in lengths.items():
        dtype = arrays[name].dtype
        if dtype is None or dtype.kind not in "iu":
            raise StoreError(f"{path}: array {arrays[name].name} does not hold integers")
        if arrays[name].length != length:
            raise StoreError(
                f"{path}: array {arrays[name].name} has {arrays[name].length} elements, expected {length}"
            )
    if sample_weight is not None:
        arrays[layout.WEIGHT] = _weights(container, sample_weight, shape[0])
    for array in arrays.values():
        array.check_claimed_size()
    store = AnnDataStore(
        container,
        arrays,
        n_rows=shape[0],
        n_features=shape[1],
        nnz=nnz,
        classes=classes,
        dtype=_value_dtype(arrays[layout.DATA]),
        meta={},
        indicator=indicator,
    )
    store.check_row_pointer_ends()
    return store


def _labels(
    container: Container, label: str | None, n_rows: int
) -> tuple[StoredArray | None, Indicator | None, list[str]]:
    """Return the codes of the label column, or the indicator of several labels; and the classes."""
    path, columns = container.path, _columns(container)
    if label is None:
        raise StoreError(
            f"{path}: AnnData that streamsvm did not write, with the obs columns {_listed(columns)}",
            remedy=Remedy("name its label column with {}", Option("label")),
        )
    if label in columns:
        return _categorical(container, label)
    if (indicator := open_indicator(container, label, n_rows)) is not None:
        return None, indicator, indicator.classes
    raise StoreError(
        f"{path}: obs has no column {label!r}; it has {_listed(columns)}. Nor has obsm such a matrix"
    )


def _weights(container: Container, column: str, n_rows: int) -> StoredArray:
    """Return the array of a numeric column of `obs`."""
    path, columns = container.path, _columns(container)
    if column not in columns:
        raise StoreError(f"{path}: obs has no column {column!r} of weights; it has {_listed(columns)}")
    node = f"obs/{column}"
    array = container.array(node) if container.node(node) == "array" else None
    if array is None or array.dtype is None or array.dtype.kind not in "iufb":
        raise StoreError(
            f"{path}: obs column {column!r} does not hold numbers; in Python: "
            f"adata.obs[{column!r}] = adata.obs[{column!r}].astype(float), and write it again"
        )
    if array.length != n_rows:
        raise StoreError(f"{path}: array {node} has {array.length} elements, expected {n_rows}")
    return array


def _columns(container: Container) -> list[str]:
    return [str(column) for column in _table(container, "obs")["column-order"]]


class AnnDataStore(Store):
    """AnnData that streamsvm did not write: it has no checksums, norms are computed, rows are sorted.

    Values are float32 or float64 as stored; other numbers become float32, which is exact for integers of
    up to 16 bits. Wider integers are checked, and refused if float32 would change them (the first is
    2**24 + 1) or they reach 2**31. The first use of `fingerprint` or `class_counts` reads all row pointers
    and labels once.
    """

    native = False

    def __init__(self, *args: Any, indicator: Indicator | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._indicator = indicator
        if indicator is not None:
            self.multilabel = True
            self.n_labels = indicator.most_labels

    @property
    def fingerprint(self) -> str:
        """Hash of shape, dtypes, names, classes, row pointers, labels, weights, first and last chunk of X.

        It does not notice a change in the middle of `data` or `indices` alone: hashing all of X would cost
        a pass over the disk before training.
        """
        return self._fingerprint_and_counts[0]

    @property
    def class_counts(self) -> np.ndarray:
        return self._fingerprint_and_counts[1].copy()

    @functools.cached_property
    def _fingerprint_and_counts(self) -> tuple[str, np.ndarray]:
        sha = hashlib.sha256()
        header = [self.n_rows, self.n_features, self.nnz, str(self.arrays[layout.DATA].dtype)]
        texts = {"classes": list(self.classes), "features": self.feature_names()}
        sha.update(format.json_digest({"header": header, **texts}).encode())
        counts = np.zeros(self.n_classes, np.int64)
        for start in range(0, self.n_rows, PIECE):
            stop = min(start + PIECE, self.n_rows)
            sha.update(self.indptr(start, stop).astype("<i8").tobytes())
            if self.multilabel:
                codes, starts = self.label_sets(start, stop)
                sha.update(starts.astype("<i8").tobytes())
            else:
                codes = self.labels(start, stop)
            counts += np.bincount(codes[codes >= 0], minlength=self.n_classes)
            sha.update(codes.astype("<i4").tobytes())
            if self.weighted:
                sha.update(self.weights(start, stop).astype("<f8").tobytes())
        for name in (layout.DATA, layout.INDICES):
            array = self.arrays[name]
            size = min(array.chunk, PIECE)
            for start in sorted({0, max(0, array.length - size)}):
                sha.update(self._read(name, start, min(start + size, array.length)).tobytes())
        return sha.hexdigest(), counts

    def labels(self, start: int, stop: int) -> np.ndarray:
        if self.multilabel:
            return first_labels(*self.label_sets(start, stop))
        if layout.CODES not in self.arrays:
            self._check_range(start, stop)
            return np.full(stop - start, format.UNSEEN_LABEL, format.LABEL_DTYPE)
        codes = super().labels(start, stop)
        if len(codes) and int(codes.min()) < 0:
            row = start + int(np.argmin(codes))
            column = self.arrays[layout.CODES].name.split("/")[1]
            raise StoreError(
                f"{self.path}: row {row} has no label in obs column {column!r}; drop such rows first, "
                f"in Python: adata[adata.obs[{column!r}].notna()].copy()"
            )
        return codes

    def label_indptr(self, start: int, stop: int) -> np.ndarray:
        self._check_range(start, stop)
        assert self._indicator is not None
        return self._indicator.indptr(start, stop)

    def label_sets(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        self._check_range(start, stop)
        assert self._indicator is not None
        return self._indicator.read(start, stop)

    def _first_labels(self, start: int, stop: int, first: np.ndarray) -> np.ndarray:
        return first

    def weights(self, start: int, stop: int) -> np.ndarray:
        self._check_range(start, stop)
        weights = self._read(layout.WEIGHT, start, stop).astype(np.float64)
        good = np.isfinite(weights) & (weights >= 0)
        if not good.all():
            at = int(np.argmin(good))
            column = self.arrays[layout.WEIGHT].name.split("/", 1)[1]
            raise StoreError(
                f"{self.path}: row {start + at} has the weight {weights[at]} in obs column {column!r}; "
                "weights are numbers from 0 on"
            )
        return weights

    def norms(self, start: int, stop: int) -> np.ndarray:
        return self.rows(start, stop).norm2

    def names(self, start: int, stop: int) -> np.ndarray:
        self._check_range(start, stop)
        return self._names.read(start, stop)

    def feature_names(self) -> list[str] | None:
        """Read the names of the features: the index of ``var``.

        Returns
        -------
        list of str or None
            None if the names are the numbers from 0, which anndata gives to features without names.

        Raises
        ------
        FeatureError
            If a name occurs twice.
        StoreError
            If the index cannot be read.
        """
        array = _text_array(self._container, f"var/{_table(self._container, 'var').get('_index')}")
        if array.length != self.n_features:
            raise StoreError(
                f"{self.path}: array {array.name} has {array.length} names for {self.n_features} features"
            )
        array.check_claimed_size()
        return feature_names(array.read(0, array.length).tolist(), str(self.path))

    def verify(self, progress: Progress | None = None) -> None:
        """Read and check all rows; without checksums, a wrong value that is plausible is not noticed."""
        start, done = 0, 0
        while start < self.n_rows:
            offsets = self.indptr(start, min(start + PIECE, self.n_rows))
            stop = start + max(1, int(np.searchsorted(offsets, offsets[0] + 2**22, "right")) - 1)
            self.rows(start, stop)
            done = int(offsets[stop - start])
            start = stop
            if progress is not None:
                progress(done, self.nnz)

    @functools.cached_property
    def _names(self) -> RowNames:
        return RowNames(self._container, self.n_rows)

    def _values(self, lo: int, hi: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        data = self._convert(self._read(layout.DATA, lo, hi), lo)
        raw = self._read(layout.INDICES, lo, hi)
        if len(raw) and not 0 <= int(raw.min()) <= int(raw.max()) < self.n_features:
            at = int(np.argmax((raw < 0) | (raw >= self.n_features)))
            raise self.arrays[layout.INDICES].damage(lo + at, f"index {raw[at]} is out of range")
        indices = raw.astype(self.index_dtype, copy=False)
        unsorted = indices[1:] < indices[:-1]
        starts = offsets[1:-1]
        unsorted[starts[(starts > 0) & (starts < hi - lo)] - 1] = False
        if unsorted.any():
            return sort_rows(data, indices, offsets, self.n_features)
        return data, indices

    def _convert(self, values: np.ndarray, lo: int) -> np.ndarray:
        """Convert `values` to the store's dtype; raise StoreError if that changes a wide integer."""
        result = values.astype(self.dtype, copy=False)
        if values.dtype.kind in "iu" and values.dtype.itemsize > 2:
            # Compare as integers, since 2**24 + 1 equals its float32 as float32. Below the bound, the
            # conversion back does not overflow.
            with np.errstate(invalid="ignore"):
                back = result.astype(values.dtype)
            lost = (np.abs(result) >= 2.0**31) | (back != values)
            if lost.any():
                at = int(np.argmax(lost))
                raise StoreError(
                    f"{self.path}: array {self.arrays[layout.DATA].name}, element {lo + at}: "
                    f"{values[at]} cannot be represented as float32; store X as float64: "
                    "adata.X = adata.X.astype('float64')"
                )
        return result

    def _violation_error(self, start: int, lo: int, offsets: np.ndarray, violation: Violation) -> StoreError:
        row = start + int(np.searchsorted(offsets, violation.element, "right")) - 1
        duplicate = violation.array == "indices"  # the only kind left in rows that were sorted
        remedy = "in Python: adata.X.sum_duplicates()" if duplicate else "drop or replace such values"
        return StoreError(f"{self.path}: X/{violation.array}, row {row}: {violation.reason}; {remedy}")

    def _norms(self, start: int, stop: int, data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        norms = row_norms(data, offsets)
        if not np.isfinite(norms).all():
            row = start + int(np.argmin(np.isfinite(norms)))
            raise StoreError(f"{self.path}: row {row}: the squared norm overflows; scale the values down")
        return norms


def _csr_shape(container: Container) -> tuple[int, int]:
    path = container.path
    kind = container.node("X")
    if kind is None:
        raise StoreError(f"{path}: AnnData without X; there is nothing to train on")
    if kind == "array":
        raise StoreError(
            f"{path}: X is dense; in Python: adata.X = scipy.sparse.csr_matrix(adata.X), and write it again"
        )
    attrs = container.attrs("X")
    encoding = attrs.get("encoding-type")
    if encoding == "csc_matrix":
        raise StoreError(f"{path}: X is CSC; in Python: adata.X = adata.X.tocsr(), and write it again")
    if encoding != "csr_matrix":
        raise StoreError(f"{path}: X is {encoding!r}, not a CSR matrix")
    shape = attrs.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(type(size) is int and 0 <= size < 2**62 for size in shape)
    ):
        raise StoreError(f"{path}: X has no valid shape: {shape}")
    return shape[0], shape[1]


def _table(container: Container, name: str) -> dict[str, Any]:
    """Return the attributes of ``obs`` or ``var``."""
    attrs = container.attrs(name) if container.node(name) == "group" else {}
    if attrs.get("encoding-type") != "dataframe" or not isinstance(attrs.get("column-order"), list):
        raise StoreError(
            f"{container.path}: {name} is not a dataframe of a known format; read and write it "
            "with anndata >= 0.8"
        )
    return attrs


def _categorical(container: Container, label: str) -> tuple[StoredArray, None, list[str]]:
    """Return the codes array and the class names of a categorical column."""
    path, node = container.path, f"obs/{label}"
    if (
        container.node(node) != "group"
        or container.attrs(node).get("encoding-type") != "categorical"
        or container.attrs(node).get("encoding-version") != "0.2.0"
    ):
        raise StoreError(
            f"{path}: obs column {label!r} is not categorical; in Python: "
            f"adata.obs[{label!r}] = adata.obs[{label!r}].astype('category'), and write it again"
        )
    array = _text_array(container, f"{node}/categories")
    array.check_claimed_size()
    classes = [_text(value) for value in array.read(0, array.length).tolist()]
    if len(set(classes)) != len(classes):
        raise StoreError(f"{path}: obs column {label!r} has two categories with the same text")
    return container.array(f"{node}/codes"), None, classes


def _text_array(container: Container, node: str) -> StoredArray:
    """Return an array of text; newer pandas text is a group of values and a mask, which names do not use."""
    return container.array(f"{node}/values" if container.node(node) == "group" else node)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _value_dtype(data: StoredArray) -> np.dtype:
    if data.dtype is None or data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
        raise StoreError(
            f"{data.container.path}: array {data.name} does not hold numbers of a supported type"
        )
    double = data.dtype.kind == "f" and data.dtype.itemsize == 8
    return np.dtype(np.float64 if double else np.float32)


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) if columns else "none"
