"""Reader of tables (CSV, tab-separated values, JSON lines, Parquet), whose columns become features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.kinds.reader import NO_NORMS, Features, Reader, TableCounts
from streamsvm_converters.label_codes import MISSING
from streamsvm_converters.tables.batches import OfDates, TableFile, listed
from streamsvm_converters.tables.columns import ColumnEncoder, choose_columns, describe
from streamsvm_converters.tables.encoding import ColumnsEncoding, Encoding, TextEncoding, read_encoding
from streamsvm_converters.tables.text import TEXTS_PER_BATCH, hashed_texts, joined_texts

from streamsvm.base.decode import decode, encode
from streamsvm.base.format import UNSEEN_LABEL
from streamsvm.base.label_values import MISSING_TEXTS
from streamsvm.data.names import feature_names
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Option, Remedy, SettingsError, warn

_COLUMN_OPTIONS = ("drop", "categorical", "missing")
_TEXT_OPTIONS = ("text", "analyzer", "ngrams", "bits")
_PIECE_BYTES = 2**22  # bytes encoded at a time: of long texts, few
_MIN_PARALLEL_BYTES = 2**24  # bytes of text: below, starting processes takes longer than they save


class TableReader(Reader):
    """Reader of tables. Columns become features as in the earlier data, if there is any."""

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
            table.check_has([options.label], "label ")
        self._encoding: Encoding = self._known_encoding() if like is not None else self._new_encoding()
        for table in self._tables:
            table.check_has(self._encoding.used)

    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]:
        if isinstance(self._encoding, TextEncoding):
            yield from self._hashed(self._encoding)
        else:
            yield from self._encoded(self._encoding)
        self.counts.bytes_read = sum(source.size for source in self.sources)
        self.has_texts = self.label_codes.has_texts and any(table.has_types for table in self._tables)

    def features(self) -> Features:
        record = encode(self._encoding)
        if isinstance(self._encoding, TextEncoding):
            return Features(2**self._encoding.bits, encoding=record)
        for column in record["columns"]:
            for name in ("values", "date", "fill", "indicator"):
                if column[name] is None or column[name] is False:
                    del column[name]
        where = str(self._tables[0].path)
        names = feature_names(self._encoding.feature_names, where)
        return Features(len(self._encoding.feature_names), names=names, encoding=record)

    @property
    def expected_bytes(self) -> int | None:
        rows = [table.n_rows for table in self._tables]
        if isinstance(self._encoding, TextEncoding) or None in rows:
            return None
        return 8 * len(self._encoding.used) * sum(filter(None, rows))

    # -- which columns, and how --------------------------------------------------------------------

    def _known_encoding(self) -> Encoding:
        """Return the encoding of the columns of earlier data."""
        like, options = self.options.like, self.options
        assert like is not None
        if like.encoding is None:
            raise InputError(
                f"{like.path} was not made from a table, and does not say how columns become features",
                remedy=Remedy("give data like its own, or convert without {}", Option("like")),
            )
        for name in options.changed(_COLUMN_OPTIONS + _TEXT_OPTIONS):
            raise SettingsError(f"{name} does not apply: {like.path} says what columns become", setting=name)
        return read_encoding(like.encoding, like.path)

    def _new_encoding(self) -> Encoding:
        """Return the encoding that the options and the columns of the tables determine."""
        options, first = self.options, self._tables[0]
        for table in self._tables:
            table.check_has([*options.drop, *options.categorical, *options.text])
        if options.text:
            for name in options.changed(_COLUMN_OPTIONS):
                raise SettingsError(f"{name} does not apply: text takes no other column", setting=name)
            if options.label in options.text:
                raise InputError(f"column {options.label!r} cannot be both text and label")
            hashed = decode(TextEncoding, options.of_texts | {"columns": list(options.text)})
            (least, most), are_words = hashed.ngrams, hashed.analyzer == "word"
            self.notes.append(
                f"text of {listed(options.text)}: n-grams of {least} to {most} "
                f"{'words' if are_words else 'characters'}, hashed to 2^{hashed.bits} features"
            )
            return hashed
        for name in options.changed(_TEXT_OPTIONS[1:]):
            raise SettingsError(f"{name} needs a column of text", setting=name)
        asked = {options.label, *options.drop, *options.categorical}
        index = sorted({name for table in self._tables for name in table.index} - asked)
        if index:
            shown = listed([name or "(the first, which has no name)" for name in index])
            self.notes.append(f"columns that name the rows, and so are not features: {shown}")
        left_out = {options.label, *options.drop, *index}
        names = [name for name in first.columns if name not in left_out]
        for table in self._tables[1:]:
            table.check_has(names)
            others = table.columns.keys() - set(names) - left_out
            if others:
                raise InputError(
                    f"{table.path} has the columns {listed(sorted(others))}, which {first.path} has not",
                    remedy=Remedy("leave them out with {}", Option("drop", ",".join(sorted(others)))),
                )
        if not names:
            raise InputError(f"{first.path} has no column but labels; there is nothing to learn from")
        encoding = choose_columns(
            self._tables, names, options.categorical, options.missing, options.dtype, self._columns_of
        )
        self.notes += describe(encoding)
        return encoding

    # -- rows --------------------------------------------------------------------------------------

    def _columns_of(self, table: TableFile, names: Sequence[str], numbers: OfDates) -> Iterator[Any]:
        """Yield some columns of the rows of a table that have a label."""
        for piece, *_ in self._labelled(table, names, numbers, self._rows_per_batch(names)):
            yield piece

    def _rows_per_batch(self, names: Sequence[str]) -> int:
        """Return the number of rows of some columns to encode at a time."""
        return max(1, min(2**14, self.options.memory // (128 * len(names))))

    def _labelled(
        self, table: TableFile, names: Sequence[str], numbers: OfDates, most: int
    ) -> Iterator[tuple[Any, np.ndarray, np.ndarray, int]]:
        """Yield some columns of the rows of a table that have a label, at most `most` rows at a time.

        With them come the codes of their labels, their numbers in the table, and how many rows have none.
        """
        label = self.options.label if self.options.labelled else None
        extra = [label] if label is not None and label not in names else []
        row = unlabelled = 0
        for batch in table.batches([*names, *extra], numbers):
            for piece in _pieces(batch, most):
                rows = np.arange(row, row + piece.num_rows)
                row += piece.num_rows
                codes = np.full(len(rows), UNSEEN_LABEL, np.int32)
                if label is not None:
                    column = piece.column(piece.schema.get_field_index(label))
                    codes = self._codes(column, _places(table, rows))
                    kept = codes != MISSING
                    if unlabelled := int(np.count_nonzero(~kept)):
                        piece, codes, rows = piece.filter(kept), codes[kept], rows[kept]
                yield piece.select(list(names)), codes, rows, unlabelled

    def _batches(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray, Callable[[int], str]]]:
        """Yield used columns, label codes and numbers of labelled rows, and a function that names a row."""
        names = list(self._encoding.used)
        numbers = {} if isinstance(self._encoding, TextEncoding) else self._encoding.numbers
        most = TEXTS_PER_BATCH if isinstance(self._encoding, TextEncoding) else self._rows_per_batch(names)
        first, total = 0, sum(table.path.stat().st_size for table in self._tables)
        done = 0
        for table in self._tables:
            n_rows = 0
            for piece, codes, rows, unlabelled in self._labelled(table, names, numbers, most):
                n_rows += len(rows) + unlabelled
                self.counts.unlabelled += unlabelled
                self.counts.bytes_read = done + table.size
                if self.options.progress is not None:
                    self.options.progress(self.counts.bytes_read, total)
                if len(codes):
                    yield piece, codes, first + rows, _places(table, rows)
            if not n_rows and len(self._tables) > 1:
                warn(f"{table.path} has no rows")
            first += n_rows
            done += table.path.stat().st_size
            if table.source is not None:
                self.sources.append(table.source)
        self.counts.unseen_labels = self.label_codes.unseen

    def _codes(self, column: Any, where: Callable[[int], str]) -> np.ndarray:
        if not hasattr(column, "dictionary"):
            column = column.dictionary_encode()
        at = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return self.label_codes.encode(column.dictionary.to_pylist(), at, where)

    def _hashed(self, encoding: TextEncoding) -> Iterator[tuple[Rows, np.ndarray]]:
        size = sum(table.path.stat().st_size for table in self._tables)
        processes = self.options.threads if size >= _MIN_PARALLEL_BYTES else 1
        texts = ((joined_texts(batch), (codes, numbers)) for batch, codes, numbers, _ in self._batches())
        for matrix, (codes, numbers) in hashed_texts(texts, encoding, self.options.dtype, processes):
            rows = Rows(matrix.data, matrix.indices, matrix.indptr.astype(np.int64), codes, NO_NORMS)
            self.counts.add(rows)
            yield rows, numbers

    def _encoded(self, encoding: ColumnsEncoding) -> Iterator[tuple[Rows, np.ndarray]]:
        encoder = ColumnEncoder(encoding, self.options.dtype)
        for batch, codes, numbers, where in self._batches():
            values, features, faults = encoder.encode(batch, where)
            if faults:
                values, features, codes, numbers = self._without_faults(
                    faults, values, features, codes, numbers
                )
            present = values != 0
            indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(present, axis=1))]).astype(np.int64)
            rows = Rows(values[present], features[present], indptr, codes, NO_NORMS)
            self.counts.add(rows)
            yield rows, numbers
            self.counts.unseen_values, self.counts.missing_values = encoder.unseen, encoder.filled

    def _without_faults(self, faults: dict[int, str], *arrays: np.ndarray) -> list[np.ndarray]:
        """Return the arrays without the rows that have faults; count these, or raise the first fault."""
        messages = [faults[row] for row in sorted(faults)]
        if self.options.on_error == "raise":
            raise InputError(
                messages[0],
                remedy=Remedy(
                    "correct it, leave out such rows with {}, replace missing numbers with {}, or take the "
                    "column for categories with {}",
                    Option("on_error", "skip"),
                    Option("missing", "mean"),
                    Option("categorical"),
                ),
            )
        for message in messages:
            self.counts.skip(message)
        good = np.ones(len(arrays[0]), bool)
        good[list(faults)] = False
        return [array[good] for array in arrays]


def _places(table: TableFile, rows: np.ndarray) -> Callable[[int], str]:
    """Return a function that names a row of a batch; its number counts from 1, without the header."""
    return lambda row: f"{table.path}, row {int(rows[row]) + 1:,}"


def _pieces(batch: Any, most: int) -> Iterator[Any]:
    """Yield parts of a batch of at most `most` rows, and of about `_PIECE_BYTES` bytes."""
    most = max(1, min(most, _PIECE_BYTES * batch.num_rows // max(1, batch.nbytes)))
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)
