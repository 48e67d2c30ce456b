"""Read table files (Parquet, CSV, tab-separated values, JSON lines) in batches of rows with pyarrow."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.libsvm.position import InputFile
from streamsvm_converters.tables.quotes import CheckedText

from streamsvm.base.label_values import MISSING_TEXTS
from streamsvm.base.text import format_size, printable
from streamsvm.data.checks import row_pieces
from streamsvm.errors import InputError, Option, PlanError, Remedy, extra
from streamsvm.store.kinds import MAGIC_SIZE, compression_of
from streamsvm.store.parquet import open_parquet, row_bytes

HasDates = Mapping[str, bool]  # name of a number column -> whether its numbers encode dates
_DELIMITERS = ",\t;|"
_DELIMITER_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
_MIN_BLOCK, _MAX_BLOCK = 2**16, 2**22
_BLOCK_FACTOR = 32  # bytes of memory per byte of parsed text: blocks read ahead, strings, encoded rows
_PARQUET_ROWS, _PARQUET_TEXT = 2**14, 2**22  # maximum number of rows, and of string bytes, in a batch
_PAGE_ROWS = 2**10  # rows after which pyarrow ends a page of long strings
_LONG_TEXTS = 2**16  # maximum size of a dictionary in bytes; a column with a larger one is decoded


def load_pyarrow() -> Any:
    """Import and return pyarrow; raise an `InputError` that names the extra if it is not installed."""
    with extra(InputError, "tables need pyarrow, which is not installed", "tables"):
        import pyarrow
    return pyarrow


class Table:
    """Base class of tables. `columns` maps names to pyarrow types; `index` lists columns that name rows."""

    path: Any
    columns: dict[str, Any]
    index: Sequence[str] = ()

    def check_has(self, names: Sequence[str]) -> None:
        """Raise an `InputError` that lists the columns if the table does not have all columns in `names`."""
        for name in names:
            if name not in self.columns:
                raise InputError(
                    f"{self.path} has no column {_quoted(name)}; its columns are {listed(self.columns)}"
                )

    def check_holds(self, numbers: HasDates) -> None:
        """Raise `InputError` unless the columns in `numbers` are numeric, or dates if their entry is True."""
        for name, has_dates in numbers.items():
            kind = self.columns[name]
            if not ((is_date if has_dates else is_numeric)(kind) or load_pyarrow().types.is_null(kind)):
                what = "dates" if has_dates else "numbers"
                raise InputError(f"{self.path}: column {_quoted(name)} must contain {what}, not {kind}")


class TableFile(Table):
    """Table file that is read in batches of rows.

    pyarrow infers the types of CSV and JSON lines from the first block of text. Integers become float64,
    because later numbers may not be integers. `index` names the columns of a stored pandas index, or the
    first CSV column if it has no name. `size` is the number of bytes read so far, before decompression.
    `source` is the record of the file once it is read to its end. `n_rows` is None if it is not stored.

    Raises `InputError` if the file cannot be read, is not a table of this kind, or repeats a column name.

    Parameters
    ----------
    path : path
    kind : {"parquet", "csv", "tsv", "jsonl"}
    memory : int
        Memory budget for reading, in bytes.
    delimiter, decimal : str or None
        Field separator and decimal mark of CSV; None to detect them.
    """

    def __init__(
        self, path: str | Path, kind: str, memory: int, delimiter: str | None, decimal: str | None
    ) -> None:
        self._pa = load_pyarrow()
        self.path, self.kind = Path(path), kind
        self._block = min(max(memory // _BLOCK_FACTOR, _MIN_BLOCK), _MAX_BLOCK)
        self._memory = memory
        self.size = 0
        self.source: InputFile | None = None
        self.n_rows: int | None = None
        self.delimiter = delimiter or {"csv": "", "tsv": "\t"}.get(kind, ",")
        self.decimal = decimal or ""
        self._stored: Any = None
        self._checked: CheckedText | None = None
        self.columns: dict[str, Any] = {}
        self.index: list[str] = []
        with self._errors():
            pairs = self._schema()
        repeated = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
        if repeated:
            raise InputError(f"{path}: several columns have the name {_quoted(repeated[0])}; rename them")
        self.columns = dict(pairs)

    @property
    def has_types(self) -> bool:
        """Whether the file itself stores which columns are numeric."""
        return self.kind in ("parquet", "jsonl")

    def batches(self, names: Sequence[str], numbers: HasDates) -> Iterator[Any]:
        """Yield record batches with the columns `names`, in this order.

        In CSV, columns in `numbers` are read as numbers, or as dates if their entry is True, and all other
        columns are read as text. In other tables, a column in `numbers` with another type raises
        `InputError`.
        """
        if self.has_types:
            self.check_holds(numbers)
        with self._errors():
            yield from self._batches(list(names), numbers)

    def _schema(self) -> list[tuple[str, Any]]:
        if self.kind == "parquet":
            with open_parquet(self.path) as file:
                self.n_rows = file.metadata.num_rows
                pandas_record = file.schema_arrow.pandas_metadata
                index = pandas_record.get("index_columns") if isinstance(pandas_record, dict) else ()
                index = index if isinstance(index, list) else ()  # a forged file may have another type
                self.index = [name for name in index if isinstance(name, str)]  # a RangeIndex is a dict
                return [(field.name, field.type) for field in file.schema_arrow]
        if not self.delimiter:
            with self._text() as text:
                first = (text.read(self._block).splitlines() or [b""])[0].decode("utf-8", "replace")
            unquoted = re.sub('"[^"]*"', "", first)
            self.delimiter = max(_DELIMITERS, key=unquoted.count)  # the first delimiter wins a tie
        marks = self.decimal or ("." if self.delimiter == "," else ".,")
        schemas = {}
        for mark in marks:
            self.decimal = mark
            with self._jsonl() if self.kind == "jsonl" else self._csv([], {}) as reader:
                schemas[mark] = reader.schema
        self.decimal = max(marks, key=lambda mark: sum(map(is_numeric, schemas[mark].types)))
        self.index = [name for name in schemas[self.decimal].names[:1] if name == ""]
        return [(field.name, self._type(field.type)) for field in schemas[self.decimal]]

    def _type(self, inferred: Any) -> Any:
        if self._pa.types.is_integer(inferred):
            return self._pa.float64()
        if is_date(inferred):  # later rows may have a time of day
            return self._pa.timestamp("us", getattr(inferred, "tz", None))
        is_unchanged = is_numeric(inferred) or (self.has_types and not self._pa.types.is_temporal(inferred))
        return inferred if is_unchanged else self._pa.string()

    def _batches(self, names: list[str], numbers: HasDates) -> Iterator[Any]:
        if self.kind == "parquet":
            texts = [name for name in names if not self._pa.types.is_nested(self.columns[name])]
            with open_parquet(self.path, texts) as file:
                sizes = row_bytes(file.metadata, names)
                name = max(sizes, key=sizes.__getitem__)
                page = min(_PAGE_ROWS, file.metadata.num_rows) * sizes[name]
                if 2 * page > self._memory:
                    raise PlanError(
                        f"{self.path}: column {_quoted(name)} has values of {format_size(sizes[name])}, too "
                        "large for the memory limit",
                        needed_memory=4 * page,
                    )
                rows = max(1, min(_PARQUET_ROWS, self._memory // (16 * sum(sizes.values()))))
                total, done = self.path.stat().st_size, 0
                for batch in file.iter_batches(rows, columns=names, use_threads=False):
                    done += batch.num_rows
                    self.size = total * done // max(1, file.metadata.num_rows)
                    yield from _with_few_texts(batch.select(names))
        else:
            with self._jsonl(names) if self.kind == "jsonl" else self._csv(names, numbers) as reader:
                for batch in reader:
                    self._check_quotes()
                    self.size = self._stored.tell()
                    yield batch.select(names)
            self._check_quotes()
        self.source = InputFile.of(self.path)

    def _csv(self, names: Sequence[str], numbers: HasDates) -> Any:
        """Return a CSV reader of the columns `names`; if it is empty, of all columns, with inferred types."""
        import pyarrow.csv

        pa, types, missing = self._pa, {}, sorted(MISSING_TEXTS)
        for name in names:
            kind, default_type = self.columns[name], pa.timestamp("us") if numbers.get(name) else pa.float64()
            keeps_type = is_date(kind) if numbers.get(name) else pa.types.is_boolean(kind)
            types[name] = pa.string() if name not in numbers else kind if keeps_type else default_type
        self._checked = CheckedText(self._text(), self.delimiter)
        return pyarrow.csv.open_csv(
            self._checked,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=self._block),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, include_columns=names, null_values=missing, decimal_point=self.decimal
            ),
        )

    def _jsonl(self, names: list[str] | None = None) -> Any:
        import pyarrow.json

        parse = None
        if names is not None:  # without a schema, each block would have its own types
            parse = pyarrow.json.ParseOptions(
                explicit_schema=self._pa.schema(self.columns), unexpected_field_behavior="error"
            )
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=self._block)
        return pyarrow.json.open_json(self._text(), read_options=options, parse_options=parse)

    def _text(self) -> Any:
        self._stored = self._pa.OSFile(str(self.path))
        codec = compression_of(self._stored.read(MAGIC_SIZE))
        self._stored.seek(0)
        if codec == "xz":
            raise InputError(
                f"{self.path} is compressed with xz, which pyarrow cannot read; decompress it first"
            )
        return self._stored if codec is None else self._pa.CompressedInputStream(self._stored, codec)

    def _check_quotes(self) -> None:
        if self._checked is not None and self._checked.fault is not None:
            raise InputError(
                f"{self.path}, line {self._checked.fault}: the quotation mark that opens a field here is not "
                "closed; close it, or double it and enclose the field in quotation marks"
            )

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert pyarrow errors to one-line errors that name the file."""
        pa = self._pa
        try:
            yield
        except (pa.ArrowException, OSError, ValueError) as error:
            self._check_quotes()
            text = " ".join(str(error).split())
            # Count rows from 1 after the header. Omit row numbers in JSON, which restart in each block.
            text = re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - 1:,}", text)
            text = re.sub(r" in row \d+$", "", text)
            if "straddling" in text or "block size" in text.lower():
                line = None if self._checked is None else self._checked.open_line
                where = self.path if line is None else f"{self.path}, line {line}"
                problem = "a row is longer than" if line is None else "a quotation mark is not closed within"
                raise PlanError(
                    f"{where}: {problem} the {format_size(self._block)} that are read at a time",
                    needed_memory=4 * _BLOCK_FACTOR * self._block if self._block < _MAX_BLOCK else None,
                ) from None
            if found := re.match(
                r"In CSV column #(\d+): (row .*): .* error to (\w+).*?: (invalid value .*|expected .*)", text
            ):
                name = list(self.columns)[int(found[1])]
                what = "dates" if found[3] == "timestamp" else "numbers"
                raise InputError(
                    f"{self.path}, {found[2]}: column {_quoted(name)} needs {what}: {printable(found[4])}",
                    remedy=Remedy(
                        "correct it, or treat the column as categories with {}", Option("categorical", name)
                    ),
                ) from None
            if self.kind == "jsonl" and ("unexpected field" in text.lower() or " changed from " in text):
                raise InputError(
                    f"{self.path}: a later line has a field or a type of value that does not occur in "
                    f"the first {format_size(self._block)} ({printable(text[:200])}); use the "
                    "same fields and types in all lines"
                ) from None
            if "utf8" in text.lower() or "utf-8" in text.lower():
                raise InputError(
                    f"{self.path} is not UTF-8 text ({printable(text[:200])}); "
                    "if it is Latin-1, convert it with iconv -f LATIN1 -t UTF-8"
                ) from None
            what = {"parquet": "Parquet table", "jsonl": "table of JSON lines"}.get(self.kind, "table")
            mark = "" if self.has_types else self.delimiter  # unknown if the first line cannot be read
            by = f" separated by {_DELIMITER_NAMES.get(mark, mark)}" if mark else ""
            raise InputError(f"{self.path} cannot be read as a {what}{by}: {printable(text[:300])}") from None


