"""Files with tables (Parquet, CSV, tab-separated values, JSON lines), read in batches of rows."""

from __future__ import annotations

import contextlib
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamsvm_converters.libsvm.inputs import Input
from streamsvm_converters.libsvm.position import InputFile
from streamsvm_converters.tables.quotes import Quotes

from streamsvm.base.text import format_size, printable
from streamsvm.errors import InputError, PlanError, extra

_DELIMITERS = ",\t;|"
DELIMITER_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_MIN_BLOCK, _MAX_BLOCK = 2**16, 2**22  # bytes of text that are parsed at a time
# Bytes of memory for each byte of text that is parsed: blocks read ahead, strings, and what is made of them.
_BLOCK_FACTOR = 32
_PARQUET_ROWS = 2**14  # of a Parquet file, at most, at a time


def load_pyarrow() -> Any:
    """Return the module pyarrow; raise `InputError`, which names the extra, if it is not installed."""
    with extra(InputError, "tables are read by pyarrow", "tables"):
        import pyarrow
    return pyarrow


class TableFile:
    """Table in a file, whose columns are read in batches of rows.

    Parameters
    ----------
    path : path
    kind : {"parquet", "csv", "tsv", "jsonl"}
    memory : int
        Bytes that reading may take: half of all.

    Attributes
    ----------
    columns : dict of str to pyarrow.DataType
        The columns in their order; all those of CSV are text.
    kind : str
    delimiter : str
        Separator of the fields of CSV.
    size : int
        Bytes read so far, as stored.
    source : InputFile or None
        Name, size and SHA-256, once the file has been read to its end.
    n_rows : int or None
        Rows, where the file says how many.

    Raises
    ------
    InputError
        If it cannot be read, is not such a table, or has two columns of one name.
    """

    def __init__(self, path: str | Path, kind: str, memory: int) -> None:
        self._pa = load_pyarrow()
        self.path, self.kind = Path(path), kind
        self._block = min(max(memory // _BLOCK_FACTOR, _MIN_BLOCK), _MAX_BLOCK)
        self._memory = memory
        self.size = 0
        self.source: InputFile | None = None
        self.n_rows: int | None = None
        self.delimiter = ","
        self._quotes: Quotes | None = None  # of CSV that is being read
        self.columns: dict[str, Any] = {}
        with self._errors():
            pairs = self._schema()
        twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
        if twice:
            raise InputError(f"{path}: several columns have the name {_quoted(twice[0])}; rename them")
        self.columns = dict(pairs)

    @property
    def has_types(self) -> bool:
        """True if the file says which columns hold numbers."""
        return self.kind in ("parquet", "jsonl")

    def check_has(self, names: Sequence[str], what: str = "") -> None:
        """Raise `InputError`, which lists the columns, unless the table has all of `names`."""
        for name in names:
            if name not in self.columns:
                raise InputError(
                    f"{self.path} has no {what}column {_quoted(name)}; its columns are {listed(self.columns)}"
                )

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield record batches with the columns `names`, in this order."""
        with self._errors():
            yield from self._batches(list(names))

    def _schema(self) -> list[tuple[str, Any]]:
        if self.kind == "parquet":
            with self._parquet() as file:
                self.n_rows = file.metadata.num_rows
                return [(field.name, field.type) for field in file.schema_arrow]
        if self.kind == "jsonl":
            with self._jsonl(None) as reader:
                return [(field.name, field.type) for field in reader.schema]
        with Input(self.path) as text:
            begin = text.read(self._block)
        if not begin.strip():
            raise InputError(f"{self.path} is empty")
        if begin.startswith(b"\xef\xbb\xbf"):
            begin = begin[3:]
        first = begin.splitlines()[0].decode("utf-8", "replace")
        if self.kind == "tsv":
            self.delimiter = "\t"
        else:
            bare = re.sub('"[^"]*"', "", first)
            self.delimiter = max(_DELIMITERS, key=bare.count)  # the first of them if several are equal
        with self._csv(None) as reader:
            names = reader.schema.names
        if all(_is_number(name) for name in names) and len({float(name) for name in names}) < len(names):
            raise InputError(
                f"{self.path}: the first line holds numbers, not the names of columns; add such a line"
            )
        return [(name, self._pa.string()) for name in names]

    def _batches(self, names: list[str]) -> Iterator[Any]:
        if self.kind == "parquet":
            with self._parquet() as file:
                metadata = file.metadata
                groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
                row_bytes = max((each.total_byte_size / max(1, each.num_rows) for each in groups), default=0)
                row_bytes = max(row_bytes, 4 * len(names), 1)
                rows = max(1, min(_PARQUET_ROWS, int(self._memory / (16 * row_bytes))))
                total, done = self.path.stat().st_size, 0
                for batch in file.iter_batches(rows, columns=names, use_threads=False):
                    done += batch.num_rows
                    self.size = total * done // max(1, file.metadata.num_rows)
                    yield batch.select(names)  # in this order
            self.source = InputFile.of(self.path)
            return
        opened = self._jsonl(names) if self.kind == "jsonl" else self._csv(names)
        with opened as reader:
            for batch in reader:
                self._check_quotes()
                self.size = self._text.size
                yield batch.select(names)
            self._check_quotes()
            self.source = self._text.record()

    def _parquet(self) -> Any:
        import pyarrow.parquet

        # A page at a time, and not a row group: these may be as large as the file.
        return pyarrow.parquet.ParquetFile(self.path, pre_buffer=False, buffer_size=2**20)

    @contextlib.contextmanager
    def _csv(self, names: list[str] | None) -> Iterator[Any]:
        import pyarrow.csv

        text = self._pa.string()
        known = names if names is not None else []
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(known, text), include_columns=known, strings_can_be_null=True,
            null_values=[""], quoted_strings_can_be_null=True, check_utf8=True,
        )  # fmt: skip
        self._quotes = Quotes(self.delimiter)
        with self._opened(self._quotes.add) as stream, pyarrow.csv.open_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=self._block),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=convert,
        ) as reader:  # fmt: skip
            yield reader

    @contextlib.contextmanager
    def _jsonl(self, names: list[str] | None) -> Iterator[Any]:
        import pyarrow.json

        parse = None
        if names is not None:
            # Without a schema the types of each block would be its own. Whole numbers may have others below.
            pa = self._pa
            schema = pa.schema(
                [
                    (name, pa.float64() if pa.types.is_integer(kind) else kind)
                    for name, kind in self.columns.items()
                ]
            )
            parse = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=self._block)
        with self._opened() as stream, pyarrow.json.open_json(
            stream, read_options=options, parse_options=parse
        ) as reader:  # fmt: skip
            yield reader

    @contextlib.contextmanager
    def _opened(self, listener: Callable[[bytes], object] = lambda text: None) -> Iterator[Any]:
        """Yield the text as a file of pyarrow; call `listener` with each piece read, and at the end."""
        with Input(self.path) as self._text:
            yield self._pa.PythonFile(_Readable(self._text, listener), mode="r")

    def _check_quotes(self) -> None:
        """Raise `InputError`, which names the line, if a quotation mark is not closed."""
        if self._quotes is not None and self._quotes.fault is not None:
            raise InputError(f"{self.path}{self._quotes.fault}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of pyarrow into one line about the file."""
        pa = self._pa
        try:
            yield
        except (pa.ArrowInvalid, pa.ArrowException, OSError, UnicodeDecodeError) as error:
            self._check_quotes()
            text = " ".join(str(error).split())
            # Rows are counted from 1, without the header; of JSON, pyarrow counts them in each block.
            text = re.sub(r"Row #(\d+)", lambda found: f"row {int(found[1]) - 1:,}", text)
            text = re.sub(r" in row \d+$", "", text)
            if "straddling" in text or "block size" in text.lower():
                line = None if self._quotes is None else self._quotes.open_line
                where = self.path if line is None else f"{self.path}, line {line}"
                problem = "a row is longer than" if line is None else "a quotation mark is not closed within"
                raise PlanError(
                    f"{where}: {problem} the {format_size(self._block)} that are read at a time",
                    needed_memory=4 * _BLOCK_FACTOR * self._block if self._block < _MAX_BLOCK else None,
                ) from None
            if self.kind == "jsonl" and "unexpected field" in text.lower():
                raise InputError(
                    f"{self.path}: a later line has a field that none of the first "
                    f"{format_size(self._block)} has, which would be left out ({printable(text[:200])}); "
                    "give every line all fields"
                ) from None
            if "utf8" in text.lower() or "utf-8" in text.lower():
                raise InputError(
                    f"{self.path} is not UTF-8 text ({printable(text[:200])}); "
                    "iconv -f LATIN1 -t UTF-8 converts it, if it is Latin-1"
                ) from None
            if "Empty" in text:
                raise InputError(f"{self.path} is empty") from None
            what = {"parquet": "Parquet table", "jsonl": "table of JSON lines"}.get(self.kind, "table")
            by = "" if self.has_types else f" with {DELIMITER_NAMES[self.delimiter]}"
            raise InputError(f"{self.path} cannot be read as a {what}{by}: {printable(text[:300])}") from None


class _Readable(io.RawIOBase):
    """File for pyarrow with the text of an `Input`."""

    def __init__(self, text: Input, listener: Callable[[bytes], object]) -> None:
        self._text, self._listener = text, listener

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = self._text.read(size if size >= 0 else 2**20)
        self._listener(found)
        return found


def listed(names: Sequence[str] | dict[str, Any]) -> str:
    """Return names as text: quoted, and at most the first 20."""
    first = ", ".join(_quoted(name) for name in list(names)[:20])
    return first + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _quoted(name: str) -> str:
    return f"'{printable(name)}'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
