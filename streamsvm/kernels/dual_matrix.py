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

from streamsvm.kernels.duals import DualBuffer, OldDuals, RowDuals, close_row, has_room, write_lanes
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
    scale: float = 1.0  # by which the old ones have been multiplied since
    again: bool = False  # whether visits are those of an inner pass, which count neither rows nor losses

    @classmethod
    def of_lists(cls, old: OldDuals, n_columns: int) -> DualMatrix:
        """Unpack what a log has of a block, without the new ones."""
        none = np.empty(0, old.values.dtype)
        matrix = none
        if old.counts.any():
            matrix = own_lines(len(old.counts) * n_columns, old.values.dtype)
            unpack(old, n_columns, matrix)
        return cls(matrix, none, n_columns)

    def lists(self, new_buffer: Callable[[int, int], DualBuffer]) -> Iterator[RowDuals]:
        """Pack the old duals, as a log takes them; `new_buffer` is that of its `DualFormat`."""
        n_rows = len(self.old) // self.n_columns
        buffer = new_buffer(_BUFFER, min(n_rows, _BUFFER))
        at = 0
        while at < n_rows:
            buffer.used[:] = 0
            at = pack(self.old, at, self.n_columns, buffer)
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
def pack(matrix, begin, n_columns, buffer):
    """Append the duals of rows that have any, from row `begin` on, to an empty buffer.

    Returns the row after the last.
    """
    zero, n_rows = zeros(), len(matrix) // n_columns
    for i in range(begin, n_rows):
        if not has_room(buffer, n_columns) or buffer.used[1] == len(buffer.rows):
            return i
        at = buffer.used[0]
        for c in range(0, n_columns, LANES):
            kept = differing(load_like(matrix, i * n_columns + c, zero), 0.0)
            at = write_lanes(kept, c, matrix, i * n_columns + c, at, buffer)
        if at > buffer.used[0]:
            close_row(i, at - buffer.used[0], buffer)
    return n_rows


@kernel
def unpack(old, n_columns, matrix):
    """Write the duals of all rows, without their scale, to zeros."""
    for i in range(len(old.counts)):
        for r in range(old.counts[i]):
            matrix[i * n_columns + np.int64(old.ids[old.ids_at[i] + r])] = old.values[old.values_at[i] + r]
