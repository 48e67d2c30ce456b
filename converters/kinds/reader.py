"""Base class of the readers of files, one for each kind of file."""

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

NO_NORMS = np.empty(0)  # of rows for a store, which computes the norms of the values that it stores


class Features(NamedTuple):
    """Features of the rows of files, known once all are read.

    Attributes
    ----------
    width : int
    shift : int
        Number to subtract from all indices.
    index_base : int or None
        The number of the first feature in LIBSVM text; None if features have no numbers there.
    names : sequence of str or None
    encoding : dict or None
        How columns of a table became features (docs/formats.md).
    """

    width: int
    shift: int = 0
    index_base: int | None = None
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None


@dataclass
class TableCounts(ReadCounts):
    """Statistics of the files read, of other kinds than LIBSVM text.

    Attributes
    ----------
    unlabelled : int
        Rows left out because they have no label.
    unseen_values : int
        Values of categories that are not among the known ones.
    missing_values : int
        Missing numbers that were replaced.
    """

    unlabelled: int = 0
    unseen_values: int = 0
    missing_values: int = 0


def without_zeros(rows: Rows) -> Rows:
    """Return CSR rows without their explicit zeros; dense rows as they are."""
    return rows if rows.dense or rows.data.all() else kept_values(rows, rows.data != 0)


class Reader(ABC):
    """Base class of the readers of files of one kind, which are iterated once.

    Iterating yields ``(rows, numbers)``: label codes are those of `labels`, or of the classes of ``like``
    (-1 for others), and the numbers count the rows of all inputs from 0, those left out included.

    Attributes
    ----------
    counts : ReadCounts
    sources : list of InputFile
        The inputs that were read to their end.
    dense : bool
        Whether the rows are dense: those of dense matrices whose values are mostly not 0, and that have all
        features.
    notes : list of str
        Messages to the user about the reading; complete when all rows are read.
    label_codes : LabelCodes
    texts : list of str or None
        The texts that the rows yielded last are hashed from; None or empty if rows are not made of text.
    has_texts : bool
        Whether labels were stored as text, in a file that tells texts from numbers; known as `labels` are.
    """

    counts: ReadCounts
    texts: list[str] | None = None
    has_texts = False
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
        """Set `dense`; raise `SettingsError` if the rows are not dense, and float16 is for dense rows."""
        self.dense = dense
        if self.options.dtype == "float16" and not dense:
            what = f"dense input, mostly not 0, of at most {CHUNK_NNZ:,} features"
            raise SettingsError(f"dtype float16 is for {what}; this becomes CSR", setting="dtype")

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[Rows, np.ndarray]]: ...

    def _label_codes(self, memory: int, missing: Set[str] = frozenset()) -> LabelCodes:
        """Return the codes of labels: those of earlier data, or of all that come."""
        like, unseen = self.options.like, self.options.unseen_label
        return LabelCodes(None if like is None else like.classes, unseen, memory, missing)

    def labels(self) -> list[str]:
        """Return the labels in the order of their codes, once all rows are read."""
        return self.label_codes.texts()

    @property
    def label_dtype(self) -> str:
        """Type of the labels in Python, once all rows are read: int64 or str."""
        are_texts = self.has_texts or self.options.labels_as == "text"
        return TEXT if are_texts else dtype_of_names(self.labels())

    @abstractmethod
    def features(self) -> Features:
        """Return the features, once all rows are read; raise `InputError` if they do not fit the options."""

    @property
    def expected_bytes(self) -> int | None:
        """Estimate of the bytes that values and indices take; None if it is unknown."""
        return None

    @property
    def n_groups(self) -> int | None:
        """Number of groups of rows; None if rows are not grouped."""
        return None
