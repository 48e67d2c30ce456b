"""Sources of blocks of rows: data that can be read again, or a stream of rows that come once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.data.groups import group_starts, in_group_order
from streamsvm.data.row_space import RowSpace
from streamsvm.data.rows import Rows, with_index_dtype
from streamsvm.kernels.random import local_permutation, permutation
from streamsvm.settings.fit import AUTO, CLASSES, Settings
from streamsvm.training.auto_c import Norms, c_for, running_costs
from streamsvm.training.inner_passes import READ_AHEAD, READ_BEFORE
from streamsvm.transforms import Transform, apply, features_after

if TYPE_CHECKING:
    from streamsvm.data.blocks import Blocks

_BLOCK_ORDER = -1  # takes the place of a block's number where the order of the blocks is drawn


@dataclasses.dataclass(frozen=True)
class TrainingBlock:
    """Rows to learn from, and the order in which to visit them.

    Attributes
    ----------
    pass_number, number : int
        The pass, from 1 on, and the number of the block in the source: together they name its duals, and
        determine the order of its inner passes.
    rows : Rows
        The rows with their costs.
    order : ndarray of int64, shape (n_rows,)
        Empty if other processes read the rows.
    new_classes : list of str
        Classes that appear first in this block: codes from the number of classes known before it.
    place : StreamPlace, optional
        Place of the stream after the block.
    read_work : int
        Cost of reading a non-zero for this pass, as inner passes count it: 0 if the rows were in memory.
    permute : callable
        ``permute(n, seed, pass_number, number, 0)`` orders `n` of the rows as the source orders all of them.
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
    place: StreamPlace | None = None
    read_work: int = READ_BEFORE
    permute: Callable[[int, int, int, int, int], np.ndarray] = permutation
    begin: int = 0
    all_cost: np.ndarray | None = None
    arrived: Callable[[int], int] | None = None


@dataclasses.dataclass(frozen=True)
class StreamPlace:
    """Place in a stream, from which it can be read again.

    Attributes
    ----------
    place : dict or None
        Place in the stream's own form, as JSON; None at the beginning.
    norms : tuple of float and int
        Sum and number of the squared norms of the first 1,000 rows, or fewer, from which C is chosen.
    """

    place: dict[str, Any] | None = None
    norms: Norms = (0.0, 0)


class Source(Protocol):
    """Source of the blocks of a training.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None for a stream, which is read once.
    """

    @property
    def n_rows(self) -> int | None: ...

    def blocks(self, pass_number: int, begin: Any) -> Iterator[TrainingBlock]:
        """Yield the blocks of a pass that are left from `begin` on."""

    def empty(self) -> Rows:
        """Return no rows, in the types of those in the blocks."""


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
            yield TrainingBlock(pass_number, number, rows, order, read_work=work, permute=self._permutation)

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
            read_work=READ_AHEAD, permute=self._permutation, arrived=arrived,
        )  # fmt: skip

    def empty(self) -> Rows:
        return self.cut.empty()


class Stream(Protocol):
    """Stream of rows in an order that is the same each time they are read.

    Attributes
    ----------
    resumable : bool
        True if the stream can be read again from a place in it.
    classes : list of str or None
        All classes; None if they appear on the way.
    n_features : int or None
        All features; None if they appear on the way.
    index_base : int or None
        Number of the first feature in the text, for the model's users; None if it is not from text.
    feature_names : sequence of str or None
        Names of the features, if they have any.
    dense_rows : bool
        Whether the rows are dense.
    """

    resumable: bool
    classes: list[str] | None
    n_features: int | None

    @property
    def index_base(self) -> int | None: ...

    @property
    def feature_names(self) -> Sequence[str] | None: ...

    @property
    def dense_rows(self) -> bool: ...

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        """Yield rows from `place` on, the classes that are new in them, and the place after them, as JSON.

        Labels are codes in `classes` and, beyond, in the order of first appearance. A batch without rows
        may say how far the stream was read beyond the last one.
        """

    def record(self) -> dict[str, Any]:
        """Return the record, as JSON, from which the stream can be opened again."""

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        """Return the inputs fully read before `place`, for the model's record."""

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        """Return parse statistics up to `place`."""

    def in_order(self, classes: Sequence[str]) -> np.ndarray:
        """Return the order in which a model lists `classes`."""

    def label_dtype(self, classes: Sequence[str]) -> str:
        """Return the type of `classes` in Python: int64 or str."""


class StreamSource:
    """Source of a stream's blocks in its order: transformed, with the costs of their rows.

    Parameters
    ----------
    stream : Stream
    dtype : dtype
        Type of the values.
    C : float or "auto"
        With "auto", one over the mean of ‖x‖² of the first 1,000 rows or, until then, of those up to a row.
    transforms : sequence of Transform
    """

    n_rows: int | None = None

    def __init__(self, stream: Stream, dtype: np.dtype, C: Any, transforms: Sequence[Transform] = ()) -> None:
        self.stream = stream
        self.classes: Sequence[str] | None = stream.classes
        self._dtype = dtype
        self._C = C
        self.transforms = transforms
        self.n_features = features_after(transforms, stream.n_features)
        self.dense_rows = stream.dense_rows and all(each.keeps_dense for each in transforms)

    def C_at(self, place: StreamPlace) -> float:
        """Return the C that was given, or the one chosen from the rows before a place."""
        return c_for(*place.norms) if self._C == AUTO else self._C

    def blocks(self, pass_number: int, begin: Any) -> Iterator[TrainingBlock]:
        """Yield the blocks that are left.

        Parameters
        ----------
        begin : tuple of (StreamPlace, int, int, sequence of str)
            The place, the blocks and rows before it, and the classes known there.
        """
        place, number, visited, classes = begin
        for rows, new_classes, behind in self.stream.batches(place.place, classes):
            rows = self._transformed(rows._replace(data=rows.data.astype(self._dtype, copy=False)), visited)
            cost, norms = running_costs(self._C, rows.norm2, visited, place.norms)
            place, rows = StreamPlace(behind, norms), rows._replace(cost=cost)
            yield TrainingBlock(pass_number, number, rows, np.arange(rows.n_rows), new_classes, place)
            number += rows.n_rows > 0
            visited += rows.n_rows

    def _transformed(self, rows: Rows, first: int = 0) -> Rows:
        rows = apply(self.transforms, rows, where="the stream", first=first)
        if self.n_features is None:
            return rows
        return with_index_dtype(rows, index_dtype(self.n_features))

    def empty(self) -> Rows:
        none = np.zeros(0, np.int32)
        indices = None if self.stream.dense_rows else none
        return self._transformed(
            Rows(np.zeros(0, self._dtype), indices, np.zeros(1, np.int64), none, np.zeros(0), np.zeros(0))
        )
