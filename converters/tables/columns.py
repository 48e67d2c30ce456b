"""Encode table columns as sparse rows: numbers stay unchanged, and categories are encoded one-hot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from streamsvm_converters.tables.batches import load_pyarrow
from streamsvm_converters.tables.encoding import EncodedColumn, Encoding

from streamsvm.base.format import index_dtype
from streamsvm.base.label_values import label_text
from streamsvm.base.text import printable
from streamsvm.errors import InputError

_NO_CATEGORY = -2


class ColumnEncoder:
    """Encode batches as sparse rows, and count `unseen` category values and `filled` missing numbers."""

    def __init__(self, encoding: Encoding, dtype: str) -> None:
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
        """Return the values and features of a batch, and its faults; `where` names a row in messages.

        Returns
        -------
        values : ndarray, shape (n_rows, n_columns)
        features : ndarray of int32 or int64, shape (n_rows, n_columns)
            Feature of each value, increasing within each row. The feature of a zero value has no meaning.
        faults : dict of int to str
            Message for each invalid row, about its first missing or non-finite value.
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
                category_codes = self._categories(batch.column(column.name), codes)
                feature, missing = np.maximum(category_codes, 0), category_codes == _NO_CATEGORY
                values[:, at] = category_codes >= 0
            if column.indicator:
                feature[missing] = len(column.feature_names) - 1
                values[missing, at] = 1
            features[:, at] = self._starts[at] + feature
        return values, features, faults

    def as_csr(self, values: np.ndarray, features: np.ndarray) -> Any:
        """Return values and features from `encode` as a CSR array."""
        import scipy.sparse

        present = values != 0
        indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))])
        arrays = values[present], features[present], indptr
        return scipy.sparse.csr_array(arrays, shape=(len(values), self.width))

    def _categories(self, column: Any, codes: dict[str, int]) -> np.ndarray:
        """Return the code of each value, which is negative if the value is missing or unknown."""
        if not self._pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        texts = [category_text(value) for value in column.dictionary.to_pylist()]
        table = np.array([_NO_CATEGORY if text is None else codes.get(text, -1) for text in [*texts, None]])
        category_codes = table[column.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]
        self.unseen += int(np.count_nonzero(category_codes == -1))
        return category_codes

    def _numbers(
        self, values: Any, column: EncodedColumn, where: Callable[[int], str], faults: dict[int, str]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return numbers in `dtype` and a mask of missing ones; describe non-finite numbers in `faults`."""
        pa = self._pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if column.date is None:
            numbers = pc.cast(values, pa.float64(), safe=False)
            numbers = numbers.fill_null(np.nan).to_numpy(zero_copy_only=False)
        else:
            moments = pc.cast(values, pa.timestamp("us"), safe=False)
            numbers = _numbers_of_dates(moments.to_numpy(zero_copy_only=False), column.date)
        missing = np.isnan(numbers)
        if column.fill is not None:
            numbers = np.where(missing, column.fill, numbers)
            self.filled += int(np.count_nonzero(missing)) if column.date != "years" else 0
        with np.errstate(over="ignore", invalid="ignore"):
            result = numbers.astype(self._dtype)
        for row in np.flatnonzero(~np.isfinite(result)).tolist():
            value = values[row].as_py()
            if missing[row]:
                what = "has no value"
            elif np.isfinite(numbers[row]):
                what = f"has {value}, which is too large for {self._dtype.name}"
            else:
                what = f"has {value}, which is not finite"
            faults.setdefault(row, f"{where(row)}: column '{printable(column.name)}' {what}")
        return result, missing


def _numbers_of_dates(moments: np.ndarray, unit: str) -> np.ndarray:
    """Return datetime64 dates as float64: the days since 1970, or the year; NaN for missing dates."""
    if unit == "years":
        return np.asarray(1970 + (moments.astype("M8[Y]") - np.datetime64(0, "Y")) / np.timedelta64(1, "Y"))
    return np.asarray((moments - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def category_text(value: Any) -> str | None:
    """Return a category as a string, or None if it is missing; raise `InputError` for unsupported types."""
    try:
        return label_text(value)
    except ValueError as error:
        raise InputError(f"a value cannot be a category: {error}") from None
