"""Columns of DataFrames: categories become features of 0 and 1, as `convert` makes them of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from streamsvm.errors import Remedy, StreamsvmError, StreamsvmWarning, warn

# Units of the two numbers that are made of a date.
DATE_UNITS: tuple[Literal["days"], Literal["years"]] = ("days", "years")
_AS_TRAINED = Remedy("make it as it was in the training")
_MAX_DISTINCT_VALUES = 20  # that may all have different values of a category


def encoded(
    X: Any, encoding: Mapping[str, Any] | None, error: type[StreamsvmError], missing: str = "error"
) -> tuple[Any, Any, dict[str, Any] | None]:
    """Return the matrix of a DataFrame, the names of its features, and the record of their encoding.

    The record is None if all columns hold numbers and are the features. Columns of dtype ``category`` hold
    none.

    Parameters
    ----------
    X : DataFrame
    encoding : mapping, optional
        Record of a model, which is empty if it has none; None to make each column of text a category of the
        values that it has. See docs/formats.md.
    error : type
        Error to raise for a column that does not fit the encoding, or cannot be a category.
    missing : {"error", "0", "mean", "indicator"}
        Without an encoding: what missing numbers become, as in `convert`.
    """
    import scipy.sparse

    columns = encoding["columns"] if encoding and encoding.get("kind") == "columns" else []
    known = {(each["name"], each.get("date")): each for each in columns}
    matrix = X.to_numpy()
    there = set(map(str, X.columns))
    as_they_are = missing == "error" and not any(map(_has_categories, getattr(X, "dtypes", ())))
    as_they_are &= all(each.keys() <= {"name", "type"} for each in columns if each["name"] in there)
    if not hasattr(X, "items") or (matrix.dtype.kind in "fiub" and as_they_are):
        return matrix, X.columns, None
    parts, names, columns = [], [], []
    for name, unit, column in _plain_columns(X, encoding, known, error):
        if known and (name, unit) not in known:  # a feature that is left out, with a warning, as others are
            column = column.isna() & False
        is_category = _has_categories(column.dtype) and known.get((name, None), {}).get("type") != "number"
        if column.dtype.kind not in "fiub":
            column = column.astype(object).infer_objects()
        is_number = column.dtype.kind in "fiub" and not is_category
        kind = "number" if is_number or encoding is not None else "category"
        new: dict[str, Any] = {"name": name, "type": kind} | ({"date": unit} if unit else {})
        entry = known.get((name, unit), new)
        if encoding is None and missing == "indicator" and unit != "years" and column.isna().any():
            entry["indicator"] = True
        if entry["type"] == "number":
            if not is_number:
                raise error(f"X, column {name!r} has values that are not numbers", remedy=_AS_TRAINED)
            names.append(number_name(name, unit))
            numbers = column.to_numpy(np.float64, na_value=np.nan)
            if encoding is None and missing != "error":
                mean = np.ma.masked_invalid(numbers).mean() if missing == "mean" else 0
                entry["fill"] = float(mean or 0)  # also if no value is there
            numbers = np.where(np.isnan(numbers), entry.get("fill", np.nan), numbers)
            parts.append(scipy.sparse.csr_array(numbers[:, None]))
        else:
            texts = _texts(name, column, error)
            given = sum(map(bool, texts))
            values = entry.setdefault("values", sorted(set(texts) - {""}))
            if not known and (not values or len(values) == given > _MAX_DISTINCT_VALUES):
                what = "another value in each row: that is no category" if values else "no value"
                raise error(f"X, column {name!r} has {what}", remedy=Remedy("leave it out"))
            code = {value: at for at, value in enumerate(values)}
            codes = np.array([code.get(text, -1) for text in texts], np.int64)
            rows = np.flatnonzero(codes >= 0)
            if len(rows) < given:
                what = "has values that are unknown to the model and become no feature"
                warn(StreamsvmWarning(f"X, column {name!r} {what} (rows: {given - len(rows):,})"))
            names += [f"{name}={value}" for value in values]
            one_hot = (np.ones(len(rows)), (rows, codes[rows]))
            parts.append(scipy.sparse.csr_array(one_hot, shape=(len(codes), len(values))))
        if entry.get("indicator"):
            names.append(f"{name}=missing")
            parts.append(scipy.sparse.csr_array(column.isna().to_numpy(np.float64)[:, None]))
        columns.append(entry)
    record = {"kind": "columns", "columns": columns}
    return scipy.sparse.csr_array(scipy.sparse.hstack(parts)), names, record


def _plain_columns(
    X: Any, encoding: Mapping[str, Any] | None, known: Mapping[Any, Any], error: type[StreamsvmError]
) -> Iterator[tuple[str, str | None, Any]]:
    """Yield the name of each column, None, and its values; twice those of dates, as numbers of each unit."""
    for label, column in X.items():
        name, of_dates = str(label), (str(label), "days") in known
        dates = _dates(column) if of_dates or encoding is None else None
        if dates is None and of_dates:
            raise error(f"X, column {name!r} has values that are not dates", remedy=_AS_TRAINED)
        if dates is None or not (of_dates or column.notna().any()):
            yield name, None, column
        else:
            for unit in DATE_UNITS:
                yield name, unit, type(column)(numbers_of_dates(dates, unit))


def _dates(column: Any) -> np.ndarray | None:
    """Return dates, or texts that all are dates as ISO 8601 writes them, as datetime64; None for others."""
    if column.dtype.kind in "fiub" or _has_categories(column.dtype):
        return None
    if column.dtype.kind == "M":
        return np.asarray(column.to_numpy("M8[us]"))
    texts = ["" if missing else str(value) for value, missing in zip(column, column.isna(), strict=True)]
    try:
        is_date = all(not text or (text[4:5] == "-" and len(text) >= 10) for text in texts)
        return np.array(texts, "M8[us]") if is_date else None
    except ValueError:
        return None


def numbers_of_dates(moments: np.ndarray, unit: str) -> np.ndarray:
    """Return dates, datetime64, as days since 1970 or as years, float64; NaN where one is missing."""
    if unit == "years":
        return np.asarray(1970 + (moments.astype("M8[Y]") - np.datetime64(0, "Y")) / np.timedelta64(1, "Y"))
    return np.asarray((moments - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def number_name(column: str, date: str | None) -> str:
    """Return the name of the feature of a column of numbers, or of dates in one of the units."""
    return f"{column} (year)" if date == "years" else column


def _has_categories(dtype: Any) -> bool:
    """Return True for the dtype of a categorical column, whose categories may be numbers."""
    return getattr(dtype, "categories", None) is not None


def _texts(name: str, column: Any, error: type[StreamsvmError]) -> list[str]:
    """Return the values of a column as text, whole numbers without a point; "" where they are missing."""
    texts = []
    for value, missing in zip(column.tolist(), column.isna(), strict=True):
        if not missing and not isinstance(value, str | int | float):
            raise error(
                f"X, column {name!r} holds {value!r}, and neither numbers nor text",
                remedy=Remedy("leave it out, or make numbers of it"),
            )
        whole = isinstance(value, float) and not missing and value.is_integer()
        texts.append("" if missing else str(int(value) if whole else value))
    return texts
