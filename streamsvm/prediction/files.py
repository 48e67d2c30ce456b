"""Write predictions, batch by batch, as text, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO

import numpy as np

from streamsvm.base import durable
from streamsvm.base.text import printable
from streamsvm.errors import ModelError, Remedy, extra, wrong_setting

TABLES = {".csv": ",", ".tsv": "\t", ".jsonl": "", ".parquet": ""}
_LINES = ("", ".txt")
_GROUP_BYTES = 2**24  # size of a Parquet row group in memory
_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff0d\uff20-]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


Pairs = list[tuple[str | int, float]]


class Batch(NamedTuple):
    """Predictions for n rows, with k classes each."""

    file: str | None
    names: np.ndarray  # (n,) int64, or str objects
    codes: np.ndarray  # (n, k) int64: predicted classes, best first; n_classes for unknown rows
    scores: np.ndarray  # (n, k) dtype of the model
    probabilities: np.ndarray | None  # (n, k) float64
    above: list[int] | None  # number of classes above the threshold per row; None if there is no threshold
    margins: np.ndarray | None  # (n,): score of the first class minus the largest other score, or NaN
    evidence: list[Pairs] | None = None  # features that contribute most to the margin of each row

    @property
    def values(self) -> np.ndarray:
        return self.scores if self.probabilities is None else self.probabilities

    def without_unused(self) -> Batch:
        """Drop ranks that no row uses, because the names of their classes would take a lot of memory."""
        if self.above is None:
            return self
        k = max(self.above, default=0)
        probabilities = None if self.probabilities is None else self.probabilities[:, :k]
        return self._replace(codes=self.codes[:, :k], scores=self.scores[:, :k], probabilities=probabilities)

    def columns(self) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
        """Return table columns by name, each with a mask of empty cells or None; labels are class codes."""
        result: dict[str, tuple[np.ndarray, np.ndarray | None]] = {}
        if self.file is not None:
            result["file"] = np.full(len(self.names), self.file, object), None
        result["row"] = self.names, None
        for rank in range(self.codes.shape[1]):
            ending = f"_{rank + 1}" if rank else ""
            hidden = None if self.above is None else rank >= np.array(self.above, np.int64)
            result[f"label{ending}"] = self.codes[:, rank], hidden
            result[f"score{ending}"] = self.scores[:, rank], hidden
            if self.probabilities is not None:
                result[f"probability{ending}"] = self.probabilities[:, rank], hidden
            if rank == 0 and self.margins is not None:
                result["margin"] = self.margins, np.isnan(self.margins)
        if self.evidence is not None:
            result["evidence"] = np.array(list(map(_evidence_text, self.evidence)), object), None
        return result


def _evidence_text(pairs: Pairs) -> str:
    return ", ".join(f"{printable(str(name))} ({share:.3g})" for name, share in pairs)


class Sink(Protocol):
    def write(self, batch: Batch) -> None: ...


class Lines:
    """Text output, one line per row: labels, with scores or probabilities if `scored`, and any evidence."""

    def __init__(self, file: TextIO, classes: np.ndarray, *, scored: bool) -> None:
        self._file, self._classes, self._scored = file, classes, scored

    def write(self, batch: Batch) -> None:
        batch = batch.without_unused()
        lines = self._classes[batch.codes].tolist()
        if batch.above is not None:
            lines = [row[:n] for row, n in zip(lines, batch.above, strict=True)]
        if self._scored:
            lines = [
                [f"{name}\t{value:.9g}" for name, value in zip(row, numbers, strict=False)]
                for row, numbers in zip(lines, batch.values.tolist(), strict=True)
            ]
        if batch.evidence is not None:
            lines = [[*row, _evidence_text(each)] for row, each in zip(lines, batch.evidence, strict=True)]
        self._file.writelines("\t".join(row) + "\n" for row in lines)


def as_cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run as a formula.

    A formula is text that is not a number and begins, after any apostrophes, with one of ``= + - @``, a tab
    or a line break (https://owasp.org/www-community/attacks/CSV_Injection).

    >>> [as_cell(name) for name in ("=1+1", "-1", "T-cell", "'@a")]
    ["'=1+1", '-1', 'T-cell', "''@a"]
    """
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


