"""Visits where there are few classes: each row has a place for a dual of every class.

A list of the duals that are not 0 is scattered before a row's block problem, and collected from the lanes
after it. Up to 64 classes that takes longer than the problem itself. So the duals of a block that stays in
memory are an array here, *dense*: row i has that of class c at ``dense[i * K + c]``, for K columns: whole
vectors of classes. Logs have lists, of the same numbers (see `pack` and `unpack`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from streamsvm.kernels.duals import DualBuffer, OldDuals, close_row, has_room, set_bits
from streamsvm.kernels.fetch import fetch_ahead_of_few
from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.memory import own_lines
from streamsvm.kernels.row_steps import COLUMN_BEYOND, RowSteps, is_idle
from streamsvm.kernels.score import score_ranges
from streamsvm.kernels.scratch import clear_lanes, list_all, show_all_classes
from streamsvm.kernels.simd import LANES, differing, load_like, lowest_bit, store, sum_lanes, zeros
from streamsvm.kernels.tally import CORRECT, DUAL_DELTA, DUAL_SUM, LOSS_SUM

_BUFFER = 2**16  # duals of a list that is written at once


def dense_columns(n_classes: int) -> int:
    """Return the number K of columns of dense duals; a column beyond the classes counts as one."""
    return -(-n_classes // LANES) * LANES


class DenseDuals(NamedTuple):
    """The dense duals of a block: as the last pass left them, and as they are being collected.

    An empty array of old ones stands for zeros; one of new ones, for duals that nobody needs.
    """

    old: np.ndarray  # (n_rows * n_columns,) or (0,), dtype of the weights
    new: np.ndarray  # the same
    n_columns: int
    cost: np.ndarray  # (n_rows,) float64: those of the rows, which duals that are kept as bits equal
    scale: float = 1.0  # by which the old ones have been multiplied since

    @classmethod
    def of_lists(cls, old: OldDuals, n_columns: int, n_classes: int, cost: np.ndarray) -> DenseDuals:
        """Unpack what a log has of a block, without the new ones."""
        none = np.empty(0, old.values.dtype)
        dense = none
        if old.counts.any() or (old.bits_at >= 0).any():
            dense = own_lines(len(cost) * n_columns, old.values.dtype)
            unpack(old, n_columns, n_classes, cost, dense)
        return cls(dense, none, n_columns, cost)

    def lists(self, ids_dtype: np.dtype, bytes_of_bits: int) -> Iterator[DualBuffer]:
        """Pack the old duals, as a log takes them."""
        size, n_rows = _BUFFER, min(len(self.cost), _BUFFER)
        buffer = DualBuffer(
            np.empty(size, ids_dtype), np.empty(size, self.old.dtype), np.empty(n_rows, np.int32),
            np.empty(n_rows, np.int32), np.zeros(2, np.int64), np.empty((n_rows, bytes_of_bits), np.uint8),
        )  # fmt: skip
        at = 0
        while at < len(self.cost):
            buffer.used[:] = 0
            at = pack(self.old, at, self.n_columns, self.cost, buffer)
            yield buffer


@inlined
def load_dense(dense, at, n, scale, scratch):
    """Write the duals from ``dense[at]`` on, times `scale`, into ``scratch.old``; return their sum.

    An empty array stands for zeros.
    """
    total = zeros()
    if len(dense) > 0:
        for r in range(n):
            old = scale * load_like(dense, at + scratch.vectors[r], total)
            store(scratch.old, scratch.vectors[r], old)
            total = total + old
    return sum_lanes(total)


@inlined
def clear_dense(dense, at, n):
    """Set `n` duals from ``dense[at]`` on to 0."""
    if len(dense) > 0:
        for c in range(0, n, LANES):
            store(dense, at + c, zeros())


def make_visit_of_few(name: str, steps: RowSteps, solve: Any, *, own_dual: bool, opposite: int) -> Any:
    """Make the kernel ``visit_few`` of `streamsvm.kernels.frame.make_kernels`, whose arguments these are."""
    begin_row, take_own, leave_own, set_duals, move = steps

    def visit_few(
        rows, order, begin, end, problem, weights, old, scale, new, again, scratch, tally, pairs, sets
    ):
        n = show_all_classes(problem, opposite == COLUMN_BEYOND, scratch)
        K = n * LANES
        list_all(n, scratch)
        for t in range(begin, end):
            i = order[t]
            fetch_ahead_of_few(rows, old, new, K, order, t, end)
            y = np.int64(rows.labels[i])
            if not again and is_idle(rows, i, y, sets is not None and own_dual, tally):
                clear_dense(new, i * K, K)
                continue
            take_own(i, y, sets, scratch, n)
            old_sum = load_dense(old, i * K, n, scale, scratch)
            score_ranges(scratch.scores, rows, i, weights.current, problem)
            row, right = begin_row(rows, i, y, old_sum, scratch.vectors, n, problem, pairs, sets, scratch)
            loss, _ = solve(row, n, problem, pairs, scratch)
            _, old_terms, change, n_moved, total = set_duals(
                row, n, problem, pairs, scratch, new, None, i * K, True
            )
            time_factor = move(rows, i, row, total, n_moved, problem, weights, scratch, tally, None, sets)
            if not again:
                tally[LOSS_SUM] += row.C * loss
                tally[CORRECT] += right
                tally[DUAL_SUM] += old_terms  # of this pass, which counts all duals anew
            tally[DUAL_SUM] += change
            tally[DUAL_DELTA] += time_factor * change
            leave_own(i, y, sets, scratch)
        clear_lanes(scratch, n)

    return kernel(visit_few, name=f"{name}_visit_few")


# -- lists -----------------------------------------------------------------------------------------


@kernel
def find_duals(dense, n_columns, found):
    """Write whether a row has a dual that is not 0 to `found`, shape (n_rows,)."""
    for i in range(len(found)):
        left, zero = np.int64(0), zeros()
        for c in range(0, n_columns, LANES):
            left |= differing(load_like(dense, i * n_columns + c, zero), 0.0)
        found[i] = left != 0


@kernel
def pack(dense, begin, n_columns, cost, buffer):
    """Append the duals of rows, from row `begin` on, to an empty buffer; return the row after the last.

    As lists, of the rows that have any; a buffer with bits keeps those that are at the row's `cost` as bits.
    """
    zero, n_rows, has_bits = zeros(), len(dense) // n_columns, buffer.bits.shape[1] > 0
    for i in range(begin, n_rows):
        if not has_room(buffer, n_columns) or buffer.used[1] == len(buffer.rows):
            return i
        at_bound = dense.dtype.type(cost[i])
        kept, any_bits = 0, np.int64(0)
        for c in range(0, n_columns, LANES):
            duals = load_like(dense, i * n_columns + c, zero)
            left = differing(duals, 0.0)
            if has_bits:
                full = left & ~differing(duals, np.float64(at_bound))
                set_bits(full, c, buffer)
                any_bits |= full
                left &= ~full
            while left != 0:
                j = c + lowest_bit(left)
                buffer.ids[buffer.used[0] + kept] = j
                buffer.values[buffer.used[0] + kept] = dense[i * n_columns + j]
                left &= left - 1
                kept += 1
        if kept > 0 or any_bits != 0:
            close_row(i, kept, buffer)
    return n_rows


@kernel
def unpack(old, n_columns, n_classes, cost, dense):
    """Write the duals of all rows, without their scale, to zeros; lists and bits are as in a log."""
    for i in range(len(old.counts)):
        for r in range(old.counts[i]):
            dense[i * n_columns + np.int64(old.ids[old.ids_at[i] + r])] = old.values[old.values_at[i] + r]
        if len(old.bits_at) > 0 and old.bits_at[i] >= 0:
            for c in range(n_classes):
                if (old.bits[old.bits_at[i] + (c >> 3)] >> (c & 7)) & 1 != 0:
                    dense[i * n_columns + c] = dense.dtype.type(cost[i])
