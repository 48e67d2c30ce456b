"""Files of predictions: text, CSV, and Parquet in row groups. None of them keeps rows in memory."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import ModelError, Option, Remedy, SettingsError, extra

TABLES = {".csv": ",", ".tsv": "\t", ".parquet": ""}  # suffixes, and separators of the columns
_GROUP_ROWS = 2**17  # of a row group of Parquet, at most
_GROUP_BYTES = 2**24
_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")  # also in full width
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class Batch(NamedTuple):
    """Predictions for some rows.

    Attributes
    ----------
    file : str
        Name of the data that the rows belong to.
    names : ndarray of int64 or of str objects, shape (n,)
    codes : ndarray of int64, shape (n, k)
        The predicted classes, best first.
    scores : ndarray, shape (n, k)
        In the model's dtype.
    probabilities : ndarray of float64, shape (n, k), or None
    above : list of int, or None
        Number of the classes of each row that count; None: all.
    margins : ndarray, shape (n,), or None
        Score of the predicted class minus the largest of the others; NaN if there are no others. None if the
        output has no margins.
    """

    file: str
    names: np.ndarray
    codes: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray | None
    above: list[int] | None
    margins: np.ndarray | None

    def without_unused(self) -> Batch:
        """Drop the columns that no row uses: names take more memory than scores."""
        if self.above is None:
            return self
        k = max(self.above, default=0)
        probabilities = None if self.probabilities is None else self.probabilities[:, :k]
        return self._replace(codes=self.codes[:, :k], scores=self.scores[:, :k], probabilities=probabilities)


class Sink(Protocol):
    """Output that takes predictions batch by batch."""

    def write(self, batch: Batch) -> None: ...


class Lines:
    """Text with a line for each row: the labels, each followed by its score or probability if `scored`."""

    def __init__(self, file: TextIO, classes: np.ndarray, *, scored: bool) -> None:
        self._file, self._classes, self._scored = file, classes, scored

    def write(self, batch: Batch) -> None:
        batch = batch.without_unused()
        values = batch.scores if batch.probabilities is None else batch.probabilities
        labels = self._classes[batch.codes].tolist()
        if batch.above is not None:
            labels = [row[:n] for row, n in zip(labels, batch.above, strict=True)]
        if not self._scored:
            self._file.writelines("\t".join(row) + "\n" for row in labels)
            return
        self._file.writelines(
            "\t".join(f"{name}\t{value:.9g}" for name, value in zip(row, numbers, strict=False)) + "\n"
            for row, numbers in zip(labels, values.tolist(), strict=True)
        )


def table_columns(top_k: int, *, several: bool, proba: bool) -> list[str]:
    """List the columns of a table of predictions, in order.

    >>> table_columns(2, several=False, proba=False)
    ['row', 'label', 'score', 'margin', 'label_2', 'score_2']
    """
    columns = ["file"] if several else []
    columns.append("row")
    for place in range(1, top_k + 1):
        ending = "" if place == 1 else f"_{place}"
        columns += [f"label{ending}", f"score{ending}"]
        columns += [f"probability{ending}"] if proba else []
        columns += ["margin"] if place == 1 else []
    return columns


def as_cell(value: Any) -> Any:
    """Put an apostrophe before a name that a spreadsheet would take for a formula.

    Formulas begin, after any apostrophes, with one of ``= + - @``, a tab or a line break, as OWASP lists them
    (https://owasp.org/www-community/attacks/CSV_Injection), and are no numbers, which stay as they are.

    >>> [as_cell(name) for name in ("=1+1", "-1", "T-cell", "'@a")]
    ["'=1+1", '-1', 'T-cell', "''@a"]
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


class CsvTable:
    """CSV table with a heading; numbers have the digits from which they can be read back exactly.

    Names that a spreadsheet would run as formulas are quoted: see `as_cell`.
    """

    def __init__(
        self, file: TextIO, classes: np.ndarray, separator: str, top_k: int, *, several: bool, proba: bool
    ) -> None:
        self._rows = csv.writer(file, delimiter=separator, lineterminator="\n")
        self._quoted = csv.writer(file, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._rows.writerow(table_columns(top_k, several=several, proba=proba))
        self._classes = np.array([as_cell(name) for name in classes.tolist()], object)
        self._several = several

    def write(self, batch: Batch) -> None:
        columns: list[Any] = [[as_cell(batch.file)] * len(batch.names)] if self._several else []
        columns.append([as_cell(name) for name in batch.names.tolist()])
        for values, hidden in _columns(batch):
            is_label = values.dtype.kind in "iu"
            shown = self._classes[values] if is_label else values.astype(str).astype(object)
            if hidden is not None:
                shown[hidden] = ""
            columns.append(shown)
        returns = batch.names.dtype == object and "\r" in "".join(batch.names)  # csv does not quote these
        (self._quoted if returns else self._rows).writerows(zip(*columns, strict=True))


class ParquetTable:
    """Parquet file; call `close` at the end.

    With several files the column ``row`` is text, since names may be of both kinds.
    """

    def __init__(self, file: Any, model: Any, top_k: int, *, several: bool, proba: bool) -> None:
        self._file, self._several = file, several
        self._arrow, self._parquet = _pyarrow()
        self._columns = table_columns(top_k, several=several, proba=proba)
        self._scores = self._arrow.from_numpy_dtype(model.dtype)
        self._classes = self._arrow.array(model.class_names.tolist(), self._arrow.string())
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, batch: Batch) -> None:
        arrow = self._arrow
        if self._several:
            batch = batch._replace(names=np.array([str(name) for name in batch.names.tolist()], object))
        columns = [arrow.array([batch.file] * len(batch.names), arrow.string())] if self._several else []
        columns.append(self._names(batch.names))
        for values, hidden in _columns(batch):
            column = arrow.array(values, mask=hidden)
            columns.append(self._classes.take(column) if values.dtype.kind in "iu" else column)
        table = arrow.table(columns, names=self._columns)
        if self._writer is None:
            self._open(table.schema)
        self._waiting.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        """Write the last row group, and the end of the file."""
        if self._writer is None:  # no rows at all
            text, number = self._arrow.string(), self._arrow.float64()
            row = text if self._several else self._arrow.int64()
            types = {"file": text, "row": row, "label": text, "probability": number}
            kinds = [types.get(name.split("_")[0], self._scores) for name in self._columns]
            self._open(self._arrow.schema(list(zip(self._columns, kinds, strict=True))))
        self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Close the writer without a complete file; else pyarrow tries when the file is closed already."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()

    def _names(self, names: np.ndarray) -> Any:
        if names.dtype.kind in "iu":
            return self._arrow.array(names.astype(np.int64))
        return self._arrow.array(names.tolist(), self._arrow.string())

    def _open(self, schema: Any) -> None:
        self._writer = self._parquet.ParquetWriter(self._file, schema, compression="zstd")

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(self._arrow.concat_tables(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0


@contextmanager
def open_output(
    out: str | os.PathLike[str], model: Any, top_k: int, *, several: bool, scored: bool, proba: bool
) -> Iterator[Sink]:
    """Open a path, by its suffix as a table or as lines; the path is replaced when all is written."""
    suffix, classes = Path(out).suffix.lower(), model.class_names
    options = {"several": several, "proba": proba}
    if suffix == ".parquet":
        _pyarrow()  # before anything is read
        with durable.replacing(Path(out)) as path, path.open("wb") as binary:
            table = ParquetTable(binary, model, top_k, **options)
            try:
                yield table
                table.close()
            except BaseException:
                table.abandon()
                raise
        return
    with durable.replacing(Path(out)) as path, path.open("w", encoding="utf-8", newline="") as file:
        if suffix in TABLES:
            yield CsvTable(file, classes, TABLES[suffix], top_k, **options)
        else:
            yield Lines(file, classes, scored=scored or proba)


def check_table(out: Any, top_k: int | None, threshold: float | None) -> None:
    """Raise `SettingsError` if a table would need an unknown number of columns."""
    is_table = isinstance(out, str | os.PathLike) and Path(out).suffix.lower() in TABLES
    if is_table and threshold is not None and top_k is None:
        raise SettingsError(
            f"threshold needs top_k with {out}: the columns of a table are the same for every row",
            remedy=Remedy("say with {} how many labels a row has at most", Option("top_k")),
            setting="threshold",
        )


def _columns(batch: Batch) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Yield the columns behind ``row``, codes or numbers, and a mask of the cells to leave empty, or None."""
    assert batch.margins is not None
    for place in range(batch.codes.shape[1]):
        hidden = None if batch.above is None else place >= np.array(batch.above, np.int64)
        yield batch.codes[:, place], hidden
        yield batch.scores[:, place], hidden
        if batch.probabilities is not None:
            yield batch.probabilities[:, place], hidden
        if place == 0:
            yield batch.margins, np.isnan(batch.margins)


def _pyarrow() -> Sequence[Any]:
    with extra(ModelError, "Parquet needs pyarrow, which is not installed", "tables"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow, pyarrow.parquet
