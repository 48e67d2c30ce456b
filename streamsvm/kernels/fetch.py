"""Prefetch the data of upcoming visits, because the processor cannot predict the random order of the rows."""

from __future__ import annotations

from streamsvm.kernels.jit import inlined
from streamsvm.kernels.simd import lanes, prefetch

_AHEAD = 2  # distance in visits; with 1, data arrives too late, and larger distances fill the cache


@inlined
def fetch_rows(rows, order, t, end, tile):
    """Prefetch upcoming rows: first positions, labels, norms and costs, then values if there is no tile."""
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
    """Prefetch the old duals of upcoming rows: first positions and counts, later ids and values."""
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
    old, new = duals.old, duals.new
    if t + _AHEAD < end:
        i = order[t + _AHEAD]
        for c in range(0, old.shape[1], lanes(old)):
            if len(old) > 0:
                prefetch(old, (i, c))
            if len(new) > 0:
                prefetch(new, (i, c))
