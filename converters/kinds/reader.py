"""Base class of the file readers, and the features and statistics that they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters.kinds.options import ReadOptions
from streamsvm_converters.label_codes import LabelCodes
from streamsvm_converters.libsvm.position import InputFile, ReadCounts

from streamsvm.base.format import CHUNK_NNZ
from streamsvm.base.label_values import TEXT, dtype_of_names
from streamsvm.data.rows import Rows, kept_values
from streamsvm.errors import SettingsError

NO_NORMS = np.empty(0)  # for rows that are written to a store, which computes norms from its own values


class Features(NamedTuple):
    """Features of the input, which are known once all rows are read.

    `width` is the number of features. `shift` must be subtracted from all indices. `index_base` is the index
    of the first feature in LIBSVM text, or None if the features are not numbered. `encoding` records how the
    columns of a table become features (see docs/formats.md).
    """

    width: int
    shift: int = 0
    index_base: int | None = None
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None


@dataclass
class TableCounts(ReadCounts):
    """Reading statistics with additional counts for files other than LIBSVM text."""

    unlabelled: int = 0
    unseen_values: int = 0
    missing_values: int = 0


def without_zeros(rows: Rows) -> Rows:
    """Return CSR rows without explicit zeros; return dense rows unchanged."""
    return rows if rows.dense or rows.data.all() else kept_values(rows, rows.data != 0)


class Reader(ABC):
    """Base class of file readers. A reader can be iterated over once.

    Iteration yields ``(rows, numbers)``. Label codes are positions in `labels`, or in the classes of
    ``options.like`` if it is set; -1 stands for an unknown label. Row numbers start at 0 and count all rows
    of the inputs, including dropped rows.
    """

    counts: ReadCounts
    texts: list[str] | None = None  # text of each row in the last batch, if n-grams of text are hashed
    has_strings = False  # whether the labels of a file with typed values are strings; known at its end
    may_be_dense = False
    dense: bool  # whether the rows are dense, like those of a matrix of mostly non-zero values
    label_codes: LabelCodes

    def __init__(self, inputs: Sequence[str | Path], options: ReadOptions) -> None:
        self.inputs, self.options = list(inputs), options
        if not self.may_be_dense:
            self._set_dense(False)
        self.counts = TableCounts()
        self.sources: list[InputFile] = []  # records of the inputs that were read to their end
        self.notes: list[str] = []  # remarks about the input for the user, complete once it is read

    def _set_dense(self, dense: bool) -> None:
        self.dense = dense
        if self.options.dtype == "float16" and not dense:
            what = f"dense, mostly non-zero input with at most {CHUNK_NNZ:,} features; this input becomes CSR"
            raise SettingsError(f"dtype float16 is only for {what}, so use float32", setting="dtype")

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]: ...

    def _label_codes(self, memory: int, missing: Set[str] = frozenset()) -> LabelCodes:
        like, unseen = self.options.like, self.options.unseen_label
        return LabelCodes(None if like is None else like.classes, unseen, memory, missing)

    def labels(self) -> list[str]:
        """Return the labels in the order of their codes, once all rows are read."""
        return self.label_codes.names()

    @property
    def label_dtype(self) -> str:
        """Type of the labels, int64 or str; known once all rows are read."""
        are_strings = self.has_strings or self.options.labels_as == "text"
        return TEXT if are_strings else dtype_of_names(self.labels())

    @abstractmethod
    def features(self) -> Features:
        """Return the features once all rows are read; raise `InputError` if they contradict the options."""

    @property
    def expected_bytes(self) -> int | None:
        """Estimated size of the values and indices in bytes, or None if it is unknown."""
        return None

    @property
    def n_groups(self) -> int | None:
        """Number of groups of rows, or None if rows are not grouped."""
        return None
