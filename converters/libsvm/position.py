"""State of reading text, which a run records to resume: position, statistics, and inputs read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from streamsvm.data.rows import Rows

MAX_FIRST_ERRORS = 5  # kept messages about skipped rows


class InputFile(NamedTuple):
    """Input read to its end: its name, and the size and hash of its stored bytes."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> InputFile:
        """Read a file, and return its name, size and hash."""
        with path.open("rb") as file:
            return cls(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


class LinePosition(NamedTuple):
    """Position between two lines of the inputs.

    Attributes
    ----------
    source : int
        Number of the input, from 0.
    text, line, sha256
        Bytes and lines of decoded text of this input before the position, and the hash of this text.
    row : int
        Number of rows of all inputs before the position.
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
    skipped, repaired, first_errors : int, int, list of str
        Rows dropped by ``on_error`` "skip" or "fix"; rows sorted or summed by "fix"; messages about the first
        five skipped rows.
    nnz, explicit_zeros, empty_rows, qids : int
        Values kept; values that are zero in the dtype; rows without a non-zero value; ignored ``qid`` fields.
    unseen_features, unseen_labels : int
        Values dropped because their feature is unknown; rows with an unknown label.
    bytes_read : int
        Bytes of all inputs, before decompression.
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
        """Count yielded rows and their values."""
        self.rows += rows.n_rows
        self.nnz += len(rows.data)
        filled = rows.matrix.any(axis=1) if rows.dense else np.diff(rows.indptr) > 0
        self.empty_rows += int(np.count_nonzero(~filled))

    def skip(self, message: str) -> None:
        """Count a skipped row, whose fault is `message`."""
        self.skipped += 1
        if len(self.first_errors) < MAX_FIRST_ERRORS:
            self.first_errors.append(message)


@dataclass
class ReadingState:
    """Position in the inputs, with the statistics and the complete inputs before it."""

    place: LinePosition = field(default_factory=LinePosition)
    counts: ReadCounts = field(default_factory=ReadCounts)
    sources: list[InputFile] = field(default_factory=list)
