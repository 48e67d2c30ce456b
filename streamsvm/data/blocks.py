"""Blocks of a store, read to train on or to score."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.format import LABEL_DTYPE
from streamsvm.data.checks import first_false, row_of
from streamsvm.data.groups import group_starts
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.data.memory_plan import Plan, cut_pieces
from streamsvm.data.names import FeatureMatch
from streamsvm.data.row_space import RowSpace
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import Option, Remedy, StoreError

if TYPE_CHECKING:
    from streamsvm.store import Store


@dataclasses.dataclass(eq=False, repr=False)
class Blocks:
    """Blocks of successive rows of a store, which are read one at a time, in pieces.

    Parameters
    ----------
    starts : ndarray of int64
        As `cut_blocks` gives them.
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
        The memory plan, which says how large pieces are; by default blocks are read in one.

    Attributes
    ----------
    shuffled : bool
        Whether the rows are known to be in random order.
    in_pieces : bool
        True if the rows of a block are to be visited piece by piece.
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

    def __post_init__(self) -> None:
        plan = self.plan
        self.shuffled = self.store.shuffled
        self._has_pieces = plan is not None and plan.piece_bytes < min(plan.largest_block, plan.block_bytes)
        self.in_pieces = plan is not None and plan.as_they_arrive and self._has_pieces
        self._only: Rows | None = None  # the rows, if all are one block: read once
        self._measures = False  # True if only the held-out rows count

    def __len__(self) -> int:
        return len(self.starts) - 1

    def space(self) -> RowSpace:
        """Return arrays that any of the blocks fits into."""
        nnz = self.store.nnz
        if self.plan is not None and len(self) > 1:
            nnz = min(self.plan.block_bytes // self.plan.nnz_bytes, nnz)
        return RowSpace(int(np.diff(self.starts).max()), nnz, self.store.n_labels)

    def read(self, block: int, space: RowSpace | None = None) -> Rows:
        """Return the rows of a block; held-out rows have the cost 0. They may be put into a `space`."""
        return self._without_held_out(self.read_all(block, space))

    def read_all(self, block: int, space: RowSpace | None = None) -> Rows:
        """Return the rows of a block; held-out rows keep their cost, and all their numbers."""
        if self._only is not None:
            return self._only
        n_rows = int(self.starts[block + 1] - self.starts[block])
        for begin, rows in self._pieces(block):
            if rows.n_rows == n_rows:
                break
            if begin == 0:
                space = space or self.space()
                space.begin(rows, n_rows)
            assert space is not None
            space.append(rows)
            rows = space.rows()
        self.keep(rows)
        return rows

    def keep(self, rows: Rows) -> None:
        """Keep the rows of a block, with all costs, if it is the only one."""
        if len(self) == 1:
            self._only = rows

    def pieces_to_train(self, block: int) -> Iterator[tuple[int, Rows, np.ndarray]]:
        """Yield the pieces of a block: where it begins in the block, its rows to train on, and all costs."""
        for begin, rows in self._pieces(block):
            first = int(self.starts[block]) + begin
            yield begin, self._checked(self._without_held_out(rows), first), rows.cost

    def _pieces(self, block: int) -> Iterator[tuple[int, Rows]]:
        """Read a block piece by piece: yield where each begins in the block, and its rows."""
        start, cuts = self._cuts(block)
        for begin, end in itertools.pairwise(cuts):
            yield begin, self._read(start + begin, start + end)

    def _cuts(self, block: int) -> tuple[int, list[int]]:
        """Return the first row of a block, and where its pieces begin in it, and where it ends."""
        start, stop = int(self.starts[block]), int(self.starts[block + 1])
        if self.plan is None or not self._has_pieces:
            return start, [0, stop - start]
        rows, indptr = np.arange(stop - start + 1), self.store.indptr(start, stop)
        if self.store.grouped:
            rows = group_starts(self.store.groups(start, stop))
        n_labels = self.store.n_labels * (stop - start) // self.store.n_rows
        return start, cut_pieces(self.plan, rows, indptr[rows], n_labels)

    def _read(self, start: int, stop: int) -> Rows:
        rows = self.store.rows(start, stop)
        numbers = NO_NUMBERS if self.held_out is None else rows.numbers
        return rows._replace(data=self._cast(rows, start), cost=self._costs(rows), numbers=numbers)

    def to_score(self) -> Blocks:
        """Return blocks of the same rows that are as small as pieces, unless they are kept in memory."""
        if self._only is not None or not self._has_pieces:
            return self
        pieces = copy.copy(self)
        begins = (start + np.array(cuts)[:-1] for start, cuts in map(self._cuts, range(len(self))))
        pieces.starts = np.concatenate([*begins, self.starts[-1:]])
        return pieces

    def to_measure(self) -> Blocks:
        """Return blocks of the same rows in which the held-out rows have the cost 1, and all others 0."""
        blocks = copy.copy(self)
        blocks._measures = True
        return blocks

    def unread(self, block: int) -> Rows:
        """Return as many rows as a block has, in place of rows that other processes read."""
        labels, none = np.full(int(self.starts[block + 1] - self.starts[block]), -1, LABEL_DTYPE), np.zeros(0)
        return Rows(none, np.zeros(0, np.int32), np.zeros(1, np.int64), labels, none)

    def without_values(self, block: int) -> Rows:
        """Return the rows of a block with their labels and costs alone."""
        start, stop = int(self.starts[block]), int(self.starts[block + 1])
        columns = self.store.columns(np.array([[start, stop]]), {"labels", "cost", "qid", "numbers"})
        rows = self.unread(block)._replace(**columns)
        return self._without_held_out(rows._replace(cost=self._costs(rows)))

    def _without_held_out(self, rows: Rows) -> Rows:
        """Return rows with the cost 0 if they are held out."""
        if self.held_out is None:
            return rows
        is_held_out = self.held_out.has(rows.numbers, rows.qid)
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
        with np.errstate(over="ignore"):
            data = rows.data.astype(self.dtype, copy=False)
        if data is not rows.data and (at := first_false(np.isfinite(data))) is not None:
            row = first + row_of(rows.indptr, at)
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

    def read_to_train(self, block: int, space: RowSpace | None = None) -> Rows:
        """Return the rows of a block as `read` does; raise `StoreError` if one has no known class."""
        return self._checked(self.read(block, space), int(self.starts[block]))

    def _checked(self, rows: Rows, first: int) -> Rows:
        if rows.n_rows and not len(rows.label_indptr) and rows.labels.min() < 0:
            row = first + int(np.argmax(rows.labels < 0))
            raise StoreError(
                f"{self.store.path}: row {row} has a label outside the store's classes: such a store "
                "serves to evaluate, not to train"
            )
        return rows
