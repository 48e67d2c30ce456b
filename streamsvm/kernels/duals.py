"""Duals of a block of rows, stored as lists of the non-zero duals or as a matrix.

The lists are also the format on disk. With few classes, however, scattering and gathering a row's list takes
longer than solving its block problem, so a block that stays in memory uses a matrix with a column per class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import allocating, inlined, kernel
from streamsvm.kernels.scratch import own_lines
from streamsvm.kernels.simd import (
    LANES,
    differing,
    lanes,
    load,
    load_like,
    lowest_bit,
    maximum,
    minimum,
    not_below,
    select,
    store,
    sum_lanes,
    zeros,
)

MOST_COLUMNS = 64  # maximum number of weight columns for which duals may be stored as a matrix
_ROWS_AT_ONCE = 2**14  # number of matrix rows that are converted to lists at a time


class OldDuals(NamedTuple):
    """Duals of a block after the previous pass. Row i has ``counts[i]`` duals, starting at ``at[i]``."""

    ids: np.ndarray  # (any,) uint8, uint16 or uint32; may be memory-mapped, like the values
    values: np.ndarray  # (any,) dtype of the weights
    at: np.ndarray  # (n_rows,) int64: position of the first dual of each row
    counts: np.ndarray  # (n_rows,) int32
    scale: float = 1.0  # factor still to be applied to the values

    def span(self, begin: int, end: int) -> OldDuals:
        return self._replace(at=self.at[begin:end], counts=self.counts[begin:end])


class DualBuffer(NamedTuple):
    """Buffer for new duals, in the order of the visits. If `ids` is empty, new duals are discarded."""

    ids: np.ndarray  # (capacity,) uint8, uint16 or uint32
    values: np.ndarray  # (capacity,) dtype of the weights
    rows: np.ndarray  # (n_rows,) int32: indices of the rows visited so far
    counts: np.ndarray  # (n_rows,) int32: number of duals of each visited row
    used: np.ndarray  # (2,) int64: number of duals, and number of rows, in the buffer


class RowDuals(NamedTuple):
    """Duals of some rows of a block, stored row by row."""

    rows: np.ndarray  # (n,) int32
    counts: np.ndarray  # (n,) int32
    ids: np.ndarray  # (n_duals,)
    values: np.ndarray  # (n_duals,)

    @classmethod
    def of_buffer(cls, buffer: DualBuffer) -> RowDuals:
        n_duals, n_rows = (int(n) for n in buffer.used)
        return cls(
            buffer.rows[:n_rows], buffer.counts[:n_rows], buffer.ids[:n_duals], buffer.values[:n_duals]
        )

    def copy(self) -> RowDuals:
        return RowDuals(*map(np.copy, self))

    def in_block(self, n_rows: int) -> OldDuals:
        """Return these duals as `OldDuals` of a block of `n_rows` rows, with read-only ids and values."""
        at, counts = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int32)
        at[self.rows] = np.cumsum(self.counts, dtype=np.int64) - self.counts
        counts[self.rows] = self.counts
        ids, values = self.ids.view(), self.values.view()
        ids.flags.writeable = values.flags.writeable = False
        return OldDuals(ids, values, at, counts)


def joined(parts: Sequence[RowDuals]) -> RowDuals:
    """Concatenate the duals of different rows of a block, without copying if there is only one part."""
    return parts[0] if len(parts) == 1 else RowDuals(*map(np.concatenate, zip(*parts, strict=True)))


class Duals(NamedTuple):
    """Old duals of a block, and the buffer for its new duals."""

    old: OldDuals
    new: DualBuffer


class DualMatrix(NamedTuple):
    """Old and new duals of a block as matrices, which may be the same array.

    If `old` is empty, all old duals are 0. If `new` is empty, the new duals are discarded.
    """

    old: np.ndarray  # (n_rows, n_columns) or (0, n_columns), dtype of the weights
    new: np.ndarray  # the same
    scale: float = 1.0  # factor still to be applied to the old duals
    again: bool = False  # whether this is an inner pass, which counts neither rows nor losses


@inlined
def has_room(dual_buffer, n_classes):
    """Return True if the buffer has room for a dual of every class, or if duals are discarded."""
    return len(dual_buffer.ids) == 0 or dual_buffer.used[0] + n_classes <= len(dual_buffer.ids)


@inlined
def load_duals(old, i, scratch):
    """Write the old duals of row `i` to ``scratch.old``; return their sum."""
    total = 0.0
    for r in range(old.counts[i]):
        value = old.scale * np.float64(old.values[old.at[i] + r])
        total += value
        scratch.old[old.ids[old.at[i] + r]] = value
    return total


@inlined
def fill_duals(value, n, scratch):
    """Write `value` to ``scratch.old`` for each class that has a dual; return the sum of these duals."""
    zero = zeros()
    total = zero
    for r in range(n):
        c = scratch.vectors[r]
        shown = not_below(load_like(scratch.hidden, c, zero), 0.0)
        duals = select(shown, zero + value, zero)
        store(scratch.old, c, duals)
        total = total + duals
    return sum_lanes(total)


@inlined
def write_lanes(kept, c, values, p, at, dual_buffer):
    """Write ``values[p + lane]`` to the buffer from `at` on, for each lane set in `kept`; return the end."""
    while kept != 0:
        lane = lowest_bit(kept)
        dual_buffer.ids[at] = c + lane
        dual_buffer.values[at] = values[p + lane]
        kept &= kept - 1
        at += 1
    return at


@inlined
def clip_duals(v, m, threshold, upper):
    """Replace ``v[:m]``, extended to whole vectors, by clip(v - threshold, 0, upper); NaN stays NaN."""
    j = 0
    while j < m:
        store(v, j, minimum(upper, maximum(0.0, load(v, j) - threshold)))
        j += lanes(v)


@kernel
def repeats_class(old, seen):
    """Return True if a row has two duals for one class; `seen` must be int64 zeros, shape (n_classes,)."""
    for i in range(len(old.counts)):
        for p in range(old.at[i], old.at[i] + old.counts[i]):
            c = np.int64(old.ids[p])
            if seen[c] == i + 1:
                return True
            seen[c] = i + 1
    return False


@inlined
def close_row(i, n, dual_buffer):
    """Record that the next `n` duals in the buffer are those of row `i`."""
    if len(dual_buffer.ids) > 0:
        row = dual_buffer.used[1]
        dual_buffer.rows[row] = i
        dual_buffer.counts[row] = n
        dual_buffer.used[0] += n
        dual_buffer.used[1] = row + 1


@kernel
def drop_zeros(dual_buffer):
    ids, values, counts = dual_buffer.ids, dual_buffer.values, dual_buffer.counts
    kept, at = 0, 0
    for row in range(dual_buffer.used[1]):
        begin, n = kept, counts[row]
        for t in range(at, at + n):
            value = values[t]
            ids[kept], values[kept] = ids[t], value
            kept += int(value != 0)  # no branch, because it would often be mispredicted
        at += n
        counts[row] = kept - begin
    dual_buffer.used[0] = kept


def new_matrix(n_rows: int, n_classes: int, dtype: np.dtype) -> np.ndarray:
    """Return a matrix of zero duals; `n_classes` includes the shared column of the weights, if any."""
    columns = -(-n_classes // LANES) * LANES
    return own_lines(n_rows * columns, dtype).reshape(n_rows, columns)


def to_lists(matrix: np.ndarray, ids_dtype: np.dtype) -> Iterator[RowDuals]:
    """Yield the non-zero duals of a matrix as lists, the format on disk."""
    for begin in range(0, len(matrix), _ROWS_AT_ONCE):
        part = matrix[begin : begin + _ROWS_AT_ONCE]
        counts = np.count_nonzero(part, axis=1).astype(np.int32)
        with_duals = np.flatnonzero(counts)
        rows, ids = np.nonzero(part)
        yield RowDuals(
            (begin + with_duals).astype(np.int32), counts[with_duals], ids.astype(ids_dtype), part[rows, ids]
        )


@kernel
def from_lists(old, matrix):
    """Write the duals of all rows to a matrix of zeros, without applying their scale."""
    for i in range(len(old.counts)):
        for r in range(old.counts[i]):
            matrix[i, old.ids[old.at[i] + r]] = old.values[old.at[i] + r]


@kernel
def find_duals(matrix, has_dual):
    """Set ``has_dual[i]`` to True if row i has a non-zero dual, else to False."""
    for i in range(len(has_dual)):
        bits, zero = np.int64(0), zeros()
        for c in range(0, matrix.shape[1], LANES):
            bits |= differing(load_like(matrix, (i, c), zero), 0.0)
        has_dual[i] = bits != 0


@inlined
def load_matrix_row(duals, i, n, scratch):
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
    if len(matrix) > 0:
        for c in range(0, matrix.shape[1], LANES):
            store(matrix, (i, c), zeros())


@allocating
def by_group(duals, rows, groups, n_groups):
    """Group the duals of `rows` by ``groups[id]``, the group of their class; drop duals in negative groups.

    Returns
    -------
    counts : ndarray of int32, shape (n_groups, len(rows))
    ids, values : ndarray
        Duals of the first group in the order of `rows`, followed by those of the second group, and so on.
    """
    counts = np.zeros((n_groups, len(rows)), np.int32)
    for t in range(len(rows)):
        begin = duals.at[rows[t]]
        for p in range(begin, begin + duals.counts[rows[t]]):
            if groups[duals.ids[p]] >= 0:
                counts[groups[duals.ids[p]], t] += 1
    at = np.zeros(n_groups, np.int64)
    total = 0
    for g in range(n_groups):
        at[g] = total
        for t in range(len(rows)):
            total += counts[g, t]
    ids = np.empty(total, duals.ids.dtype)
    values = np.empty(total, duals.values.dtype)
    for t in range(len(rows)):
        i = rows[t]
        for p in range(duals.counts[i]):
            g = groups[duals.ids[duals.at[i] + p]]
            if g >= 0:
                ids[at[g]] = duals.ids[duals.at[i] + p]
                values[at[g]] = values.dtype.type(duals.scale * np.float64(duals.values[duals.at[i] + p]))
                at[g] += 1
    return counts, ids, values


@allocating
def by_row(counts, ids, values):
    """Undo `by_group`: return the number of duals of each row, and all ids and values row by row."""
    n_groups, n = counts.shape
    at = np.zeros(n_groups, np.int64)
    total = 0
    for g in range(n_groups):
        at[g] = total
        for t in range(n):
            total += counts[g, t]
    all_ids, all_values = np.empty(total, ids.dtype), np.empty(total, values.dtype)
    row_counts, q = np.zeros(n, np.int32), 0
    for t in range(n):
        for g in range(n_groups):
            for _ in range(counts[g, t]):
                all_ids[q], all_values[q] = ids[at[g]], values[at[g]]
                at[g] += 1
                q += 1
            row_counts[t] += counts[g, t]
    return row_counts, all_ids, all_values
