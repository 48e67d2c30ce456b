"""Encoding of columns of tables as sparse rows: numbers as they are, categories one-hot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from streamsvm_converters.tables.batches import TableFile, listed, load_pyarrow
from streamsvm_converters.tables.encoding import ColumnsEncoding, EncodedColumn

from streamsvm.base.format import index_dtype
from streamsvm.base.label_texts import MISSING_TEXTS, label_text
from streamsvm.base.text import printable
from streamsvm.errors import InputError, Option, Remedy

_NO_CATEGORY = -2  # the code of a missing value

# Distinct values of all categories together: they are in memory, and in the records of stores and models.
MAX_CATEGORY_VALUES = 2**20
_MANY_CATEGORIES = 100  # of a column that may be free text
# (table, names) -> record batches of these columns, of the rows that have a label.
Read = Callable[[TableFile, Sequence[str]], Iterable[Any]]


def choose_columns(
    tables: Sequence[TableFile],
    names: Sequence[str],
    categorical: Sequence[str],
    missing: str,
    dtype: str,
    read: Read,
) -> ColumnsEncoding:  # fmt: skip
    """Choose the encoding of columns, and collect the values of categories and the means of numbers.

    Columns of text hold numbers if most values of their first batch in the first table are numbers.

    Parameters
    ----------
    tables : sequence of TableFile
        With the same columns; read once, if there are categories or text, or means are needed.
    names : sequence of str
    categorical : sequence of str
        Columns of numbers that are categories.
    missing : {"error", "0", "mean", "indicator"}
        What missing numbers become. The last one is 0, and a feature of each column that has missing values,
        categories included, as `sklearn.impute.MissingIndicator` chooses them.
    dtype : str
        In which numbers must be finite: rows with others do not count.
    read : callable
        Reads columns of the rows to learn from.

    Raises
    ------
    InputError
        If a column holds neither numbers nor text, or has no value, a category has as many values as rows, or
        there are too many values.
    """
    pa = load_pyarrow()
    kinds = {}
    for name in names:
        kind = tables[0].columns[name]
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if _is_text(pa, kind) or pa.types.is_null(kind):
            kinds[name] = "text"
        elif _is_numeric(pa, kind):
            kinds[name] = "category" if name in categorical else "number"
        else:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' holds {kind}, and neither numbers nor text",
                remedy=Remedy("leave it out with {}", Option("drop", name)),
            )
    texts = [name for name, kind in kinds.items() if kind == "text"]
    if texts and not tables[0].has_types:
        first = next(tables[0].batches(texts), None)
        for name in texts:
            if first is not None and name not in categorical and holds_numbers(first.column(name)):
                kinds[name] = "number"
    wanted = [name for name, kind in kinds.items() if kind != "number"]
    is_measured = missing in ("mean", "indicator")
    numbers = _Numbers([name for name in names if is_measured and kinds[name] == "number"], dtype)
    values = _collect(tables, wanted, numbers, read)
    fills = numbers.means(str(tables[0].path)) if missing == "mean" and numbers.n_rows else {}
    fill = None if missing == "error" else 0.0
    marked = numbers.gaps if missing == "indicator" else set()
    columns = [
        EncodedColumn(name, "category", sorted(values[name]), None, name in marked)
        if name in values
        else EncodedColumn(name, "number", None, fills.get(name, fill), name in marked)
        for name in names
    ]
    encoding = ColumnsEncoding("columns", columns)
    twice = [name for name, times in Counter(encoding.feature_names).items() if times > 1]
    if twice:
        raise InputError(
            f"{tables[0].path}: two features would have the name '{printable(twice[0])}', that of a column "
            "and of a value of another; rename the column"
        )
    return encoding


def _collect(
    tables: Sequence[TableFile], names: Sequence[str], numbers: _Numbers, read: Read
) -> dict[str, set[str]]:
    """Return the distinct values of some columns in all tables; add numbers and gaps to `numbers`."""
    values: dict[str, set[str]] = {name: set() for name in names}
    rows = dict.fromkeys(names, 0)  # that have a value
    total = 0
    for table in tables if names or numbers.names else ():
        for batch in read(table, [*names, *numbers.names]):
            total += batch.num_rows
            if numbers.names:
                numbers.add(batch.select(numbers.names))
            for name in names:
                column = batch.column(name)
                rows[name] += len(column) - column.null_count
                texts = list(map(_category_text, column.unique().to_pylist()))
                numbers.gaps.update([name] * (None in texts))
                values[name].update(text for text in texts if text)
            if sum(map(len, values.values())) > MAX_CATEGORY_VALUES:
                most = max(values, key=lambda name: len(values[name]))
                raise InputError(
                    f"{table.path}: column '{printable(most)}' has more than {len(values[most]) - 1:,} "
                    "different values, too many for a category",
                    remedy=_not_a_category(most),
                )
    for name, found in values.items():
        if not found and total:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' has no value in any row",
                remedy=Remedy("leave it out with {}", Option("drop", name)),
            )
        if len(found) == rows[name] > 20:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' has another value in each of {rows[name]:,} "
                "rows: that is no category",
                remedy=_not_a_category(name),
            )
    return values


class _Numbers:
    """Sums of columns of numbers, for their means, and the `gaps`: columns of any type that lack values."""

    def __init__(self, names: list[str], dtype: str) -> None:
        self.names, self._dtype, self.n_rows = names, dtype, 0
        self.gaps: set[str] = set()
        columns = [EncodedColumn(name, "number", fill=0.0, indicator=True) for name in names]
        self._encoder = ColumnEncoder(ColumnsEncoding("columns", columns), "float64")
        self._sums, self._present = np.zeros((2, len(names)))

    def add(self, batch: Any) -> None:
        """Add the rows of a batch of these columns, but for those whose numbers are not finite."""
        values, features, _ = self._encoder.encode(batch, str)
        with np.errstate(over="ignore"):
            kept = np.isfinite(values.astype(self._dtype)).all(axis=1)
        missing = features[kept] % 2 == 1  # of the two features of a column the second
        # One after the other, so that sums do not depend on where batches end.
        values = np.vstack([self._sums, np.where(missing, 0.0, values[kept])])
        self._sums = np.add.accumulate(values, axis=0)[-1]
        self._present += (~missing).sum(axis=0)
        self.gaps.update(np.array(self.names)[missing.any(axis=0)].tolist())
        self.n_rows += len(missing)

    def means(self, where: str) -> dict[str, float]:
        """Return the mean of each column; raises `InputError`, which names the table, if one has none."""
        means = dict(zip(self.names, (self._sums / np.maximum(self._present, 1)).tolist(), strict=True))
        for (name, mean), present in zip(means.items(), self._present, strict=True):
            if not present or not np.isfinite(mean):
                what = "its numbers are missing, or too large"
                remedy = Remedy("leave it out with {}", Option("drop", name))
                raise InputError(f"{where}: column '{printable(name)}' has no mean: {what}", remedy=remedy)
        return means


def _not_a_category(name: str) -> Remedy:
    return Remedy(
        "leave it out with {}, or take its words with {}", Option("drop", name), Option("text", name)
    )


class ColumnEncoder:
    """Encoder of record batches as sparse rows.

    Parameters
    ----------
    encoding : ColumnsEncoding
    dtype : str

    Attributes
    ----------
    width : int
    unseen : int
        Values of categories so far that are not in the encoding.
    filled : int
        Missing numbers so far that were replaced.
    """

    def __init__(self, encoding: ColumnsEncoding, dtype: str) -> None:
        self._pa = load_pyarrow()
        self._encoding, self._dtype = encoding, np.dtype(dtype)
        self._starts = np.cumsum([0, *(len(column.feature_names) for column in encoding.columns)])
        self.width = int(self._starts[-1])
        self._codes = [
            None if column.values is None else {value: code for code, value in enumerate(column.values)}
            for column in encoding.columns
        ]
        self.unseen = self.filled = 0

    def encode(
        self, batch: Any, where: Callable[[int], str]
    ) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Return values and features of the rows of a batch, and the faults of some rows.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            With the columns of the encoding, in its order.
        where : callable
            Returns the name of the place of a row.

        Returns
        -------
        values : ndarray, shape (n_rows, n_columns)
        features : ndarray of int32 or int64, shape (n_rows, n_columns)
            Of each value, increasing along a row; values that are 0 are none.
        faults : dict of int to str
            By row: missing values and those that are not finite, one for each row.
        """
        shape = (batch.num_rows, len(self._encoding.columns))
        values = np.empty(shape, self._dtype)
        features = np.empty(shape, index_dtype(self.width))
        faults: dict[int, str] = {}
        for at, column in enumerate(self._encoding.columns):
            codes = self._codes[at]
            if codes is None:
                feature = np.zeros(len(values), np.int64)
                values[:, at], missing = self._numbers(batch.column(at), column, where, faults)
            else:
                found = self._categories(batch.column(at), codes)
                feature, missing = np.maximum(found, 0), found == _NO_CATEGORY
                values[:, at] = found >= 0
            if column.indicator:
                feature[missing] = len(column.feature_names) - 1
                values[missing, at] = 1
            features[:, at] = self._starts[at] + feature
        return values, features, faults

    def _categories(self, column: Any, codes: dict[str, int]) -> np.ndarray:
        """Return the code of each value, below 0 where it is missing or unknown."""
        if not self._pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        texts = [_category_text(value) for value in column.dictionary.to_pylist()]
        table = np.array([_NO_CATEGORY if text is None else codes.get(text, -1) for text in [*texts, None]])
        found = table[column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]
        self.unseen += int(np.count_nonzero(found == -1))
        return found

    def _numbers(
        self, values: Any, column: EncodedColumn, where: Callable[[int], str], faults: dict[int, str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers in the dtype, and a mask of missing ones; add other values to `faults`."""
        pa = self._pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        numbers, missing = values, None
        if _is_text(pa, values.type) or pa.types.is_null(values.type):
            numbers, missing = _parsed(pa, values)
        elif not pa.types.is_floating(values.type):
            numbers = pc.cast(values, pa.float64(), safe=False)
        found = numbers.fill_null(np.nan).to_numpy(zero_copy_only=False)
        missing = np.isnan(found) if missing is None else missing
        if column.fill is not None:
            found = np.where(missing, column.fill, found)
            self.filled += int(np.count_nonzero(missing))
        with np.errstate(over="ignore"):
            result = found.astype(self._dtype)
        for row in np.flatnonzero(~np.isfinite(result)).tolist():
            value = values[row].as_py()
            if missing[row]:
                what = "has no value"
            elif np.isfinite(found[row]):
                what = f"has {value}, which is too large for {self._dtype.name}"
            elif isinstance(value, str) and np.isnan(found[row]):
                what = f"has '{printable(value[:40])}', which is not a number"
            else:
                what = f"has {value}, which is not finite"
            faults.setdefault(row, f"{where(row)}: column '{printable(column.name)}' {what}")
        return result, missing


def describe(encoding: ColumnsEncoding) -> list[str]:
    """Return notes about the columns and their features."""
    numbers = [column.name for column in encoding.columns if column.values is None]
    columns = "column" if len(numbers) == 1 else "columns"
    lines = [f"{len(numbers):,} {columns} of numbers: {listed(numbers)}"] if numbers else []
    for column in encoding.columns:
        if column.values is not None:
            n = len(column.values)
            categories = "category" if n == 1 else "categories"
            name = printable(column.name)
            many = " (free text is to be given as text, or dropped)" if n > _MANY_CATEGORIES else ""
            lines.append(f"column '{name}' as {n:,} {categories}{many}: {listed(column.values)}")
    fills = [column.fill for column in encoding.columns if column.fill is not None]
    if fills:
        lines.append(f"missing numbers become {'the mean of their column' if any(fills) else '0'}")
    if marked := [column.feature_names[-1] for column in encoding.columns if column.indicator]:
        lines.append(f"features that mark missing values: {listed(marked)}")
    return lines


def _category_text(value: Any) -> str | None:
    try:
        return label_text(value)
    except ValueError as error:
        raise InputError(f"a category cannot be made of a value: {error}") from None


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_numeric(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    )


_BOOLEANS = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}


def _parsed(pa: Any, column: Any) -> tuple[Any, np.ndarray]:
    """Return the numbers that text spells, true and false included, and a mask of missing values.

    Text that spells no number gives null.
    """
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(column.cast(pa.string()))
    missing = pc.is_in(trimmed, value_set=pa.array([None, *sorted(MISSING_TEXTS)], pa.string()))
    trimmed = pc.if_else(missing, pa.scalar(None, pa.string()), trimmed)
    try:
        numbers = pc.cast(trimmed, pa.float64())
    except pa.ArrowInvalid:
        encoded = trimmed.dictionary_encode()
        table = np.array([_number(text) for text in encoded.dictionary.to_pylist()] + [np.nan])
        numbers = pa.array(table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])
    return numbers, missing.to_numpy(zero_copy_only=False)


def _number(text: str) -> float:
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    try:
        return float(text.replace("_", "x"))  # Python would read 1_000
    except ValueError:
        return np.nan


def holds_numbers(column: Any) -> bool:
    """Return True if more than half of the values of a column of text are numbers: others are then errors."""
    texts = column.unique().to_pylist()
    given = [text.strip() for text in texts if text is not None and text.strip() not in MISSING_TEXTS]
    return 2 * sum(not np.isnan(_number(text)) for text in given) > len(given)
