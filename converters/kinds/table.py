"""Read tables (CSV, tab-separated values, JSON lines, Parquet), and encode their columns as features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import NO_NORMS, Features, Reader, TableCounts
from streamsvm_converters.label_codes import MISSING
from streamsvm_converters.tables.batches import HasDates, TableFile, listed
from streamsvm_converters.tables.choosing import COLUMN_OPTIONS, TEXT_OPTIONS, choose_encoding
from streamsvm_converters.tables.columns import ColumnEncoder
from streamsvm_converters.tables.encoding import Encoding, read_encoding
from streamsvm_converters.tables.text import joined_texts, with_n_grams

from streamsvm.base.format import UNSEEN_LABEL
from streamsvm.base.label_values import MISSING_TEXTS
from streamsvm.data.groups import check_hashes, group_hashes
from streamsvm.data.names import feature_names
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import InputError, Option, Remedy, warn, wrong_setting

_BATCH_ROWS = 2**12
_PIECE_BYTES = 2**22  # bytes encoded at a time, so batches with long texts have few rows
_MIN_PARALLEL_BYTES = 2**24  # smaller inputs are not worth starting processes for


class TableReader(Reader):
    """Reader of tables. If `like` is set, columns become features in the same way as in the earlier data."""

    counts: TableCounts

    def __init__(self, inputs: Sequence[str | Path], options: ReadOptions) -> None:
        super().__init__(inputs, options)
        memory, kind = options.memory // 2, str(options.format)
        self._tables = [TableFile(path, kind, memory, options.delimiter, options.decimal) for path in inputs]
        like = options.like
        has_types = any(table.has_types for table in self._tables)
        missing = frozenset() if has_types or options.labels_as == "text" else MISSING_TEXTS
        self.label_codes = self._label_codes(memory, missing)
        for table in self._tables if options.labelled else ():
            if options.label is None:
                raise InputError(
                    f"{table.path} is a table with the columns {listed(table.columns)}",
                    remedy=Remedy("name its label column with {}", Option("label")),
                )
            table.check_has([name for name in (options.label, options.hold_out_by) if name is not None])
        self._encoding = (
            self._known_encoding()
            if like is not None
            else choose_encoding(self._tables, options, self._labelled, self.notes)
        )
        for table in self._tables:
            table.check_has(self._encoding.used)

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        size = sum(table.path.stat().st_size for table in self._tables)
        processes = self.options.threads if size >= _MIN_PARALLEL_BYTES else 1
        encoder = ColumnEncoder(self._encoding, self.options.dtype)
        parts = with_n_grams(self._checked(encoder), self._encoding, self.options.dtype, processes)
        for matrix, (self.texts, columns) in parts:
            indptr = matrix.indptr.astype(np.int64)
            rows = Rows(matrix.data, matrix.indices, indptr, norm2=NO_NORMS, **columns)
            self.counts.add(rows)
            yield rows._replace(numbers=NO_NUMBERS), rows.numbers
            self.counts.unseen_values, self.counts.missing_values = encoder.unseen, encoder.filled
        self.counts.bytes_read = sum(source.size for source in self.sources)
        self.has_strings = self.label_codes.has_strings and any(table.has_types for table in self._tables)

    def features(self) -> Features:
        encoding, names = self._encoding, None
        if encoding.text is None:
            names = feature_names(encoding.column_features, str(self._tables[0].path))
        return Features(encoding.n_features, names=names, encoding=encoding.record)

    @property
    def expected_bytes(self) -> int | None:
        rows = [table.n_rows for table in self._tables]
        if self._encoding.text is not None or None in rows:
            return None
        return 8 * len(self._encoding.used) * sum(filter(None, rows))

    def _known_encoding(self) -> Encoding:
        like, options = self.options.like, self.options
        assert like is not None
        if like.encoding is None:
            raise InputError(
                f"{like.path} was not made from a table, so it does not define how columns become features",
                remedy=Remedy("use data of the same kind, or convert without {}", Option("like")),
            )
        for name in options.changed(["text", "columns", *TEXT_OPTIONS, *COLUMN_OPTIONS]):
            raise wrong_setting(name, f"must be left out, because {like.path} defines the features")
        return read_encoding(like.encoding, like.path)

    def _labelled(
        self, table: TableFile, names: Sequence[str], numbers: HasDates
    ) -> Iterator[tuple[Any, dict[str, np.ndarray], int]]:
        """Yield (labelled rows with columns `names`, dict of `Rows` arrays, number of unlabelled rows)."""
        label, by = (self.options.label, self.options.hold_out_by) if self.options.labelled else (None, None)
        extra = [name for name in dict.fromkeys((label, by)) if name is not None and name not in names]
        max_rows = min(_BATCH_ROWS, self.options.memory // (128 * len(names)))
        row = unlabelled = 0
        for batch in table.batches([*names, *extra], numbers):
            for piece in _pieces(batch, max_rows):
                rows = np.arange(row, row + piece.num_rows)
                row += piece.num_rows
                codes = np.full(len(rows), UNSEEN_LABEL, np.int32)
                if label is not None:
                    codes = self.label_codes.encode(*_distinct(piece.column(label)), _places(table, rows))
                    kept = codes != MISSING
                    if unlabelled := int(np.count_nonzero(~kept)):
                        piece, codes, rows = piece.filter(kept), codes[kept], rows[kept]
                columns = {"labels": codes, "numbers": rows}
                if by is not None:
                    values, at = _distinct(piece.column(by))
                    hashes = group_hashes([*values, None])[at]
                    columns["hold_out_by"] = check_hashes(hashes, _places(table, rows))
                yield piece.select(list(names)), columns, unlabelled

    def _batches(self) -> Iterator[tuple[Any, dict[str, np.ndarray], Callable[[int], str]]]:
        """Yield (labelled rows with the used columns, dict of `Rows` arrays, function that names a row)."""
        names, numbers = self._encoding.used, self._encoding.numbers
        first, done, total = 0, 0, sum(table.path.stat().st_size for table in self._tables)
        for table in self._tables:
            n_rows = 0
            for piece, columns, unlabelled in self._labelled(table, names, numbers):
                rows = columns["numbers"]
                n_rows += len(rows) + unlabelled
                self.counts.unlabelled += unlabelled
                self.counts.bytes_read = done + table.size
                if self.options.progress is not None:
                    self.options.progress(self.counts.bytes_read, total)
                if len(rows):
                    yield piece, columns | {"numbers": first + rows}, _places(table, rows)
            if not n_rows and len(self._tables) > 1:
                warn(f"{table.path} has no rows")
            first += n_rows
            done += table.path.stat().st_size
            if table.source is not None:
                self.sources.append(table.source)
        self.counts.unseen_labels = self.label_codes.unseen

    def _checked(self, encoder: ColumnEncoder) -> Iterator[tuple[Any, list[str], Any]]:
        """Yield the valid rows as (CSR matrix, texts to hash, (the same texts, dict of `Rows` arrays))."""
        for batch, columns, where in self._batches():
            values, features, faults = encoder.encode(batch, where)
            if faults:
                valid = self._valid_rows(faults, batch.num_rows)
                values, features, batch = values[valid], features[valid], batch.filter(valid)
                columns = {name: column[valid] for name, column in columns.items()}
            texts = joined_texts(batch, self._encoding)
            yield encoder.as_csr(values, features), texts, (texts, columns)

    def _valid_rows(self, faults: dict[int, str], n_rows: int) -> np.ndarray:
        """Return a mask of the valid rows; count the others, or raise if `on_error` is "raise"."""
        messages = [faults[row] for row in sorted(faults)]
        if self.options.on_error == "raise":
            raise InputError(
                messages[0],
                remedy=Remedy(
                    "correct the value, drop such rows with {}, replace missing numbers with {}, or treat "
                    "the column as categories with {}",
                    Option("on_error", "skip"),
                    Option("missing", "mean"),
                    Option("categorical"),
                ),
            )
        for message in messages:
            self.counts.skip(message)
        return ~np.isin(np.arange(n_rows), list(faults))


def _places(table: TableFile, rows: np.ndarray) -> Callable[[int], str]:
    """Return a function that names a row of a batch by its number, counted from 1 after the header."""
    return lambda row: f"{table.path}, row {int(rows[row]) + 1:,}"


def _distinct(column: Any) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values of a column, and the position of each row's value (-1 if it is missing)."""
    if not hasattr(column, "dictionary"):
        column = column.dictionary_encode()
    return column.dictionary.to_pylist(), column.indices.fill_null(-1).to_numpy(zero_copy_only=False)


def _pieces(batch: Any, max_rows: int) -> Iterator[Any]:
    max_rows = max(1, min(max_rows, _PIECE_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, max_rows):
        yield batch.slice(start, max_rows)
