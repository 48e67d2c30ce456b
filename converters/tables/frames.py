"""Convert DataFrames in memory to matrices, with the same encoding as table files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.tables.batches import Table, load_pyarrow
from streamsvm_converters.tables.choosing import choose_encoding
from streamsvm_converters.tables.columns import ColumnEncoder
from streamsvm_converters.tables.encoding import read_encoding
from streamsvm_converters.tables.text import joined_texts, with_n_grams

from streamsvm.errors import InputError, Remedy, StreamsvmError, warn


class Frame(Table):
    """Table from a pandas DataFrame; a string column with only ISO 8601 dates becomes a date column."""

    path = "X"

    def __init__(self, X: Any) -> None:
        pa = load_pyarrow()
        try:
            self.batch = pa.RecordBatch.from_pandas(X, preserve_index=False)
        except (pa.ArrowException, ValueError, TypeError) as error:
            problem = f"X has a column of an unsupported type: {error}"
            raise InputError(problem, remedy=Remedy("convert its values to numbers, text or dates")) from None
        columns = [_as_dates(column) for column in self.batch.columns]
        self.batch = pa.record_batch(columns, self.batch.schema.names)
        self.columns = {field.name: field.type for field in self.batch.schema}


def _as_dates(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        try:
            return column.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            pass
    return column


def encoded_frame(
    X: Any,
    record: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    dtype: str,
    error: type[StreamsvmError],
    first: int = 0,
) -> tuple[Any, list[str] | None, dict[str, Any]]:
    """Return a DataFrame as a matrix, the feature names (None if it has text), and the encoding record.

    `record` is the encoding of a model. If it is None, the encoding is chosen from `options`, which are
    fields of `ReadOptions`. Columns of dtype ``category`` are categories, even if they contain numbers.
    `error` is the class raised if a column does not match or cannot be encoded. `first` is the number of the
    first row in messages.
    """
    try:
        frame = Frame(X)
        if record is None:
            types = load_pyarrow().types
            categories = [name for name, kind in frame.columns.items() if types.is_dictionary(kind)]
            merged = {"dtype": dtype, **options}
            merged["categorical"] = [*merged.get("categorical", ()), *categories]
            encoding = choose_encoding(
                [frame], ReadOptions(**merged), lambda table, names, dates: [(frame.batch.select(names),)], []
            )
        else:
            encoding = read_encoding(record, "the model")
        frame.check_has(encoding.used)
        frame.check_holds(encoding.numbers)
        encoder = ColumnEncoder(encoding, dtype)
        values, features, faults = encoder.encode(frame.batch, lambda row: f"X[{first + row}]")
        if faults:
            raise InputError(faults[min(faults)], remedy=Remedy("drop the row, or replace the value"))
    except InputError as fault:
        raise error(fault.message) from None
    if encoder.unseen:
        warn(f"X has {encoder.unseen:,} category values that the model does not know; they are ignored")
    part = encoder.as_csr(values, features), joined_texts(frame.batch, encoding), None
    matrix, _ = next(with_n_grams([part], encoding, dtype, 1))
    return matrix, encoding.column_features if encoding.text is None else None, encoding.record
