"""The duals of a block as a matrix: where there are few classes, each row has a place for a dual of each.

A list of the duals that are not 0 is scattered before a row's block problem, and collected from the lanes
after it. Up to 64 columns that takes longer than the problem itself. So the duals of a block that stays in
memory are an array here: row i has that of class c at ``matrix[i * K + c]``, for K columns: whole vectors of
classes. Logs have lists, of the same numbers (see `pack` and `unpack`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.kernels.duals import DualBuffer, OldDuals, RowDuals, close_row, has_room, set_bits, write_lanes
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.memory import own_lines
from streamsvm.kernels.simd import LANES, differing, load_like, store, sum_lanes, zeros

MOST_COLUMNS = 64  # of the weights, with which duals may be a matrix
_BUFFER = 2**16  # duals of a list that is written at once


def matrix_columns(n_classes: int) -> int:
    """Return the number K of columns of a matrix of duals; a column beyond the classes counts as one."""
    return -(-n_classes // LANES) * LANES


class DualMatrix(NamedTuple):
    """The duals of a block: as the last pass left them, and as they are being collected.

    An empty array of old ones stands for zeros; one of new ones, for duals that nobody needs. Both may be the
    same array.
    """

    old: np.ndarray  # (n_rows * n_columns,) or (0,), dtype of the weights
    new: np.ndarray  # the same
    n_columns: int
    cost: np.ndarray  # (n_rows,) float64: those of the rows, which duals that are kept as bits equal
    scale: float = 1.0  # by which the old ones have been multiplied since
    again: bool = False  # whether visits are those of an inner pass, which count neither rows nor losses

    @classmethod
    def of_lists(cls, old: OldDuals, n_columns: int, n_classes: int, cost: np.ndarray) -> DualMatrix:
        """Unpack what a log has of a block, without the new ones."""
        none = np.empty(0, old.values.dtype)
        matrix = none
        if old.counts.any() or (old.bits_at >= 0).any():
            matrix = own_lines(len(cost) * n_columns, old.values.dtype)
            unpack(old, n_columns, n_classes, cost, matrix)
        return cls(matrix, none, n_columns, cost)

    def lists(self, new_buffer: Callable[[int, int], DualBuffer]) -> Iterator[RowDuals]:
        """Pack the old duals, as a log takes them; `new_buffer` is that of its `DualFormat`."""
        buffer = new_buffer(_BUFFER, min(len(self.cost), _BUFFER))
        at = 0
        while at < len(self.cost):
            buffer.used[:] = 0
            at = pack(self.old, at, self.n_columns, self.cost, buffer)
            yield RowDuals.of_buffer(buffer)  # until the next one


@inlined
def load_matrix_row(duals, at, n, scratch):
    """Write the old duals from `at` on into ``scratch.old``; return their sum."""
    total = zeros()
    if len(duals.old) > 0:
        for r in range(n):
            old = duals.scale * load_like(duals.old, at + scratch.vectors[r], total)
            store(scratch.old, scratch.vectors[r], old)
            total = total + old
    return sum_lanes(total)


@inlined
def clear_matrix_row(matrix, at, n_columns):
    """Set the duals of the row at `at` to 0."""
    if len(matrix) > 0:
        for c in range(0, n_columns, LANES):
            store(matrix, at + c, zeros())


# -- lists -----------------------------------------------------------------------------------------


@kernel
def find_duals(matrix, n_columns, found):
    """Write whether a row has a dual that is not 0 to `found`, shape (n_rows,)."""
    for i in range(len(found)):
        left, zero = np.int64(0), zeros()
        for c in range(0, n_columns, LANES):
            left |= differing(load_like(matrix, i * n_columns + c, zero), 0.0)
        found[i] = left != 0


@kernel
def pack(matrix, begin, n_columns, cost, buffer):
    """Append the duals of rows, from row `begin` on, to an empty buffer; return the row after the last.

    As lists, of the rows that have any; a buffer with bits keeps those that are at the row's `cost` as bits.
    """
    zero, n_rows, has_bits = zeros(), len(matrix) // n_columns, buffer.bits.shape[1] > 0
    for i in range(begin, n_rows):
        if not has_room(buffer, n_columns) or buffer.used[1] == len(buffer.rows):
            return i
        at_bound = matrix.dtype.type(cost[i])
        at, any_bits = buffer.used[0], np.int64(0)
        for c in range(0, n_columns, LANES):
            duals = load_like(matrix, i * n_columns + c, zero)
            left = differing(duals, 0.0)
            if has_bits:
                full = left & ~differing(duals, np.float64(at_bound))
                set_bits(full, c, buffer)
                any_bits |= full
                left &= ~full
            at = write_lanes(left, c, matrix, i * n_columns + c, at, buffer)
        if at > buffer.used[0] or any_bits != 0:
            close_row(i, at - buffer.used[0], buffer)
    return n_rows


@kernel
def unpack(old, n_columns, n_classes, cost, matrix):
    """Write the duals of all rows, without their scale, to zeros; lists and bits are as in a log."""
    for i in range(len(old.counts)):
        for r in range(old.counts[i]):
            matrix[i * n_columns + np.int64(old.ids[old.ids_at[i] + r])] = old.values[old.values_at[i] + r]
        if len(old.bits_at) > 0 and old.bits_at[i] >= 0:
            for c in range(n_classes):
                if (old.bits[old.bits_at[i] + (c >> 3)] >> (c & 7)) & 1 != 0:
                    matrix[i * n_columns + c] = matrix.dtype.type(cost[i])
