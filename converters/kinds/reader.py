"""What a reader of files gives to a conversion."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from streamsvm_converters.kinds.features import Features
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.libsvm.position import Counts, Source

from streamsvm.base.label_values import TEXT, dtype_of_names
from streamsvm.data.rows import Rows


@dataclass
class TableCounts(Counts):
    """Statistics of what is not LIBSVM text.

    Attributes
    ----------
    unlabelled : int
        Rows left out because they have no label.
    unseen_values : int
        Values of categories that are not among the known ones.
    missing_values : int
        Missing numbers that others took the place of.
    """

    unlabelled: int = 0
    unseen_values: int = 0
    missing_values: int = 0


@dataclass
class Reader(ABC):
    """Rows of files of one kind, iterated once.

    Iterating yields ``(rows, numbers)``: the rows' label codes are of `labels`, or of the classes of ``like``
    (-1 for others), and the numbers count the rows of all inputs from 0, left out ones included.

    Attributes
    ----------
    counts : Counts
    sources : list of Source
        The inputs that were read to their end.
    notes : list of str
        What a user should know of the reading; complete when all rows are read.
    decompress_seconds : float
    """

    inputs: list[str | Path]
    options: ReadOptions
    counts: Counts = field(default_factory=TableCounts)
    sources: list[Source] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    decompress_seconds = 0.0

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]: ...

    @abstractmethod
    def labels(self) -> list[str]:
        """Return the labels in the order of their codes, once all rows are read."""

    @property
    def label_dtype(self) -> str:
        """The type of the labels in Python, once all rows are read: int64 or str."""
        return TEXT if self.options.labels_as == "text" else dtype_of_names(self.labels())

    @abstractmethod
    def features(self) -> Features:
        """Return what the features are, once all rows are read; raises `InputError` if they do not fit."""

    @property
    def expected_bytes(self) -> int | None:
        """About how many bytes of values and indices the rows take; None if that is unknown."""
        return None

    @property
    def n_groups(self) -> int | None:
        """How many groups the rows belong to, if they do."""
        return None
