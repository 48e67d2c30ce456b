"""State of a text reader, recorded so that a run can resume: position, statistics, and inputs read."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from streamsvm.data.rows import Rows

MAX_FIRST_ERRORS = 5


class InputFile(NamedTuple):
    """Record of an input that was read to its end: its name, and the size and hash of the stored bytes."""

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> InputFile:
        """Read a file, and return its record."""
        with path.open("rb") as file:
            return cls(path.name, path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


class LinePosition(NamedTuple):
    """Position between two lines of input number `source`, after `row` rows of all inputs.

    The decoded text of this input before the position has `text` bytes, `line` lines and the hash `sha256`.
    """

    source: int = 0
    text: int = 0
    line: int = 0
    row: int = 0
    sha256: str = hashlib.sha256().hexdigest()


@dataclass
class ReadCounts:
    """Statistics of the text read so far, as documented for `ConvertReport`."""

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
        self.rows += rows.n_rows
        self.nnz += len(rows.data)
        filled = rows.matrix.any(axis=1) if rows.dense else np.diff(rows.indptr) > 0
        self.empty_rows += int(np.count_nonzero(~filled))

    def skip(self, message: str) -> None:
        """Count a skipped row; keep `message` if fewer than `MAX_FIRST_ERRORS` are kept."""
        self.skipped += 1
        if len(self.first_errors) < MAX_FIRST_ERRORS:
            self.first_errors.append(message)


@dataclass
class ReadingState:
    """Position in the inputs, reading statistics, and records of the inputs that were read to their end."""

    place: LinePosition = field(default_factory=LinePosition)
    counts: ReadCounts = field(default_factory=ReadCounts)
    sources: list[InputFile] = field(default_factory=list)
