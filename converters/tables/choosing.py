"""Choose the table columns that become features, and the values of categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.tables.batches import HasDates, TableFile, is_date, is_numeric, listed, load_pyarrow
from streamsvm_converters.tables.columns import ColumnEncoder, category_text
from streamsvm_converters.tables.encoding import DATE_UNITS, EncodedColumn, Encoding, TextEncoding

from streamsvm.base.decode import decode
from streamsvm.base.text import printable
from streamsvm.errors import InputError, Option, Remedy, SettingsError

MAX_CATEGORY_VALUES = 2**20  # in all columns together; the values are kept in memory, stores and models
COLUMN_OPTIONS = ("drop", "categorical", "missing")
TEXT_OPTIONS = ("analyzer", "ngrams", "bits")
_MANY_CATEGORIES = 100  # a column with more values may be free text
# Function of (table, names, numbers) that yields tuples whose first item is a batch of labelled rows.
Read = Callable[[TableFile, Sequence[str], HasDates], Iterable[tuple[Any, ...]]]


def choose_encoding(
    tables: Sequence[TableFile], options: ReadOptions, read: Read, notes: list[str]
) -> Encoding:
    """Choose the encoding of tables from the options and the column types, and append remarks to `notes`.

    Raises `InputError` if the tables have different columns, if one lacks a column that the options name, or
    if `_choose_columns` rejects a column. Raises `SettingsError` if an option does not apply.
    """
    first = tables[0]
    for table in tables:
        table.check_has([*options.drop, *options.columns, *options.categorical, *options.text])
    if options.label in options.text:
        raise InputError(f"column {options.label!r} cannot be both text and label; remove it from text")
    text = None
    if options.text:
        text = decode(TextEncoding, options.of_texts | {"columns": list(options.text)})
        words = "words" if text.analyzer == "word" else "characters"
        notes.append(
            f"text in {listed(options.text)}: n-grams of {text.ngrams[0]} to {text.ngrams[1]} {words}, "
            f"hashed to 2^{text.bits} features"
        )
    needs = "if text lists text columns" if text is None else "if columns lists columns that are not text"
    for name in options.changed(TEXT_OPTIONS if text is None else () if options.columns else COLUMN_OPTIONS):
        raise SettingsError(f"{name} applies only {needs}", setting=name)
    named = {options.label, options.hold_out_by, *options.drop, *options.columns, *options.categorical}
    index = [] if text else sorted({name for table in tables for name in table.index} - named)
    if index:
        shown = listed([name or "(the first column, which has no name)" for name in index])
        notes.append(f"columns that name the rows and do not become features: {shown}")
    excluded = {options.label, options.hold_out_by, *options.drop, *index}
    all_columns = () if text else first.columns
    names = [name for name in options.columns or all_columns if name not in excluded]
    for table in tables[1:]:
        table.check_has(names)
        extra = table.columns.keys() - set(names) - excluded
        if extra and not options.columns and text is None:
            raise InputError(
                f"{table.path} has the columns {listed(sorted(extra))}, which {first.path} does not have",
                remedy=Remedy("leave them out with {}", Option("drop", ",".join(sorted(extra)))),
            )
    if not names and text is None:
        raise InputError(f"{first.path} has no column that can become a feature; use a table with features")
    columns = _choose_columns(tables, names, options, read) if names else []
    notes += _described(columns)
    return Encoding(columns, text)


def _choose_columns(
    tables: Sequence[TableFile], names: Sequence[str], options: ReadOptions, read: Read
) -> list[EncodedColumn]:
    """Choose the encoding of columns, including the values of categories and the means of numbers.

    The first table determines the types. Text columns, and the columns in `options.categorical`, become
    categories. A date becomes two numbers: the days since 1970, and the year. The tables are read once if
    they have categories, or if `missing` is "mean" or "indicator". Raises `InputError` if a column is
    unsuitable.
    """
    missing = options.missing
    pa = load_pyarrow()
    planned: list[EncodedColumn] = []
    for name in names:
        kind = tables[0].columns[name]
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if is_numeric(kind) and name not in options.categorical:
            planned.append(EncodedColumn(name, "number"))
        elif is_date(kind) and name not in options.categorical:
            planned += [EncodedColumn(name, "number", date=unit) for unit in DATE_UNITS]
        elif _is_text(pa, kind) or pa.types.is_null(kind) or is_numeric(kind) or is_date(kind):
            planned.append(EncodedColumn(name, "category", []))
        else:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' holds {kind}, not numbers, text or dates",
                remedy=Remedy("leave it out with {}", Option("drop", name)),
            )
    is_measured = missing in ("mean", "indicator")
    numbers = _Numbers([column for column in planned if is_measured and column.values is None], options.dtype)
    categories = [column.name for column in planned if column.values is not None]
    values = _collect(tables, categories, numbers, read)
    fills = numbers.means(str(tables[0].path)) if missing == "mean" and numbers.n_rows else {}
    fill = None if missing == "error" else 0.0
    gaps = numbers.gaps if missing == "indicator" else set()
    columns = [
        replace(each, values=sorted(values[each.name]), indicator=each.name in gaps)
        if each.name in values
        else replace(each, fill=fills.get(each, fill), indicator=each.name in gaps and each.date != "years")
        for each in planned
    ]
    features = Counter(name for column in columns for name in column.feature_names)
    repeated = [name for name, times in features.items() if times > 1]
    if repeated:
        raise InputError(
            f"{tables[0].path}: two features would have the name '{printable(repeated[0])}': that of a "
            "column, and that of a value of another column; rename the column"
        )
    return columns


def _collect(
    tables: Sequence[TableFile], names: Sequence[str], numbers: _Numbers, read: Read
) -> dict[str, set[str]]:
    """Return the distinct values of each category column; add numbers and missing values to `numbers`."""
    values: dict[str, set[str]] = {name: set() for name in names}
    rows = dict.fromkeys(names, 0)
    total = 0
    for table in tables if names or numbers.encoding.columns else ():
        for batch, *_ in read(table, [*names, *numbers.encoding.used], numbers.encoding.numbers):
            total += batch.num_rows
            if numbers.encoding.columns:
                numbers.add(batch)
            for name in names:
                found, counts = batch.column(name).value_counts().flatten()
                texts = list(map(category_text, found.to_pylist()))
                rows[name] += sum(n for text, n in zip(texts, counts.to_pylist(), strict=True) if text)
                numbers.gaps.update([name] * (None in texts))
                values[name].update(text for text in texts if text)
            if sum(map(len, values.values())) > MAX_CATEGORY_VALUES:
                largest = max(values, key=lambda name: len(values[name]))
                raise InputError(
                    f"{table.path}: column '{printable(largest)}' has more than {len(values[largest]) - 1:,} "
                    "different values, too many for categories",
                    remedy=_not_a_category(largest),
                )
    for name, found in values.items():
        if not found and total:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' has no value in any row",
                remedy=Remedy("leave it out with {}", Option("drop", name)),
            )
        if len(found) == rows[name] > 20:
            raise InputError(
                f"{tables[0].path}: column '{printable(name)}' has a different value in each of "
                f"{rows[name]:,} rows, so its values are not categories",
                remedy=_not_a_category(name),
            )
    return values


class _Numbers:
    """Sums of numeric columns, to compute their means; `gaps` names all columns with missing values."""

    def __init__(self, columns: list[EncodedColumn], dtype: str) -> None:
        self._columns, self._dtype, self.n_rows = columns, dtype, 0
        self.gaps: set[str] = set()
        marked = [replace(each, fill=0.0, indicator=True) for each in columns]
        self.encoding = Encoding(marked)
        self._encoder = ColumnEncoder(self.encoding, "float64")
        self._sums, self._present = np.zeros((2, len(columns)))

    def add(self, batch: Any) -> None:
        """Add those rows of a batch whose numbers are all finite in the dtype."""
        values, features, _ = self._encoder.encode(batch, str)
        with np.errstate(over="ignore", invalid="ignore"):
            kept = np.isfinite(values.astype(self._dtype)).all(axis=1)
        missing = features[kept] % 2 == 1  # the second feature of a column marks missing values
        # Rows are added one by one, so that the sums do not depend on where batches end.
        values = np.vstack([self._sums, np.where(missing, 0.0, values[kept])])
        self._sums = np.add.accumulate(values, axis=0)[-1]
        self._present += (~missing).sum(axis=0)
        self.gaps.update(self._columns[at].name for at in np.flatnonzero(missing.any(axis=0)))
        self.n_rows += len(missing)

    def means(self, where: str) -> dict[EncodedColumn, float]:
        """Return the mean of each column; raise an `InputError` about table `where` if one has no mean."""
        means = dict(zip(self._columns, (self._sums / np.maximum(self._present, 1)).tolist(), strict=True))
        for (column, mean), present in zip(means.items(), self._present, strict=True):
            if not present or not np.isfinite(mean):
                problem = f"{where}: column '{printable(column.name)}' has no mean, because"
                remedy = Remedy("leave it out with {}", Option("drop", column.name))
                raise InputError(f"{problem} its numbers are missing or too large", remedy=remedy)
        return means


def _not_a_category(name: str) -> Remedy:
    return Remedy(
        "leave it out with {}, or use its words with {}", Option("drop", name), Option("text", name)
    )


def _described(columns: Sequence[EncodedColumn]) -> list[str]:
    dates = Encoding(list(columns)).numbers
    numbers = [name + " (days and year)" * of_dates for name, of_dates in dates.items()]
    noun = "column" if len(numbers) == 1 else "columns"
    lines = [f"{len(numbers):,} numeric {noun}: {listed(numbers)}"] if numbers else []
    for column in columns:
        if column.values is not None:
            n = len(column.values)
            categories = "category" if n == 1 else "categories"
            name = printable(column.name)
            many = " (if it is free text, list it in text, or drop it)" if n > _MANY_CATEGORIES else ""
            lines.append(f"column '{name}' as {n:,} {categories}{many}: {listed(column.values)}")
    fills = [column.fill for column in columns if column.fill is not None]
    if fills:
        lines.append(f"missing numbers become {'the mean of their column' if any(fills) else '0'}")
    if marked := [column.feature_names[-1] for column in columns if column.indicator]:
        lines.append(f"features that mark missing values: {listed(marked)}")
    return lines


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
