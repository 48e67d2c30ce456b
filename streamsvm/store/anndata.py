"""Read AnnData from other programs as stores: a matrix, labels from `obs` or `obsm`, weights from `obs`."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT
from streamsvm.base.text import absolute
from streamsvm.data import checks
from streamsvm.data.arrays import one_matrix
from streamsvm.data.groups import check_hashes, group_hashes
from streamsvm.data.names import feature_names, sort_rows
from streamsvm.data.rows import PIECE_ROWS, Rows
from streamsvm.data.statistics import is_mostly_filled
from streamsvm.errors import Call, Option, Remedy, StoreError
from streamsvm.store import layout
from streamsvm.store.array_file import LoadedArray
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.indicator import Indicator, open_indicator
from streamsvm.store.label_file import FileLabels, open_labels, read_weights
from streamsvm.store.matrices import DenseMatrix, StoredMatrix, open_matrix
from streamsvm.store.obs_columns import DataFrameColumn, LabelColumn, column_names, index_column, listed
from streamsvm.store.ranges import Ranges, lengths, number_at, numbers_in, span, spans
from streamsvm.store.reader import ContainerStore
from streamsvm.store.store import Columns, Facts, Progress, RowSizes, Whole

# Columns that are hashed for the fingerprint, in this order.
_HASHED = {"label_indptr": "<i8", "label_codes": "<i4", "labels": "<i4", "cost": "<f8", "hold_out_by": "<i8"}


def open_anndata(
    container: Container,
    label: str | None,
    labelled: bool,
    sample_weight: str | None = None,
    layer: str | None = None,
    raw: bool = False,
    obsm: str | None = None,
    memory: int | None = None,
    hold_out_by: str | None = None,
) -> AnnDataStore:
    """Open AnnData as a store and check its metadata; parameters and errors are as for `open_store`."""
    one_matrix(layer, raw, obsm)
    name = _matrix_name(container, layer, raw, obsm)
    if labelled and label is None:
        _labels(container, label, 0)  # raises
    encoding = container.attrs(name).get("encoding-type") if container.node(name) == "group" else None
    if labelled and memory is None and encoding == "csc_matrix":
        out = f"{container.path.stem}-rows.zarr"
        options = {"label": label, "layer": layer, "raw": raw, "obsm": obsm, "out": out}.items()
        convert = Call("convert", container.path, tuple(Option(*each) for each in options if each[1]))
        problem = f"{container.path}: {name} is CSC, which stores columns, not rows"
        raise StoreError(problem, remedy=Remedy("convert the matrix with {}, and use the new store", convert))
    matrix = open_matrix(container, name, memory)
    n_rows = matrix.shape[0]
    labels = _labels(container, label, n_rows) if labelled else None
    weights = None if sample_weight is None else _weights(container, sample_weight, n_rows)
    var = None if obsm is not None else "raw/var" if raw else "var"
    by = None
    if hold_out_by is not None:
        by = LabelColumn(_obs_column(container, hold_out_by, "hold-out", n_rows), n_rows)
    return AnnDataStore(container, matrix, var, labels, weights, label, by, hold_out_by)


def open_array(
    container: Container,
    label: str | None,
    labels: str | os.PathLike[str] | None,
    weights: str | os.PathLike[str] | None,
    like: Mapping[str, Any],
    labelled: bool,
    hold_out_by: str | None = None,
) -> AnnDataStore:
    """Open a single matrix as a store; parameters and errors are as for `open_store`."""
    matrix = open_matrix(container, "X")
    opened_labels = open_labels(container, matrix.shape[0], label, labels, like) if labelled else None
    cost = None
    if weights is not None:
        values = read_weights(Path(weights), matrix.shape[0])
        cost = LoadedArray(container, str(weights), values)
    by, (column, file) = None, (hold_out_by, None)
    if hold_out_by is not None:
        if os.path.isfile(hold_out_by):
            column, file = None, absolute(hold_out_by)  # a run may be resumed from any folder
        by = open_labels(container, matrix.shape[0], column, file, {"labels_as": "text"})
    return AnnDataStore(container, matrix, None, opened_labels, cost, label, by, file or column)


def _matrix_name(container: Container, layer: str | None, raw: bool, obsm: str | None) -> str:
    if raw:
        return "raw/X"
    group, what, name = ("layers", "layer", layer) if obsm is None else ("obsm", "obsm", obsm)
    if name is None:
        return "X"
    if "/" in name or name in ("", ".", "..") or container.node(f"{group}/{name}") is None:
        available = listed(container.children(group))
        raise StoreError(f"{container.path} has no {what} {name!r}; available: {available}")
    return f"{group}/{name}"


def _labels(container: Container, label: str | None, n_rows: int) -> LabelColumn | Indicator:
    path, columns = container.path, column_names(container, "obs")
    if label in columns:
        return LabelColumn(DataFrameColumn(container, "obs", label, n_rows), n_rows)
    what = f"no label column is specified; the columns of obs are {listed(columns)}"
    if label is not None:
        if (indicator := open_indicator(container, label, n_rows)) is not None:
            return indicator
        what = f"neither obs nor obsm has an entry {label!r}; the columns of obs are {listed(columns)}"
    raise StoreError(f"{path}: {what}", remedy=Remedy("name the label column with {}", Option("label")))


def _obs_column(container: Container, column: str, what: str, n_rows: int) -> DataFrameColumn:
    columns = column_names(container, "obs")
    if column not in columns:
        what = f"obs has no {what} column {column!r}; its columns are {listed(columns)}"
        raise StoreError(f"{container.path}: {what}")
    return DataFrameColumn(container, "obs", column, n_rows)


def _weights(container: Container, column: str, n_rows: int) -> StoredArray:
    found = _obs_column(container, column, "weight", n_rows)
    if found.kind == "text" or container.node(f"obs/{column}") != "array":
        values = f"adata.obs[{column!r}]"
        raise found.error(f" does not hold numbers; convert it in Python: {values} = {values}.astype(float)")
    return found.values


class AnnDataStore(ContainerStore):
    """Store for AnnData from other programs or for a matrix file, neither of which has a store record.

    Rows without a label have code -1. Reading sorts the values of each row and computes its norm; see
    `StoredMatrix` for the conversion of values. The first use of `fingerprint` or `class_counts` reads all
    row pointers and columns.
    """

    def __init__(
        self,
        container: Container,
        matrix: StoredMatrix,
        var: str | None,
        labels: LabelColumn | FileLabels | Indicator | None,
        weights: StoredArray | None,
        label: str | None,
        by: LabelColumn | FileLabels | None,
        hold_out_by: str | None,
    ) -> None:
        if isinstance(matrix, DenseMatrix):
            matrix.dense_rows = is_mostly_filled(matrix.shape, matrix.parts)
        self.matrix = matrix
        self._var = var
        self._labels = labels
        self._by = by
        self._hashes = np.array([]) if by is None else np.append(group_hashes(by.classes), -1)
        arrays = {f"X/{name}": array for name, array in matrix.arrays.items()}
        if isinstance(labels, LabelColumn):
            arrays[layout.CODES] = labels.column.values
        if weights is not None:
            arrays[layout.WEIGHT] = weights
        self._has_obs = container.node("obs") is not None
        optional = {"cost": weights is not None, "hold_out_by": by is not None}
        optional["label_codes"] = isinstance(labels, Indicator)
        n_rows, n_features = matrix.shape
        dense = matrix.encoding == "dense"
        facts = Facts(
            path=container.path,
            kind=container.kind,
            n_rows=n_rows,
            n_features=n_features,
            nnz=matrix.nnz,
            n_labels=labels.max_labels if isinstance(labels, Indicator) else 0,
            classes=() if labels is None else tuple(labels.classes),
            label_dtype=TEXT if labels is None else labels.label_dtype,
            dtype=matrix.dtype,
            chunk_nnz=matrix.chunk_nnz,
            chunk_rows=matrix.values.chunk if dense else matrix.chunk_nnz * n_rows / max(matrix.nnz, 1),
            stored=frozenset(["labels", "numbers", "names", *filter(optional.get, optional)]),
            dense=dense,
            dense_rows=matrix.dense_rows,
            held_bytes=sum(
                each.nbytes for each in (labels, weights, by) if isinstance(each, FileLabels | LoadedArray)
            ),
            meta={"label": label, "hold_out_by": hold_out_by, format.ANNDATA: var is not None},
        )
        super().__init__(container, arrays, facts)

    def whole(self, what: Whole) -> Any:
        if what == "fingerprint":
            return self._fingerprint_and_counts[0]
        if what == "class_counts":
            return self._fingerprint_and_counts[1].copy()
        return self._feature_names() if what == "feature_names" else None

    @functools.cached_property
    def _fingerprint_and_counts(self) -> tuple[str, np.ndarray]:
        """Return a hash of the content and the number of rows in each class, from one pass over the labels.

        The hash covers the shape, dtype, feature names, classes, row pointers and columns, and the first and
        last elements of the matrix arrays. A change only in the middle of `data` or `indices` is not
        detected, because hashing all of X would read the whole file.
        """
        sha = hashlib.sha256()
        header = [self.n_rows, self.n_features, self.nnz, str(self.matrix.values.dtype)]
        texts = {"classes": list(self.classes), "features": self._feature_names()}
        texts |= {} if self.label_dtype == TEXT else {"label_dtype": [self.label_dtype]}
        sha.update(format.json_digest({"header": header, **texts}).encode())
        counts = np.zeros(self.n_classes, np.int64)
        for ranges in spans(self.n_rows, PIECE_ROWS):
            where, indptr = self.matrix.pointers(ranges)
            sha.update((where[0, 0] + indptr).astype("<i8").tobytes())
            kind = "label_codes" if self.multilabel else "labels"
            columns = self.columns(ranges, {kind, "cost", "hold_out_by"})
            codes = columns[kind]
            counts += np.bincount(codes[codes >= 0], minlength=self.n_classes)
            for name, dtype in _HASHED.items():
                if name in columns:
                    sha.update(columns[name].astype(dtype).tobytes())
        for sample in self.matrix.samples():
            sha.update(sample)
        return sha.hexdigest(), counts

    def _read_column(self, name: str, ranges: Ranges) -> Columns:
        if name == "names":
            return {name: self._names.texts(ranges) if self._has_obs else numbers_in(ranges)}
        if name in ("labels", "label_codes"):
            if self._labels is not None:
                return self._labels.columns(ranges)
            return {name: np.full(int(lengths(ranges).sum()), format.UNSEEN_LABEL, format.LABEL_DTYPE)}
        if name == "hold_out_by" and self._by is not None:
            hashes = self._hashes[self._by.columns(ranges)["labels"]]  # the last hash is for code -1
            where = f"{self.path}, {self.meta[name]!r}: row"
            return {name: check_hashes(hashes, lambda row: f"{where} {number_at(ranges, row) + 1}")}
        if name != "cost":
            return super()._read_column(name, ranges)
        weights = self._read(layout.WEIGHT, ranges).astype(np.float64)
        if (at := checks.first_no_amount(weights)) is not None:
            column = self.arrays[layout.WEIGHT].name.split("/", 1)[1]
            raise StoreError(
                f"{self.path}: row {number_at(ranges, at) + 1} has the weight {weights[at]} in obs column "
                f"{column!r}; weights must be numbers >= 0"
            )
        return {name: weights}

    def _feature_names(self) -> list[str] | None:
        """Return the index of ``var``, or None if it is anndata's default, the numbers from 0.

        An entry of ``obsm`` has names only if it is a dataframe. Repeated names are numbered, with a warning.
        """
        if self._var is None:
            columns = self.matrix.columns
            return None if columns is None else feature_names(columns, str(self.path))
        index = index_column(self._container, self._var, self.n_features)
        return feature_names(index.texts(span(0, self.n_features)).tolist(), str(self.path))

    def verify(self, progress: Progress | None = None) -> None:
        """Read and check all rows. There are no checksums to detect wrong but plausible values."""
        for start, rows in self.pieces(2**22, 0, self.n_rows):
            if progress is not None:
                progress(start + rows.n_rows, self.n_rows)
        for column in column_names(self._container, "obs") if self._has_obs else ():
            if self._container.attr(f"obs/{column}", "encoding-type") == "categorical":
                found = DataFrameColumn(self._container, "obs", column, self.n_rows)
                for ranges in spans(self.n_rows, PIECE_ROWS):
                    found.read(ranges)

    @functools.cached_property
    def _names(self) -> DataFrameColumn:
        return index_column(self._container, "obs", self.n_rows)

    def sizes(self, ranges: Ranges) -> RowSizes:
        _, indptr = self.matrix.pointers(ranges)
        labels = self._labels.pointers(ranges)[1] if isinstance(self._labels, Indicator) else [0]
        return RowSizes(np.diff(indptr), np.diff(labels))

    def read(self, ranges: Ranges) -> Rows:
        return Rows(**self._read_matrix(ranges), **self.columns(ranges, self.facts.stored - {"names"}))

    def _read_matrix(self, ranges: Ranges) -> dict[str, Any]:
        from streamsvm.kernels.csr import check_rows  # imports compiled code

        data, indices, indptr = self.matrix.read(ranges)
        self._bytes_read += data.nbytes + indptr.nbytes
        if indices is None:
            norm2 = checks.row_norms(data, indptr)
            if (at := checks.first_false(np.isfinite(norm2))) is not None:
                row = number_at(ranges, at)
                if np.isfinite(data[indptr[at] : indptr[at + 1]]).all():
                    raise self._overflow(row)
                what = "a value is not finite; drop or replace such values"
                raise StoreError(f"{self.path}: {self.matrix.name}, row {row + 1}: {what}")
            return {"data": data, "indices": None, "indptr": indptr, "norm2": norm2}
        self._bytes_read += indices.nbytes
        norm2 = np.empty(len(indptr) - 1)
        if check_rows(data, indices, indptr, self.n_features, norm2) >= 0:
            data, indices = self._sorted(ranges, data, indices, indptr)
            if (row := check_rows(data, indices, indptr, self.n_features, norm2)) >= 0:
                raise self._overflow(number_at(ranges, row))
        indices = indices.astype(self.index_dtype, copy=False)
        return {"data": data, "indices": indices, "indptr": indptr, "norm2": norm2}

    def _overflow(self, row: int) -> StoreError:
        return StoreError(f"{self.path}: row {row + 1}: the squared norm overflows; scale the values down")

    def _sorted(
        self, ranges: Ranges, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Sort the values of each row by feature; raise StoreError if the rows are still invalid."""
        name = self.matrix.name
        if (at := checks.first_outside(indices, self.n_features)) is not None:
            reason = f"index {indices[at]} is out of range; write the matrix again"
            raise StoreError(
                f"{self.path}: array {name}/indices, row {self._row(ranges, indptr, at)}: {reason}"
            )
        data, indices = sort_rows(data, indices, indptr, self.n_features)
        violation = checks.find_violation(data, indices, indptr, self.n_features)
        if violation is not None:
            duplicate = violation.array == "indices"  # the only possible index error in sorted rows
            remedy = "run adata.X.sum_duplicates() in Python" if duplicate else "drop or replace such values"
            where = name if self.matrix.encoding == "dense" else f"{name}/{violation.array}"
            row = self._row(ranges, indptr, violation.element)
            raise StoreError(f"{self.path}: {where}, row {row}: {violation.reason}; {remedy}")
        return data, indices

    @staticmethod
    def _row(ranges: Ranges, indptr: np.ndarray, element: int) -> int:
        return number_at(ranges, checks.row_of(indptr, element)) + 1
