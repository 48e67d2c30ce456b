"""Prefetching: the rows and duals of visits that come soon.

Rows are visited in random order, which no hardware predicts: without prefetching, reading the row takes
longer than scoring it if there are few classes.
"""

from __future__ import annotations

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import lanes, prefetch

_AHEAD = 2  # rows fetched before their visit: one row is too late, more rows crowd the cache


@inlined
def fetch_rows(rows, order, t, end, tile):
    """Begin to load the row that is visited soon after ``order[t]``: first its numbers, then its values.

    With a tile, its values are there already.
    """
    if t + 2 * _AHEAD < end:
        i = order[t + 2 * _AHEAD]
        prefetch(rows.indptr, i)
        prefetch(rows.labels, i)
        prefetch(rows.norm2, i)
        prefetch(rows.cost, i)
    if tile is None and t + _AHEAD < end:
        _fetch_values(rows.indices, rows, order[t + _AHEAD])


@inlined
def _fetch_values(indices, rows, i):
    for p in range(rows.indptr[i], rows.indptr[i + 1], lanes(rows.data)):
        if indices is not None:
            prefetch(indices, p)
        prefetch(rows.data, p)


@inlined
def fetch_duals(old, order, t, end):
    """Begin to load the row's duals: first where they are."""
    if t + 2 * _AHEAD < end:
        i = order[t + 2 * _AHEAD]
        prefetch(old.counts, i)
        prefetch(old.at, i)
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        prefetch(old.ids, old.at[i])
        prefetch(old.values, old.at[i])


@inlined
def fetch_matrix(duals, order, t, end):
    """Begin to load the row's duals; empty arrays have none."""
    old, new = duals.old, duals.new
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        for c in range(0, old.shape[1], lanes(old)):
            if len(old) > 0:
                prefetch(old, (i, c))
            if len(new) > 0:
                prefetch(new, (i, c))
