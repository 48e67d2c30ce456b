"""Blocks of a store, read to train on or to score."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.format import LABEL_DTYPE
from streamsvm.data.checks import first_false, row_of
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.memory_plan import Plan
from streamsvm.data.names import FeatureMatch
from streamsvm.data.row_buffer import RowBuffer
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import Option, Remedy, StoreError

if TYPE_CHECKING:
    from streamsvm.store import Store


@dataclasses.dataclass(eq=False, repr=False)
class Blocks:
    """Blocks of successive rows of a store, which are read one at a time.

    Parameters
    ----------
    starts : ndarray of int64
        As `cut_blocks` gives them. A single block stays in memory.
    dtype : dtype
        Of the computation; values are converted to it.
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
    plan : Plan, optional
        The memory plan, which says how much is read at a time; by default a block is read at once.
    labelled : bool
        True to raise `StoreError` if a row has no known class.
    """

    store: Store
    starts: np.ndarray
    dtype: np.dtype
    cost: float = 1.0
    class_weights: np.ndarray | None = None
    weighted: bool = False
    match: FeatureMatch = FeatureMatch()  # noqa: RUF009
    held_out: HeldOutPart | None = None
    plan: Plan | None = None
    labelled: bool = False

    def __post_init__(self) -> None:
        self._buffers = self._new_buffer(), self._new_buffer()
        self._measures = False  # True if only the held-out rows count

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _new_buffer(self) -> RowBuffer:
        nnz = self.store.nnz
        if self.plan is not None and len(self) > 1:
            nnz = min(self.plan.block_bytes // self.plan.nnz_bytes, nnz)
        return RowBuffer(int(np.diff(self.starts).max(initial=0)), nnz, self.store.n_labels)

    def read(self, number: int, buffer: RowBuffer | None = None) -> Rows:
        """Return the rows of a block, read into `buffer`; held-out rows have the cost 0."""
        return self.rows(int(self.starts[number]), int(self.starts[number + 1]), buffer)

    def each(self, starts: np.ndarray, numbers: Iterable[int]) -> Iterator[Rows]:
        """Yield the rows of blocks that begin at `starts`, which are valid until the block after the next."""
        for at, number in enumerate(numbers):
            yield self.rows(int(starts[number]), int(starts[number + 1]), self._buffers[at % 2])

    @property
    def first_starts(self) -> np.ndarray:
        """First row of each block of the first pass, and the number of rows."""
        if self.plan is None or len(self) > 1:
            return self.starts
        n_blocks = self.plan.first_blocks
        return self.starts[-1] * np.arange(n_blocks + 1) // n_blocks

    def rows(self, start: int, stop: int, buffer: RowBuffer | None = None) -> Rows:
        """Return the rows of a block, or fewer if there is only one, read into `buffer`.

        A single block is read up to `stop`, and its rows stay in memory.
        """
        if len(self) == 1:
            buffer, first = self._buffers[0], 0
        else:
            buffer, first = buffer or self._new_buffer(), start
            buffer.begin(stop - start)
        cuts = self._cuts(first + buffer.n_rows, stop)
        for begin, end in itertools.pairwise(cuts):
            buffer.append(self._read(begin, end))
        return self._without_held_out(buffer.span(start - first, stop - first))

    def _cuts(self, start: int, stop: int) -> list[int]:
        """Return where to cut rows so that a part is as much as the plan allows to read at a time."""
        if (plan := self.plan) is None or start >= stop:
            return [start, stop] if start < stop else []
        row_bytes = plan.row_bytes + plan.label_bytes * -(-self.store.n_labels // self.store.n_rows)
        ends = plan.nnz_bytes * self.store.indptr(start, stop) + row_bytes * np.arange(stop - start + 1)
        cuts = [0]
        while cuts[-1] < stop - start:
            end = int(np.searchsorted(ends, ends[cuts[-1]] + plan.read_bytes, "right")) - 1
            cuts.append(max(end, cuts[-1] + 1))
        return [start + cut for cut in cuts]

    def _read(self, start: int, stop: int) -> Rows:
        rows = self.store.rows(start, stop)
        if self.labelled and not len(rows.label_indptr) and rows.labels.min(initial=0) < 0:
            raise StoreError(
                f"{self.store.path}: row {start + int(np.argmax(rows.labels < 0)) + 1} has a label outside "
                "the store's classes: such a store serves to evaluate, not to train"
            )
        numbers = NO_NUMBERS if self.held_out is None else rows.numbers
        rows = rows._replace(numbers=numbers, hold_out_by=NO_NUMBERS)
        return rows._replace(data=self._cast(rows, start), cost=self._costs(rows))

    def to_measure(self) -> Blocks:
        """Return blocks of the same rows in which the held-out rows have the cost 1, and all others 0."""
        blocks = copy.copy(self)
        blocks._measures = True
        return blocks

    def without_values(self, start: int, stop: int) -> Rows:
        """Return the rows of a block, which other processes read, with their labels and costs alone."""
        columns = self.store.columns(np.array([[start, stop]]), {"labels", "cost", "qid", "numbers"})
        none = np.zeros(0)
        rows = Rows(none, np.zeros(0, np.int32), np.zeros(1, np.int64), none, none)._replace(**columns)
        return self._without_held_out(rows._replace(cost=self._costs(rows)))

    def _without_held_out(self, rows: Rows) -> Rows:
        """Return rows with the cost 0 if they are held out."""
        if self.held_out is None:
            return rows
        is_held_out = self.held_out.has(rows.numbers)
        if self._measures:
            return rows._replace(cost=(is_held_out & (rows.cost > 0)).astype(np.float64))
        return rows._replace(cost=np.where(is_held_out, 0.0, rows.cost))

    def _costs(self, rows: Rows) -> np.ndarray:
        """Return C times the weights of the rows and of their classes."""
        cost = np.full(rows.n_rows, self.cost)
        if self.weighted and len(rows.cost):
            cost *= rows.cost
        if self.class_weights is not None:
            cost *= self.class_weights[rows.labels]
        return cost

    def _cast(self, rows: Rows, first: int) -> np.ndarray:
        """Return the values in `self.dtype`; raise `StoreError` if one overflows. Row 0 is number `first`."""
        with np.errstate(over="ignore", invalid="ignore"):
            data = rows.data.astype(self.dtype, copy=False)
        if data is not rows.data and (at := first_false(np.isfinite(data))) is not None:
            row = first + row_of(rows.indptr, at) + 1
            raise StoreError(
                f"{self.store.path}: row {row}: the value {rows.data[at]:g} is too large for {self.dtype}",
                remedy=Remedy("scale the data, or train with {}", Option("dtype", "float64")),
            )
        return data

    def empty(self) -> Rows:
        """Return no rows, in the dtypes of those that `read` returns."""
        indices = None if self.store.dense_rows else np.zeros(0, self.store.index_dtype)
        labels = np.zeros(0, LABEL_DTYPE)
        start = np.zeros(1, np.int64)
        rows = Rows(np.zeros(0, self.dtype), indices, start, labels, np.zeros(0), np.zeros(0))
        return rows._replace(label_indptr=start) if self.store.multilabel else rows
