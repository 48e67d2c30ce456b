"""Prefetching: the rows and duals of visits that come soon.

Rows are visited in random order, which no hardware predicts: without prefetching, reading the row takes
longer than scoring it if there are few classes.
"""

from __future__ import annotations

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import lanes, prefetch

_AHEAD = 2  # rows fetched before their visit: one row is too late, more rows crowd the cache


@inlined
def _fetch_facts(rows, i):
    """Begin to load the numbers of row `i`, where its values begin among them."""
    prefetch(rows.indptr, i)
    prefetch(rows.labels, i)
    prefetch(rows.norm2, i)
    prefetch(rows.cost, i)


@inlined
def _fetch_values(rows, i):
    """Begin to load the values and indices of row `i`, whose offsets are loaded."""
    p = rows.indptr[i]
    while p < rows.indptr[i + 1]:
        prefetch(rows.indices, p)
        prefetch(rows.data, p)
        p += lanes(rows.data)


@inlined
def fetch_ahead(rows, old, order, t, end):
    """Begin to load the row that is visited soon after ``order[t]``, and its duals."""
    if t + 2 * _AHEAD < end:
        i = order[t + 2 * _AHEAD]
        _fetch_facts(rows, i)
        prefetch(old.counts, i)
        prefetch(old.ids_at, i)
        prefetch(old.values_at, i)
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        _fetch_values(rows, i)
        prefetch(old.ids, old.ids_at[i])
        prefetch(old.values, old.values_at[i])


@inlined
def fetch_ahead_of_revisit(rows, dual_buffer, starts, order, t):
    """As `fetch_ahead`, for the buffer's rows ``order``."""
    if t + 3 * _AHEAD < len(order):
        prefetch(dual_buffer.rows, order[t + 3 * _AHEAD])
        prefetch(dual_buffer.counts, order[t + 3 * _AHEAD])
        prefetch(starts, order[t + 3 * _AHEAD])
    if t + 2 * _AHEAD < len(order):
        _fetch_facts(rows, dual_buffer.rows[order[t + 2 * _AHEAD]])
        prefetch(dual_buffer.ids, starts[order[t + 2 * _AHEAD]])
        prefetch(dual_buffer.values, starts[order[t + 2 * _AHEAD]])
    if t + _AHEAD < len(order):
        _fetch_values(rows, dual_buffer.rows[order[t + _AHEAD]])


@inlined
def fetch_ahead_of_few(rows, old, new, n_columns, order, t, end):
    """As `fetch_ahead`, with duals that have a place for each of `n_columns`; empty arrays have none."""
    if t + 2 * _AHEAD < end:
        _fetch_facts(rows, order[t + 2 * _AHEAD])
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        _fetch_values(rows, i)
        for c in range(0, n_columns, lanes(new)):
            if len(old) > 0:
                prefetch(old, i * n_columns + c)
            if len(new) > 0:
                prefetch(new, i * n_columns + c)
