"""Readers whose inputs several processes can read in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters.kinds.features import Features
from streamsvm_converters.kinds.reader import Reader
from streamsvm_converters.label_codes import LabelCodes
from streamsvm_converters.libsvm.position import Counts, InputPart

from streamsvm.format import LABEL_DTYPE, UNSEEN_LABEL

# (name, function, items) -> what the function returns for each item, in their order, wherever it is called.
InOrder = Callable[[str, Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]


class FoundInPart(NamedTuple):
    """What the reader of a part knows at its end.

    Attributes
    ----------
    n_rows : int
        Of the input, those that were left out included.
    counts : Counts
    labels : list of str
        In the order of their codes; empty if the classes are known.
    own : object
        What its kind of file needs besides.
    """

    n_rows: int
    counts: Counts
    labels: list[str]
    own: Any = None


class PartedReader(Reader):
    """A reader of all inputs or, with ``options.part``, of a part of one.

    Other processes read the parts that `parts` returns, and their `found` goes to `add_part`, in their order.
    All else is then as if this reader had been iterated.
    """

    _labels_of_parts: LabelCodes | None = None

    @abstractmethod
    def parts(self, wanted: int, in_order: InOrder) -> tuple[list[InputPart], int]:
        """Return about so many parts, and the rows of all inputs; `in_order` lets others work for it."""

    def known_features(self) -> Features | None:
        """Return what the features are, if a part does not say it."""
        return None

    @abstractmethod
    def found(self) -> FoundInPart:
        """Return what is known of the part that was read."""

    def add_part(self, part: InputPart, found: FoundInPart) -> np.ndarray | None:
        """Count the next part, which another process has read.

        Returns
        -------
        ndarray of int32, or None
            The code of each of its codes of labels, and -1 at the end; None if they are the same.

        Raises
        ------
        PlanError
            If what is known of all parts does not fit in memory.
        """
        self.counts.add(found.counts)
        if self.options.like is not None:
            return None
        if self._labels_of_parts is None:
            self._labels_of_parts = LabelCodes(None, "error", self.options.memory // 2)
        number = np.arange(len(found.labels))
        codes = self._labels_of_parts.encode(found.labels, number, lambda row: part.path)
        if np.array_equal(codes, number):
            return None
        return np.append(codes, UNSEEN_LABEL).astype(LABEL_DTYPE)

    def check(self) -> None:
        """Raise `InputError` for what only all parts together show to be wrong."""
