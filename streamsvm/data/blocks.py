"""Read the rows of a store in blocks, each of which fits in memory, for training or scoring."""

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
    """Blocks of consecutive rows of a store, which are read one at a time.

    Parameters
    ----------
    starts : ndarray of int64
        Block boundaries from `cut_blocks`. If there is only one block, it stays in memory.
    dtype : dtype
        Dtype of the computation, to which values are converted.
    cost : float
        Cost of a row with weight 1.
    class_weights : ndarray of float64, shape (n_classes,), optional
        Factor of the cost for each class.
    weighted : bool
        Whether to multiply the cost by the row weights of the store, if any.
    held_out : HeldOutPart, optional
        Part of the rows whose cost is set to 0.
    plan : Plan, optional
        Memory plan, which limits the size of a read; by default, each block is a single read.
    labelled : bool
        Whether to raise `StoreError` if a row has no known class.
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
        self._measures = False  # True if only held-out rows have a cost

    def __len__(self) -> int:
        return len(self.starts) - 1

    def _new_buffer(self) -> RowBuffer:
        nnz = self.store.nnz
        if self.plan is not None and len(self) > 1:
            nnz = min(self.plan.block_bytes // self.plan.nnz_bytes, nnz)
        return RowBuffer(int(np.diff(self.starts).max(initial=0)), nnz, self.store.n_labels)

    def read(self, number: int, buffer: RowBuffer | None = None) -> Rows:
        """Read block `number` into `buffer`, or into a new buffer."""
        return self.rows(int(self.starts[number]), int(self.starts[number + 1]), buffer)

    def each(self, starts: np.ndarray, numbers: Iterable[int]) -> Iterator[Rows]:
        """Yield the rows of the blocks `numbers`, whose boundaries are in `starts`.

        Two buffers alternate, so a block is overwritten when the second block after it is read.
        """
        for at, number in enumerate(numbers):
            yield self.rows(int(starts[number]), int(starts[number + 1]), self._buffers[at % 2])

    @property
    def first_starts(self) -> np.ndarray:
        """First row of each block in the first pass, followed by the number of rows."""
        if self.plan is None or len(self) > 1:
            return self.starts
        n_blocks = self.plan.first_blocks
        return self.starts[-1] * np.arange(n_blocks + 1) // n_blocks

    def rows(self, start: int, stop: int, buffer: RowBuffer | None = None) -> Rows:
        """Read the rows ``start:stop``, which lie in one block, into `buffer` or into a new buffer.

        If there is only one block, it stays in memory, and only the rows before `stop` that are not yet in
        memory are read.
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
        """Divide the rows ``start:stop`` into reads as large as the plan allows; return their boundaries."""
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
                "the store's classes; the store can be evaluated, but not used for training"
            )
        numbers = NO_NUMBERS if self.held_out is None else rows.numbers
        rows = rows._replace(numbers=numbers, hold_out_by=NO_NUMBERS)
        return rows._replace(data=self._cast(rows, start), cost=self._costs(rows))

    def to_measure(self) -> Blocks:
        """Return a copy in which held-out rows with positive cost have cost 1, and all other rows cost 0."""
        blocks = copy.copy(self)
        blocks._measures = True
        return blocks

    def without_values(self, start: int, stop: int) -> Rows:
        """Read the rows ``start:stop`` without their values, which other processes read."""
        columns = self.store.columns(np.array([[start, stop]]), {"labels", "cost", "qid", "numbers"})
        none = np.zeros(0)
        rows = Rows(none, np.zeros(0, np.int32), np.zeros(1, np.int64), none, none)._replace(**columns)
        return self._without_held_out(rows._replace(cost=self._costs(rows)))

    def _without_held_out(self, rows: Rows) -> Rows:
        if self.held_out is None:
            return rows
        is_held_out = self.held_out.has(rows.numbers)
        if self._measures:
            return rows._replace(cost=(is_held_out & (rows.cost > 0)).astype(np.float64))
        return rows._replace(cost=np.where(is_held_out, 0.0, rows.cost))

    def _costs(self, rows: Rows) -> np.ndarray:
        cost = np.full(rows.n_rows, self.cost)
        if self.weighted and len(rows.cost):
            cost *= rows.cost
        if self.class_weights is not None:
            cost *= self.class_weights[rows.labels]
        return cost

    def _cast(self, rows: Rows, first: int) -> np.ndarray:
        """Convert values to `self.dtype`; raise `StoreError` on overflow. Row 0 has the number `first`."""
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
        """Return an empty batch of rows, with the same dtypes as those of `read`."""
        indices = None if self.store.dense_rows else np.zeros(0, self.store.index_dtype)
        labels = np.zeros(0, LABEL_DTYPE)
        start = np.zeros(1, np.int64)
        rows = Rows(np.zeros(0, self.dtype), indices, start, labels, np.zeros(0), np.zeros(0))
        return rows._replace(label_indptr=start) if self.store.multilabel else rows
