"""The state of reading text, which a run records to continue from: position, statistics, inputs read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from streamsvm.data.rows import Rows

MAX_FIRST_ERRORS = 5  # messages about skipped rows that are kept


class InputFile(NamedTuple):
    """An input that was read to its end: its name, and size and hash of its bytes as stored."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> InputFile:
        """Read a file, and return the facts about it."""
        with path.open("rb") as file:
            return cls(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


class LinePosition(NamedTuple):
    """A position between two lines of the inputs.

    Attributes
    ----------
    source : int
        Number of the input, from 0.
    text, line : int
        Bytes of decoded text and lines of this input before the position.
    row : int
        Rows of all inputs before the position.
    sha256 : str
        Hash of the text of this input before the position.
    """

    source: int = 0
    text: int = 0
    line: int = 0
    row: int = 0
    sha256: str = hashlib.sha256().hexdigest()


@dataclass
class ReadCounts:
    """Statistics of the text read so far.

    Attributes
    ----------
    rows : int
        Rows yielded.
    skipped, repaired : int
        Rows dropped by ``on_error`` "skip" or "fix"; rows sorted or summed by "fix".
    first_errors : list of str
        Messages about the first five rows skipped.
    nnz, explicit_zeros, empty_rows, qids : int
        Values kept; values dropped because they are zero in the dtype; rows left without one that is not 0;
        ``qid`` fields ignored.
    unseen_features, unseen_labels : int
        Values dropped because their feature is not among the given ones; rows whose label is not.
    bytes_read : int
        Bytes of all inputs as stored.
    """

    rows: int = 0
    skipped: int = 0
    repaired: int = 0
    first_errors: list[str] = field(default_factory=list)
    nnz: int = 0
    explicit_zeros: int = 0
    empty_rows: int = 0
    qids: int = 0
    unseen_features: int = 0
    unseen_labels: int = 0
    bytes_read: int = 0

    def add(self, rows: Rows) -> None:
        """Count rows that are yielded, and their values."""
        self.rows += rows.n_rows
        self.nnz += len(rows.data)
        filled = rows.matrix.any(axis=1) if rows.dense else np.diff(rows.indptr) > 0
        self.empty_rows += int(np.count_nonzero(~filled))

    def skip(self, message: str) -> None:
        """Count a row that is left out for the fault that `message` describes."""
        self.skipped += 1
        if len(self.first_errors) < MAX_FIRST_ERRORS:
            self.first_errors.append(message)


@dataclass
class ReadingState:
    """A position in the inputs, with the statistics of the text before it and the inputs that end there."""

    place: LinePosition = field(default_factory=LinePosition)
    counts: ReadCounts = field(default_factory=ReadCounts)
    sources: list[InputFile] = field(default_factory=list)
