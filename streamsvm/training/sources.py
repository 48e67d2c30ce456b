"""Source of blocks for several passes over the data, in random order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.data.groups import group_starts, in_group_order
from streamsvm.data.rows import Rows
from streamsvm.kernels.random import local_permutation, permutation
from streamsvm.run.manifest import StreamPosition
from streamsvm.settings.fit import Settings
from streamsvm.training.inner_passes import READ_AHEAD, READ_BEFORE

if TYPE_CHECKING:
    from streamsvm.data.blocks import Blocks

_BLOCK_ORDER = -1  # used in place of a block number when drawing the order of the blocks


@dataclasses.dataclass(frozen=True)
class TrainingBlock:
    """Rows to learn from, and the order in which to visit them.

    The order of the rows in inner passes depends on `pass_number` and the block's `number`. `new_classes` are
    classes that first appear in this block. Their codes follow those of the known classes. `permute`, which
    drew `order`, returns a random permutation of `n` rows from (n, seed, pass_number, number, 0).
    """

    pass_number: int
    number: int
    rows: Rows
    order: np.ndarray  # int64, shape (n_rows,); empty if other processes read the rows
    new_classes: Sequence[str] = ()
    stream_position: StreamPosition | None = None  # position of a stream after the block
    first: int = 0  # number of the block's first row, which identifies its duals
    read_work: int = READ_BEFORE  # cost of reading a non-zero (see `inner_passes`); 0 in memory
    permute: Callable[[int, int, int, int, int], np.ndarray] = permutation


class ShuffledSource:
    """Source of blocks that can be read again, in an order that depends only on the seed and the pass.

    `settings` provides the seed, and the fraction of C for each pass. If the loss needs groups, the rows of a
    group are visited together and in order. If other processes read the rows, `unread` is True, and blocks
    contain labels and costs, but no values.
    """

    def __init__(self, blocks: Blocks, settings: Settings, *, unread: bool = False) -> None:
        self.data_blocks = blocks
        self._cost_fraction = settings.share_of_C
        self._seed = settings.seed
        self._by_group = settings.trained_loss.sequences
        self._unread = unread
        self._permutation = local_permutation if blocks.store.shuffled else permutation

    @property
    def n_rows(self) -> int | None:
        return int(self.data_blocks.starts[-1])

    def starts(self, pass_number: int) -> np.ndarray:
        """Return the first row of each block of a pass, followed by the number of rows."""
        return self.data_blocks.first_starts if pass_number == 1 else self.data_blocks.starts

    def order(self, pass_number: int) -> np.ndarray:
        """Return the numbers of the blocks in the order of a pass."""
        if len(self.data_blocks) == 1:  # its parts are read in order
            return np.arange(len(self.starts(pass_number)) - 1)
        return permutation(len(self.data_blocks), self._seed, pass_number, _BLOCK_ORDER, 0)

    def blocks(self, pass_number: int, begin: Any) -> Iterator[TrainingBlock]:
        """Yield the blocks of a pass in order, starting at position `begin`."""
        starts, numbers = self.starts(pass_number), self.order(pass_number)[begin:]
        is_single = len(starts) == 2
        work = READ_BEFORE * (pass_number == 1) if is_single else READ_AHEAD
        pieces = self.data_blocks.each(starts, numbers)
        if self._unread:
            pieces = map(self.data_blocks.without_values, starts[numbers], starts[numbers + 1])
        for number, rows in zip(numbers.tolist(), pieces, strict=True):
            rows = self._with_costs(pass_number, rows)
            order = np.zeros(0, np.int64)
            if not self._unread:
                n = len(group_starts(rows.qid)) - 1 if self._by_group else rows.n_rows
                order = self._permutation(n, self._seed, pass_number, number, 0)
                if self._by_group:
                    order = in_group_order(rows.qid, order)
            yield TrainingBlock(
                pass_number, number, rows, order,
                first=int(starts[number]), read_work=work, permute=self._permutation,
            )  # fmt: skip

    def read(self, pass_number: int, number: int) -> Rows:
        """Read the rows of a block into new arrays, with their costs in the given pass."""
        start, stop = self.starts(pass_number)[number : number + 2].tolist()
        return self._with_costs(pass_number, self.data_blocks.rows(start, stop))

    def _with_costs(self, pass_number: int, rows: Rows) -> Rows:
        fraction = self._cost_fraction(pass_number)
        return rows if fraction == 1 else rows._replace(cost=rows.cost * fraction)
