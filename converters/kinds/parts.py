"""Readers whose inputs several processes can read in parts."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from streamsvm_converters.kinds.features import Features
from streamsvm_converters.kinds.reader import Reader
from streamsvm_converters.label_codes import BYTES_PER_LABEL
from streamsvm_converters.libsvm.position import Counts, InputPart

from streamsvm.errors import Option, PlanError, Remedy
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

    _code_of: dict[str, int] | None = None  # of labels that were found in parts
    _label_bytes = 0

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
        if self._code_of is None:
            self._code_of = {}
        known = len(self._code_of)
        codes = [self._code_of.setdefault(label, len(self._code_of)) for label in found.labels]
        new = itertools.islice(self._code_of, known, None)
        self._label_bytes += sum(BYTES_PER_LABEL + len(label) for label in new)
        if 2 * self._label_bytes > self.options.memory:
            raise PlanError(
                f"{part.path}: {len(self._code_of):,} different labels so far, too many for the memory limit",
                remedy=Remedy("check that they are classes; if they are, raise {}", Option("memory")),
            )
        if codes == list(range(len(codes))):
            return None
        return np.array([*codes, UNSEEN_LABEL], LABEL_DTYPE)

    def check(self) -> None:
        """Raise `InputError` for what only all parts together show to be wrong."""