class CsvTable:
    """CSV table with the columns of the batch `empty`; `as_cell` escapes names that look like formulas."""

    def __init__(self, file: TextIO, classes: np.ndarray, empty: Batch, separator: str) -> None:
        self._rows = csv.writer(file, delimiter=separator, lineterminator="\n")
        self._quoted = csv.writer(file, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._rows.writerow(empty.columns())
        self._classes = np.array([as_cell(name) for name in classes.tolist()], object)

    def write(self, batch: Batch) -> None:
        columns: list[Any] = []
        for name, (values, hidden) in batch.columns().items():
            if name in ("file", "row", "evidence"):
                columns.append([as_cell(value) for value in values.tolist()])
                continue
            is_label = name.startswith("label")
            shown = self._classes[values] if is_label else values.astype(str).astype(object)
            if hidden is not None:
                shown[hidden] = ""
            columns.append(shown)
        has_returns = batch.names.dtype == object and "\r" in "".join(batch.names)  # csv would not quote "\r"
        (self._quoted if has_returns else self._rows).writerows(zip(*columns, strict=True))


class JsonLines:
    """Text output, one JSON object per row; empty cells are null."""

    def __init__(self, file: TextIO, classes: np.ndarray) -> None:
        self._file, self._classes = file, classes

    def write(self, batch: Batch) -> None:
        columns = {}
        for name, (values, hidden) in batch.columns().items():
            cells = (self._classes[values] if name.startswith("label") else values).astype(object)
            cells[np.zeros(len(cells), bool) if hidden is None else hidden] = None
            columns[name] = batch.evidence if name == "evidence" else cells.tolist()
        for row in zip(*columns.values(), strict=True):
            self._file.write(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n")


class ParquetTable:
    """Parquet file with the columns of the batch `empty`; call `close` at the end."""

    def __init__(self, file: Any, classes: np.ndarray, empty: Batch) -> None:
        self._file, self._empty = file, empty
        with extra(ModelError, "Parquet needs pyarrow, which is not installed", "tables"):
            import pyarrow
            import pyarrow.parquet
        self._arrow: Any = pyarrow
        self._classes = self._arrow.array(classes.tolist(), self._arrow.string())
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._bytes = 0

    def write(self, batch: Batch) -> None:
        if batch.file is not None:  # some inputs may have row names, others row numbers
            batch = batch._replace(names=np.array([str(name) for name in batch.names.tolist()], object))
        columns = {}
        for name, (values, hidden) in batch.columns().items():
            text = self._arrow.string() if values.dtype == object else None
            column = self._arrow.array(values, text, mask=hidden)
            columns[name] = self._classes.take(column) if name.startswith("label") else column
        table = self._arrow.table(columns)
        if self._writer is None:
            self._writer = self._arrow.parquet.ParquetWriter(self._file, table.schema, compression="zstd")
        self._waiting.append(table)
        self._bytes += table.nbytes
        if self._bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> None:
        if self._writer is None:
            self.write(self._empty)
        self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        if self._waiting:
            self._writer.write_table(self._arrow.concat_tables(self._waiting))
        self._waiting, self._bytes = [], 0


def is_table(out: Any) -> bool:
    return isinstance(out, str | os.PathLike) and Path(out).suffix.lower() in TABLES


def check_suffix(out: str | os.PathLike[str]) -> None:
    suffix = Path(out).suffix.lower()
    in_python = ', or use adata.obs["predicted"] = model.predict(adata) in Python' * (suffix == ".h5ad")
    if suffix not in (*TABLES, *_LINES):
        remedy = Remedy(f"use one of {', '.join(TABLES)} for a table, or .txt for lines{in_python}")
        raise wrong_setting("out", f"must not end in {suffix}", remedy)


@contextmanager
def open_output(
    out: str | os.PathLike[str], classes: np.ndarray, empty: Batch, *, scored: bool
) -> Iterator[Sink]:
    """Yield a sink of the kind that the suffix of `out` selects; the file replaces `out` at the end."""
    suffix = Path(out).suffix.lower()
    if suffix == ".parquet":
        with durable.replacing(Path(out)) as path, path.open("wb") as binary:
            table = ParquetTable(binary, classes, empty)
            try:
                yield table
                table.close()
            except BaseException:
                with suppress(Exception):
                    table.close()
                raise
        return
    with durable.replacing(Path(out)) as path, path.open("w", encoding="utf-8", newline="") as file:
        if suffix == ".jsonl":
            yield JsonLines(file, classes)
        elif suffix in TABLES:
            yield CsvTable(file, classes, empty, TABLES[suffix])
        else:
            yield Lines(file, classes, scored=scored)
