"""The hashing trick: any number of features in a fixed number of columns (Weinberger et al. 2009).

Feature f goes to column ``h >> (64 - bits)`` with the sign ``1 - 2 (h & 1)``, where h is, in 64 bits,
``mix(key + f γ)`` with ``key = mix(seed + γ)`` (see `streamsvm.kernels.random.mix`). Features that meet in a
column are added, and the signs let them cancel on average rather than pile up. f is the index as it
stands in the text, whatever it counts from.
"""

from __future__ import annotations

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.format import index_dtype
from streamsvm.kernels.jit import allocating
from streamsvm.kernels.random import GAMMA, mix


def hash_rows(rows: Rows, bits: int, seed: int) -> Rows:
    """Rows whose features are hashed to 2**bits columns; their norms are those of the hashed rows.

    Parameters
    ----------
    rows : Rows
        With indices as in the text.
    bits : int
        From 1 to 31.
    seed : int

    Returns
    -------
    Rows
        New arrays, but for the labels. A value may be zero where features cancelled.
    """
    data, indices, indptr, norm2 = _hash(rows.data, rows.indices, rows.indptr, bits, seed)
    return Rows(data, indices.astype(index_dtype(2**bits)), indptr, rows.labels, norm2)


@allocating
def _hash(data, indices, indptr, bits, seed):
    n_rows = len(indptr) - 1
    new_data, new_indices = np.empty_like(data), np.empty(len(data), np.int64)
    new_indptr, norm2 = np.zeros(n_rows + 1, np.int64), np.zeros(n_rows)
    longest = 0
    for i in range(n_rows):
        longest = max(longest, indptr[i + 1] - indptr[i])
    keys, signs = np.empty(longest, np.int64), np.empty(longest)
    key = mix(np.uint64(seed) + GAMMA)
    shift = np.uint64(64 - bits)
    filled = 0
    for i in range(n_rows):
        begin, n = indptr[i], indptr[i + 1] - indptr[i]
        for p in range(n):
            h = mix(key + np.uint64(indices[begin + p]) * GAMMA)
            signs[p] = -1.0 if h & np.uint64(1) else 1.0
            keys[p] = (np.int64(h >> shift) << 32) | p
        keys[:n].sort()
        p = 0
        while p < n:
            column, value = keys[p] >> 32, 0.0
            while p < n and keys[p] >> 32 == column:
                at = keys[p] & 0xFFFFFFFF
                value += signs[at] * data[begin + at]
                p += 1
            new_indices[filled] = column
            new_data[filled] = value
            norm2[i] += np.float64(new_data[filled]) ** 2
            filled += 1
        new_indptr[i + 1] = filled
    return new_data[:filled].copy(), new_indices[:filled].copy(), new_indptr, norm2
