"""Where reading has got to, and what has been read so far: what a run records to continue there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

from streamsvm.base.decode import Count


class Source(NamedTuple):
    """An input that was read to its end: its name, and size and hash of its bytes as stored."""

    name: str
    size: Count
    sha256: str


class Place(NamedTuple):
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

    source: Count = 0
    text: Count = 0
    line: Count = 0
    row: Count = 0
    sha256: str = hashlib.sha256().hexdigest()


@dataclass
class Counts:
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
        Values kept; values dropped because they are zero in the dtype; rows left without a value;
        ``qid`` fields ignored.
    unseen_features, unseen_labels : int
        Values dropped because their feature is not among the given ones; rows whose label is not.
    bytes_read : int
        Bytes of all inputs as stored.
    """

    rows: Count = 0
    skipped: Count = 0
    repaired: Count = 0
    first_errors: list[str] = field(default_factory=list)
    nnz: Count = 0
    explicit_zeros: Count = 0
    empty_rows: Count = 0
    qids: Count = 0
    unseen_features: Count = 0
    unseen_labels: Count = 0
    bytes_read: Count = 0


@dataclass
class Position:
    """A place in the inputs, with the statistics and the inputs that end before it."""

    place: Place = field(default_factory=Place)
    counts: Counts = field(default_factory=Counts)
    sources: list[Source] = field(default_factory=list)
