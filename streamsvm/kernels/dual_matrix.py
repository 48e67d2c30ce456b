"""The duals of a block as a matrix: where there are few classes, each row has a place for a dual of each.

A list of the duals that are not 0 is scattered before a row's block problem, and collected from the lanes
after it. Up to 64 columns that takes longer than the problem itself. So the duals of a block that stays in
memory are a matrix here, of whole vectors of classes. Logs have lists of the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from streamsvm.kernels.duals import RowDuals
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.memory import own_lines
from streamsvm.kernels.simd import LANES, differing, load_like, store, sum_lanes, zeros

MOST_COLUMNS = 64  # of the weights, with which duals may be a matrix
_ROWS = 2**10  # of a list that is written at once


class DualMatrix(NamedTuple):
    """The duals of a block: as the last pass left them, and as they are being collected.

    Old ones of no rows stand for zeros; new ones of no rows, for duals that nobody needs. Both may be the
    same array.
    """

    old: np.ndarray  # (n_rows, n_columns) or (0, n_columns), dtype of the weights
    new: np.ndarray  # the same
    scale: float = 1.0  # by which the old ones have been multiplied since
    again: bool = False  # whether visits are those of an inner pass, which count neither rows nor losses


def new_matrix(n_rows: int, n_classes: int, dtype: np.dtype) -> np.ndarray:
    """Return zeros; a column of the weights beyond the classes counts as one of `n_classes`."""
    columns = -(-n_classes // LANES) * LANES
    return own_lines(n_rows * columns, dtype).reshape(n_rows, columns)


def to_lists(matrix: np.ndarray, ids_dtype: np.dtype) -> Iterator[RowDuals]:
    """Yield lists of the duals in a matrix, as a log takes them."""
    for begin in range(0, len(matrix), _ROWS):
        some = matrix[begin : begin + _ROWS]
        counts = np.count_nonzero(some, axis=1).astype(np.int32)
        with_duals = np.flatnonzero(counts)
        rows, ids = np.nonzero(some)
        yield RowDuals(
            (begin + with_duals).astype(np.int32), counts[with_duals], ids.astype(ids_dtype), some[rows, ids]
        )


@kernel
def from_lists(old, matrix):
    """Write the duals of all rows, without their scale, to zeros."""
    for i in range(len(old.counts)):
        for r in range(old.counts[i]):
            matrix[i, old.ids[old.ids_at[i] + r]] = old.values[old.values_at[i] + r]


@kernel
def find_duals(matrix, found):
    """Write whether a row has a dual that is not 0 to `found`, shape (n_rows,)."""
    for i in range(len(found)):
        left, zero = np.int64(0), zeros()
        for c in range(0, matrix.shape[1], LANES):
            left |= differing(load_like(matrix, (i, c), zero), 0.0)
        found[i] = left != 0


@inlined
def load_matrix_row(duals, i, n, scratch):
    """Write the old duals of row `i` into ``scratch.old``; return their sum."""
    total = zeros()
    if len(duals.old) > 0:
        for r in range(n):
            c = scratch.vectors[r]
            old = duals.scale * load_like(duals.old, (i, c), total)
            store(scratch.old, c, old)
            total = total + old
    return sum_lanes(total)


@inlined
def clear_matrix_row(matrix, i):
    """Set the duals of row `i` to 0."""
    if len(matrix) > 0:
        for c in range(0, matrix.shape[1], LANES):
            store(matrix, (i, c), zeros())
