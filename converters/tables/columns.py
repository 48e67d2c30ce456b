"""Encoding of columns of tables as sparse rows: numbers as they are, categories one-hot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from streamsvm_converters.tables.batches import OfDates, TableFile, is_date, is_numeric, listed, load_pyarrow
from streamsvm_converters.tables.encoding import ColumnsEncoding, EncodedColumn

from streamsvm.base.format import index_dtype
from streamsvm.base.label_values import label_text
from streamsvm.base.text import printable
from streamsvm.data.frame_columns import DATE_UNITS, numbers_of_dates
from streamsvm.errors import InputError, Option, Remedy

_NO_CATEGORY = -2  # the code of a missing value

# Distinct values of all categories together: they are in memory, and in the records of stores and models.
MAX_CATEGORY_VALUES = 2**20
_MANY_CATEGORIES = 100  # of a column that may be free text
# (table, names, numbers) -> record batches of the columns `names`, of the rows that have a label.
Read = Callable[[TableFile, Sequence[str], OfDates], Iterable[Any]]


def choose_columns(
    tables: Sequence[TableFile],
    names: Sequence[str],
    categorical: Sequence[str],
    missing: str,
    dtype: str,
    read: Read,
) -> ColumnsEncoding:  # fmt: skip
    """Choose the encoding of columns, and collect the values of categories and the means of numbers.

    The types are those of the first table: columns of text, and those in `categorical`, are categories. A
    date becomes two numbers: days since 1970, and the year.

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
        If a column holds neither numbers, text nor dates, or has no value, a category has as many values as
        rows, or there are too many values.
    """
    pa = load_pyarrow()
    planned: list[EncodedColumn] = []
    for name in names:
        kind = tables[0].columns[name]
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if is_numeric(kind) and name not in categorical:
            planned.append(EncodedColumn(name, "number"))
        elif is_date(kind) and name not in categorical:
            planned += [EncodedColumn(name, "number", date=unit) for unit in DATE_UNITS]
        elif _is_text(pa, kind) or pa.types.is_null(kind) or is_numeric(kind) or is_date(kind):
            planned.append(EncodedColumn(name, "category", []))
        else:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' holds {kind}, not numbers, text or dates",
                remedy=Remedy("leave it out with {}", Option("drop", name)),
            )
    is_measured = missing in ("mean", "indicator")
    numbers = _Numbers([each for each in planned if is_measured and each.values is None], dtype)
    wanted = [each.name for each in planned if each.values is not None]
    values = _collect(tables, wanted, numbers, read)
    fills = numbers.means(str(tables[0].path)) if missing == "mean" and numbers.n_rows else {}
    fill = None if missing == "error" else 0.0
    marked = numbers.gaps if missing == "indicator" else set()
    columns = [
        replace(each, values=sorted(values[each.name]), indicator=each.name in marked)
        if each.name in values
        else replace(each, fill=fills.get(each, fill), indicator=each.name in marked and each.date != "years")
        for each in planned
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
    for table in tables if names or numbers.encoding.columns else ():
        for batch in read(table, [*names, *numbers.encoding.used], numbers.encoding.numbers):
            total += batch.num_rows
            if numbers.encoding.columns:
                numbers.add(batch)
            for name in names:
                found, counts = batch.column(name).value_counts().flatten()
                texts = list(map(_category_text, found.to_pylist()))
                rows[name] += sum(n for text, n in zip(texts, counts.to_pylist(), strict=True) if text)
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

    def __init__(self, columns: list[EncodedColumn], dtype: str) -> None:
        self._columns, self._dtype, self.n_rows = columns, dtype, 0
        self.gaps: set[str] = set()
        marked = [replace(each, fill=0.0, indicator=True) for each in columns]
        self.encoding = ColumnsEncoding("columns", marked)
        self._encoder = ColumnEncoder(self.encoding, "float64")
        self._sums, self._present = np.zeros((2, len(columns)))

    def add(self, batch: Any) -> None:
        """Add the rows of a batch with these columns, but for those whose numbers are not finite."""
        values, features, _ = self._encoder.encode(batch, str)
        with np.errstate(over="ignore", invalid="ignore"):
            kept = np.isfinite(values.astype(self._dtype)).all(axis=1)
        missing = features[kept] % 2 == 1  # of the two features of a column the second
        # One after the other, so that sums do not depend on where batches end.
        values = np.vstack([self._sums, np.where(missing, 0.0, values[kept])])
        self._sums = np.add.accumulate(values, axis=0)[-1]
        self._present += (~missing).sum(axis=0)
        self.gaps.update(self._columns[at].name for at in np.flatnonzero(missing.any(axis=0)))
        self.n_rows += len(missing)

    def means(self, where: str) -> dict[EncodedColumn, float]:
        """Return the mean of each column; raises `InputError`, which names the table, if one has none."""
        means = dict(zip(self._columns, (self._sums / np.maximum(self._present, 1)).tolist(), strict=True))
        for (column, mean), present in zip(means.items(), self._present, strict=True):
            if not present or not np.isfinite(mean):
                problem = f"{where}: column '{printable(column.name)}' has no mean"
                remedy = Remedy("leave it out with {}", Option("drop", column.name))
                raise InputError(f"{problem}: its numbers are missing, or too large", remedy=remedy)
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
            With the columns of the encoding.
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
                values[:, at], missing = self._numbers(batch.column(column.name), column, where, faults)
            else:
                found = self._categories(batch.column(column.name), codes)
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
        if column.date is None:
            numbers = pc.cast(values, pa.float64(), safe=False)
            found = numbers.fill_null(np.nan).to_numpy(zero_copy_only=False)
        else:
            moments = pc.cast(values, pa.timestamp("us"), safe=False)
            found = numbers_of_dates(moments.to_numpy(zero_copy_only=False), column.date)
        missing = np.isnan(found)
        if column.fill is not None:
            found = np.where(missing, column.fill, found)
            self.filled += int(np.count_nonzero(missing)) if column.date != "years" else 0
        with np.errstate(over="ignore", invalid="ignore"):
            result = found.astype(self._dtype)
        for row in np.flatnonzero(~np.isfinite(result)).tolist():
            value = values[row].as_py()
            if missing[row]:
                what = "has no value"
            elif np.isfinite(found[row]):
                what = f"has {value}, which is too large for {self._dtype.name}"
            else:
                what = f"has {value}, which is not finite"
            faults.setdefault(row, f"{where(row)}: column '{printable(column.name)}' {what}")
        return result, missing


def describe(encoding: ColumnsEncoding) -> list[str]:
    """Return notes about the columns and their features."""
    numbers = [name + " (days and year)" * of_dates for name, of_dates in encoding.numbers.items()]
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
