"""Base class of the file readers."""

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

NO_NORMS = np.empty(0)  # for rows that go to a store, which computes norms from the values that it stores


class Features(NamedTuple):
    """Features of the input, known once all rows are read.

    `shift` is to be subtracted from all indices. `index_base` is the index of the first feature in LIBSVM
    text, None for other files. `encoding` records how table columns become features (docs/formats.md).
    """

    width: int
    shift: int = 0
    index_base: int | None = None
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None


@dataclass
class TableCounts(ReadCounts):
    """Counts for files other than LIBSVM text: also unlabelled rows, unknown and missing values."""

    unlabelled: int = 0
    unseen_values: int = 0
    missing_values: int = 0


def without_zeros(rows: Rows) -> Rows:
    """Return CSR rows without explicit zeros; return dense rows unchanged."""
    return rows if rows.dense or rows.data.all() else kept_values(rows, rows.data != 0)


class Reader(ABC):
    """Base class of file readers; a reader can be iterated once.

    Iteration yields ``(rows, numbers)``. Label codes refer to `labels`, or to the classes of ``like`` (-1 for
    unknown labels). Row numbers count all rows of the inputs, dropped rows included, from 0.

    Attributes
    ----------
    sources : list of InputFile
        Inputs that were read to their end.
    dense : bool
        Whether the rows are dense, as in a mostly non-zero matrix with all features.
    notes : list of str
        Remarks about the input for the user, complete once all rows are read.
    texts : list of str or None
        Text that was hashed for each row of the last batch; None or empty without text columns.
    has_strings : bool
        Whether labels were strings in a file with typed values; known once all rows are read.
    """

    counts: ReadCounts
    texts: list[str] | None = None
    has_strings = False
    may_be_dense = False
    dense: bool
    label_codes: LabelCodes

    def __init__(self, inputs: Sequence[str | Path], options: ReadOptions) -> None:
        self.inputs, self.options = list(inputs), options
        if not self.may_be_dense:
            self._set_dense(False)
        self.counts = TableCounts()
        self.sources: list[InputFile] = []
        self.notes: list[str] = []

    def _set_dense(self, dense: bool) -> None:
        """Set `dense`; raise `SettingsError` for float16 rows that are not dense."""
        self.dense = dense
        if self.options.dtype == "float16" and not dense:
            what = f"dense input with mostly non-zero values and at most {CHUNK_NNZ:,} features"
            raise SettingsError(f"dtype float16 is only for {what}; this input becomes CSR", setting="dtype")

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
        """Python type of the labels, int64 or str, once all rows are read."""
        are_strings = self.has_strings or self.options.labels_as == "text"
        return TEXT if are_strings else dtype_of_names(self.labels())

    @abstractmethod
    def features(self) -> Features:
        """Return the features, once all rows are read; raise `InputError` if they contradict options."""

    @property
    def expected_bytes(self) -> int | None:
        """Estimated bytes of values and indices; None if unknown."""
        return None

    @property
    def n_groups(self) -> int | None:
        """Number of row groups; None if rows are not grouped."""
        return None
