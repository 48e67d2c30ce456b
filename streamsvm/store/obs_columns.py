"""Read columns of ``obs`` and ``var`` in AnnData from other programs: labels, weights and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.base import format
from streamsvm.base.label_values import TEXT, dtype_of_names
from streamsvm.data.checks import first_outside
from streamsvm.data.rows import PIECE_ROWS
from streamsvm.errors import StoreError
from streamsvm.store.container import Container, StoredArray
from streamsvm.store.ranges import Ranges, number_at, spans
from streamsvm.store.store import Columns

_NULLABLE = ("nullable-integer", "nullable-boolean", "nullable-string-array")
# Path of a column's values within its node, by encoding.
_VALUES = {"array": "", "categorical": "/codes", **dict.fromkeys(_NULLABLE, "/values")}


class DataFrameColumn:
    """Column or index of a dataframe on disk; `categories` is None unless the column is categorical.

    Categories, strings, booleans and numbers are supported, including anndata's nullable arrays. Raises
    StoreError if the column is damaged or unsupported, or if it does not have `n_rows` rows.
    """

    def __init__(self, container: Container, table: str, name: str, n_rows: int) -> None:
        self.path = container.path
        self.name = name
        self._where = f"{table} column {name!r}"
        node = f"{table}/{name}"
        kind = container.node(node)
        encoding = str(container.attr(node, "encoding-type") if kind == "group" else kind)
        if encoding not in _VALUES:
            raise self.error(f" has the encoding {encoding!r}; read and write it with anndata >= 0.8")
        self.values = container.array(node + _VALUES[encoding])
        self._mask: StoredArray | None = None
        if encoding in _NULLABLE:
            self._mask = container.array(f"{node}/mask")
            self._mask.absent_chunks = "allow"  # chunks may be absent where no values are missing
        for array in filter(None, (self.values, self._mask)):
            array.check_length(n_rows)
        self.categories: list[str] | None = None
        labels = self.values
        if encoding == "categorical":
            self.values.check_integers()
            names = f"{node}/categories"  # newer pandas strings are a group of values and a mask
            labels = container.array(f"{names}/values" if container.node(names) == "group" else names)
            self.categories = [_text(value) for value in labels.read(0, labels.length).tolist()]
        self.kind = "text" if labels.dtype is None else labels.dtype.kind  # kind of the values or categories
        if self.kind not in ("text", *"iubf"):
            raise self.error(f" has the unsupported dtype {labels.dtype}; convert it to text or numbers")

    def error(self, what: str) -> StoreError:
        """Return an error that begins with the path and the column's name."""
        return StoreError(f"{self.path}: {self._where}{what}")

    def read(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Return the values (codes if categorical) in ranges of rows, and the mask of missing values."""
        values = self.values.read_ranges(ranges)
        if self._mask is not None:
            return values, self._mask.read_ranges(ranges).astype(bool)
        if self.categories is not None:
            if (at := first_outside(values, len(self.categories), -1)) is not None:
                raise self.values.damage(number_at(ranges, at), f"code {values[at]} is out of range")
            return values, values < 0
        if self.kind == "f":
            return values, np.isnan(values)
        return values, np.zeros(len(values), bool)

    def texts(self, ranges: Ranges) -> np.ndarray:
        """Return the values in ranges of rows as str objects; a missing value is an empty string."""
        values, missing = self.read(ranges)
        if self.categories is not None:
            texts = np.array([*self.categories, ""], object)[values]
        else:
            texts = np.array([_text(value) for value in values.tolist()], object)
        texts[missing] = ""
        return texts


class LabelColumn:
    """Label column. The classes are its categories or, if it has none, its sorted distinct values."""

    def __init__(self, column: DataFrameColumn, n_rows: int) -> None:
        self.column = column
        self._values: np.ndarray | None = None
        if column.kind == "f" and column.categories is None:
            values = f"adata.obs[{column.name!r}]"
            raise column.error(
                " contains floating-point numbers, but labels must be categories, text, integers or "
                f"booleans; convert it in Python: {values} = {values}.astype('Int64'), or .astype(str)"
            )
        if column.categories is not None:
            self.classes = column.categories
        else:
            self._values = self._distinct(n_rows)
            self.classes = [_text(value) for value in self._values.tolist()]
        self.label_dtype = dtype_of_names(self.classes) if column.kind in "iu" else TEXT
        if len(set(self.classes)) != len(self.classes):
            raise column.error(" has two categories with the same text; rename one of them")

    def _distinct(self, n_rows: int) -> np.ndarray:
        distinct: np.ndarray | None = None
        for ranges in spans(n_rows, PIECE_ROWS):
            values, missing = self.column.read(ranges)
            new = np.unique(values[~missing])
            distinct = new if distinct is None else np.union1d(distinct, new)
        return np.zeros(0) if distinct is None else distinct

    def columns(self, ranges: Ranges) -> Columns:
        """Return `labels`, the class codes in ranges of rows; a missing label has code -1."""
        codes, missing = self.column.read(ranges)
        if self._values is not None:
            codes = np.where(missing, format.UNSEEN_LABEL, np.searchsorted(self._values, codes))
        return {"labels": codes.astype(format.LABEL_DTYPE, copy=False)}


def table_attrs(container: Container, table: str) -> dict[str, Any]:
    """Return the attributes of a dataframe, such as ``obs``; raise StoreError if it is not a dataframe."""
    attrs = container.attrs(table) if container.node(table) == "group" else {}
    has_columns = isinstance(attrs.get("column-order"), list | tuple)
    if attrs.get("encoding-type") != "dataframe" or not has_columns:
        raise StoreError(
            f"{container.path}: {table} is not a dataframe of a known format; read and write it "
            "with anndata >= 0.8"
        )
    return attrs


def column_names(container: Container, table: str) -> list[str]:
    """Return the names of a dataframe's columns, without the index."""
    return [str(column) for column in table_attrs(container, table)["column-order"]]


def index_column(container: Container, table: str, n_rows: int) -> DataFrameColumn:
    return DataFrameColumn(container, table, str(table_attrs(container, table).get("_index")), n_rows)


def listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) if columns else "none"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
