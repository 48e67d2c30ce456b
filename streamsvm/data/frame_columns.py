"""Columns of DataFrames: categories become features of 0 and 1, as `convert` makes them of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamsvm.errors import Remedy, StreamsvmError, StreamsvmWarning, warn

_MAX_DISTINCT_VALUES = 20  # that may all have different values of a category


def encoded(
    X: Any, encoding: Mapping[str, Any] | None, error: type[StreamsvmError]
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
    """
    import scipy.sparse

    is_of_columns = encoding is not None and encoding.get("kind") == "columns"
    known = {each["name"]: each for each in encoding["columns"]} if encoding and is_of_columns else {}
    matrix = X.to_numpy()
    as_they_are = all(known.get(str(name), {}).keys() <= {"name", "type"} for name in X.columns)
    as_they_are &= not any(map(_has_categories, getattr(X, "dtypes", ())))
    if not hasattr(X, "items") or (matrix.dtype.kind in "fiub" and as_they_are):
        return matrix, X.columns, None
    parts, names, columns = [], [], []
    for label, column in X.items():
        name = str(label)
        if known and name not in known:  # a feature that is left out, with a warning, as others are
            column = column.isna() & False
        is_category = _has_categories(column.dtype) and known.get(name, {}).get("type") != "number"
        if column.dtype.kind not in "fiub":
            column = column.astype(object).infer_objects()
        is_number = column.dtype.kind in "fiub" and not is_category
        kind = "number" if is_number or encoding is not None else "category"
        entry = known.get(name) or {"name": name, "type": kind}
        if entry["type"] == "number":
            if not is_number:
                raise error(
                    f"X, column {name!r} has values that are not numbers, where the model takes numbers",
                    remedy=Remedy("leave it out, or make it as it was in the training"),
                )
            names.append(name)
            numbers = column.to_numpy(np.float64, na_value=np.nan)
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
