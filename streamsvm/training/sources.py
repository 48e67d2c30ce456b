"""Source of the blocks of data that can be read again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.groups import group_starts, in_group_order
from streamsvm.data.row_space import RowSpace
from streamsvm.data.rows import Rows
from streamsvm.kernels.random import local_permutation, permutation
from streamsvm.run.manifest import StreamPosition
from streamsvm.settings.fit import CLASSES, Settings
from streamsvm.training.inner_passes import READ_AHEAD, READ_BEFORE

if TYPE_CHECKING:
    from streamsvm.data.blocks import Blocks

_BLOCK_ORDER = -1  # takes the place of a block's number where the order of the blocks is drawn


@dataclasses.dataclass(frozen=True)
class TrainingBlock:
    """Rows to learn from, and the order in which to visit them.

    Attributes
    ----------
    pass_number, number : int
        The pass, from 1 on, and the number of the block in the source: together they determine the order of
        its inner passes.
    rows : Rows
        The rows with their costs.
    order : ndarray of int64, shape (n_rows,)
        Empty if other processes read the rows.
    new_classes : list of str
        Classes that appear first in this block: codes from the number of classes known before it.
    behind : StreamPosition, optional
        Position of a stream behind the block.
    read_work : int
        Cost of reading a non-zero for this pass, as inner passes count it: 0 if the rows were in memory.
    permute : callable
        ``permute(n, seed, pass_number, number, 0)`` orders `n` of the rows as the source orders all of them.
    first : int
        The first row of the block, by which its duals are found.
    begin : int
        Of a piece of a block, its first row in the block. The piece has `order` in the block, too.
    all_cost : ndarray of float64, shape (n_rows,), optional
        Of a piece of a block, the costs that its rows have in any pass, if they are not held out.
    arrived : callable, optional
        Of a block that comes in pieces: maps a number of rows of `order` to a larger number, of those that
        have been read, and waits until there are as many.
    """

    pass_number: int
    number: int
    rows: Rows
    order: np.ndarray
    new_classes: Sequence[str] = ()
    behind: StreamPosition | None = None
    read_work: int = READ_BEFORE
    permute: Callable[[int, int, int, int, int], np.ndarray] = permutation
    first: int = 0
    begin: int = 0
    all_cost: np.ndarray | None = None
    arrived: Callable[[int], int] | None = None


class ShuffledSource:
    """Source of the blocks of data that can be read again, in an order that depends on seed and pass alone.

    Parameters
    ----------
    blocks : Blocks
    settings : Settings
        With the seed, and the share of C in each pass. With a loss of groups the rows of a group are visited
        one after the other, in their order.
    unread : bool
        True if other processes read the rows: blocks then have no values, but labels and costs if classes
        are split.
    """

    def __init__(self, blocks: Blocks, settings: Settings, *, unread: bool = False) -> None:
        self.cut = blocks
        self._share_of_C = settings.share_of_C
        self._seed = settings.seed
        self._by_group = settings.trained_loss.sequences
        self._unread, self._labelled = unread, settings.split == CLASSES
        self._spaces: list[RowSpace] = []  # of blocks, to be used again
        self._permutation = local_permutation if blocks.shuffled else permutation

    @property
    def n_rows(self) -> int | None:
        return int(self.cut.starts[-1])

    def blocks(self, pass_number: int, begin: Any) -> Iterator[TrainingBlock]:
        """Yield the blocks of a pass in its order, without the first `begin` of them."""
        for number in self.order(pass_number)[begin:].tolist():
            is_only = len(self.cut) == 1
            if self.cut.in_pieces and not (is_only and pass_number > 1):
                yield from self._pieces(pass_number, number)
                continue
            if self._unread:
                rows = self.cut.unread(number)
                if self._labelled:
                    rows = self._with_costs(pass_number, self.cut.without_values(number))
                order = np.zeros(0, np.int64)
            else:
                rows = self.read(pass_number, number, self._next_space())
                n = len(group_starts(rows.qid)) - 1 if self._by_group else rows.n_rows
                order = self._permutation(n, self._seed, pass_number, number, 0)
                if self._by_group:
                    order = in_group_order(rows.qid, order)
            work = READ_BEFORE * (pass_number == 1) if is_only else READ_AHEAD
            yield TrainingBlock(
                pass_number, number, rows, order,
                read_work=work, permute=self._permutation, first=int(self.cut.starts[number]),
            )  # fmt: skip

    def order(self, pass_number: int) -> np.ndarray:
        """Return the numbers of the blocks in the order of a pass."""
        return permutation(len(self.cut), self._seed, pass_number, _BLOCK_ORDER, 0)

    def read(self, pass_number: int, number: int, space: RowSpace | None = None) -> Rows:
        """Read the rows of a block, with their costs in a pass; they may be put into a `space`."""
        return self._with_costs(pass_number, self.cut.read_to_train(number, space))

    def _with_costs(self, pass_number: int, rows: Rows) -> Rows:
        share = self._share_of_C(pass_number)
        return rows if share == 1 else rows._replace(cost=rows.cost * share)

    def _next_space(self) -> RowSpace | None:
        """Return arrays to put a block into: those of the block before the one that is being learned."""
        if len(self.cut) == 1:
            return None
        if len(self._spaces) < 2:
            self._spaces.append(self.cut.space())
        else:
            self._spaces.reverse()
        return self._spaces[-1]

    def _pieces(self, pass_number: int, number: int) -> Iterator[TrainingBlock]:
        """Read the pieces of a block; each is visited in a random order of its own."""
        nnz = 0
        for at, (begin, rows, all_cost) in enumerate(self.cut.pieces_to_train(number)):
            if begin and self._spaces:
                self._spaces[0].touch(nnz, nnz + len(rows.data))
            nnz += len(rows.data)
            order = begin + self._permutation(rows.n_rows, self._seed, pass_number, number, -at)
            rows = self._with_costs(pass_number, rows)
            yield TrainingBlock(pass_number, number, rows, order, begin=begin, all_cost=all_cost)

    def whole(self, first: TrainingBlock, take: Callable[[], TrainingBlock]) -> TrainingBlock:
        """Return the block of which `first` is the first piece; its rows arrive as it calls `take`."""
        number = first.number
        n_rows = int(self.cut.starts[number + 1] - self.cut.starts[number])
        if not self._spaces:
            self._spaces.append(self.cut.space())
        space, order = self._spaces[0], np.empty(n_rows, np.int64)
        all_cost: list[Any] = []
        rows = space.begin(first.rows, n_rows)

        def add(piece: TrainingBlock) -> None:
            space.append(piece.rows)
            order[piece.begin : space.n_rows] = piece.order
            all_cost.append(piece.all_cost)
            if space.n_rows == n_rows and len(self.cut) == 1:
                self.cut.keep(space.rows()._replace(cost=np.concatenate(all_cost)))
                self._spaces.clear()

        def arrived(at: int) -> int:
            while space.n_rows <= at:
                add(take())
            return space.n_rows

        add(first)
        return TrainingBlock(
            first.pass_number, number, rows, order,
            read_work=READ_AHEAD, permute=self._permutation, first=int(self.cut.starts[number]),
            arrived=arrived,
        )  # fmt: skip

    def empty(self) -> Rows:
        return self.cut.empty()
