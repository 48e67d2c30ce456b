"""The duals of rows, as lists of each row or of each group of classes: from the one to the other."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating


@allocating
def by_group(duals, rows, groups, n_groups):
    """Return the duals of ``rows``, group after group.

    Those with an id of which ``groups[id]`` is negative are left out.

    Returns
    -------
    counts : ndarray of int32, shape (n_groups, len(rows))
    ids, values : ndarray
        All of the first group in the order of ``rows``, then all of the second, and so on.
    """
    counts = np.zeros((n_groups, len(rows)), np.int32)
    for t in range(len(rows)):
        begin = duals.ids_at[rows[t]]
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
            g = groups[duals.ids[duals.ids_at[i] + p]]
            if g >= 0:
                ids[at[g]] = duals.ids[duals.ids_at[i] + p]
                values[at[g]] = values.dtype.type(
                    duals.scale * np.float64(duals.values[duals.values_at[i] + p])
                )
                at[g] += 1
    return counts, ids, values


@allocating
def by_row(counts, ids, values):
    """Join what `by_group` divided: the number of duals of each row, and ids and values row after row."""
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
