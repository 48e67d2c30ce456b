"""Blocks of a store, read to train on or to score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.label_sets import recode
from streamsvm.data.names import FeatureMatch
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import Option, Remedy, StoreError

if TYPE_CHECKING:
    from streamsvm.store import Store


class Blocks:
    """Blocks of successive rows of a store, which are read one at a time.

    Parameters
    ----------
    starts : ndarray of int64
        As `cut_blocks` gives them.
    dtype : dtype
        Of the computation; values are converted to it.
    classes : sequence of str, optional
        Give label codes in this order of classes instead of the store's own; -1 for others.
    cost : float
        The cost of each row whose weights are 1.
    class_weights : ndarray of float64, shape (k,), optional
        Factor of the cost of each row, by its class.
    weighted : bool
        True to multiply the cost by the weights of the rows, if the store has any.
    match : FeatureMatch
        Match of the features of the data with those of a model.
    held_out : HeldOutPart, optional
        Rows whose cost is 0.

    Attributes
    ----------
    shuffled : bool
        Whether the rows are known to be in random order.
    """

    def __init__(
        self,
        store: Store,
        starts: np.ndarray,
        dtype: np.dtype,
        classes: Sequence[str] | None = None,
        cost: float = 1.0,
        class_weights: np.ndarray | None = None,
        weighted: bool = False,
        match: FeatureMatch = FeatureMatch(),  # noqa: B008
        held_out: HeldOutPart | None = None,
    ) -> None:
        self.match = match
        self._held_out = held_out
        self._class_weights = class_weights
        self._weighted = weighted
        self.store = store
        self._cost = cost
        self.starts = starts
        self.shuffled = store.shuffled
        self.dtype = dtype
        self._only: Rows | None = None  # the rows, if all are one block: read once
        self._codes = None
        if classes is not None and tuple(classes) != tuple(store.classes):
            code = {label: c for c, label in enumerate(classes)}
            self._codes = np.array(
                [*(code.get(label, UNSEEN_LABEL) for label in store.classes), UNSEEN_LABEL], LABEL_DTYPE
            )  # the last entry serves code -1

    def __len__(self) -> int:
        return len(self.starts) - 1

    def read(self, block: int) -> Rows:
        """Return the rows of a block; held-out rows have the cost 0."""
        rows = self.read_all(block)
        if self._held_out is None:
            return rows
        held = self._held_out.has(self.numbers(block), rows.qid)
        return rows._replace(cost=np.where(held, 0.0, rows.cost))

    def numbers(self, block: int) -> np.ndarray:
        """Return the numbers of a block's rows in the data as given."""
        return self.store.numbers(int(self.starts[block]), int(self.starts[block + 1]))

    def read_all(self, block: int) -> Rows:
        """Return the rows of a block; held-out rows keep their cost."""
        if self._only is not None:
            return self._only
        rows = self.store.rows(int(self.starts[block]), int(self.starts[block + 1]))
        if self._codes is not None:
            rows = recode(rows, self._codes)
        first = int(self.starts[block])
        rows = rows._replace(data=self._cast(rows, first), cost=self._costs(rows), numbers=NO_NUMBERS)
        if len(self) == 1:
            self._only = rows
        return rows

    def _costs(self, rows: Rows) -> np.ndarray:
        """Return C times the weights of the rows and of their classes."""
        cost = np.full(rows.n_rows, self._cost)
        if self._weighted and len(rows.cost):
            cost *= rows.cost
        if self._class_weights is not None:
            cost *= self._class_weights[rows.labels]
        return cost

    def _cast(self, rows: Rows, first: int) -> np.ndarray:
        """Return the values in `self.dtype`; raise `StoreError` if one overflows. Row 0 is number `first`."""
        with np.errstate(over="ignore"):
            data = rows.data.astype(self.dtype, copy=False)
        if data is not rows.data and not np.isfinite(data).all():
            at = int(np.argmin(np.isfinite(data)))
            row = first + int(np.searchsorted(rows.indptr, at, "right")) - 1
            raise StoreError(
                f"{self.store.path}: row {row}: the value {rows.data[at]:g} is too large for {self.dtype}",
                remedy=Remedy("scale the data, or train with {}", Option("dtype", "float64")),
            )
        return data

    def empty(self) -> Rows:
        """Return no rows, in the dtypes of those that `read` returns."""
        indices, labels = np.zeros(0, self.store.index_dtype), np.zeros(0, LABEL_DTYPE)
        start = np.zeros(1, np.int64)
        rows = Rows(np.zeros(0, self.dtype), indices, start, labels, np.zeros(0), np.zeros(0))
        return rows._replace(label_indptr=start) if self.store.multilabel else rows

    def read_to_train(self, block: int) -> Rows:
        """Return the rows of a block as `read` does; raise `StoreError` if one has no known class."""
        rows = self.read(block)
        if rows.n_rows and not len(rows.label_indptr) and rows.labels.min() < 0:
            row = int(self.starts[block]) + int(np.argmax(rows.labels < 0))
            raise StoreError(
                f"{self.store.path}: row {row} has a label outside the store's classes: such a store "
                "serves to evaluate, not to train"
            )
        return rows