def _with_few_texts(batch: Any) -> Iterator[Any]:
    """Yield slices of a Parquet batch, each with about `_PARQUET_TEXT` bytes of strings or a single row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            row_bytes_of_texts = pc.binary_length(column.dictionary).take(column.indices)
            sizes += row_bytes_of_texts.fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes)
    for start, stop in row_pieces(ends - sizes, int(sizes.sum()), _PARQUET_TEXT):
        columns = batch.slice(start, stop - start).columns
        for at, column in enumerate(columns):
            if pa.types.is_dictionary(column.type) and column.dictionary.nbytes > _LONG_TEXTS:
                columns[at] = column.dictionary_decode()
        yield pa.record_batch(columns, batch.schema.names)


def is_numeric(kind: Any) -> bool:
    """Return True if a pyarrow type, or the value type of a dictionary, is numeric or boolean."""
    types = load_pyarrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    predicates = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return any(predicate(kind) for predicate in predicates)


def is_date(kind: Any) -> bool:
    types = load_pyarrow().types
    return bool(types.is_date(kind) or types.is_timestamp(kind))


def listed(names: Sequence[str] | dict[str, Any]) -> str:
    """Return up to 20 names in quotes, separated by commas, and the number of further names."""
    first = ", ".join(_quoted(name) for name in list(names)[:20])
    return first + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _quoted(name: str) -> str:
    return f"'{printable(name)}'"
