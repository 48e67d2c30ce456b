"""Compiled functions that gather and compress the coefficients of a model, and compute scores with them.

Sparse coefficients are a CSR matrix with one row per feature and sorted indices. A row with many non-zeros is
stored in full, including its zeros, so that it can be added to the scores with vector instructions.
"""

from __future__ import annotations

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import (
    count_bits,
    differing,
    lanes,
    load,
    load_first,
    lowest_bit,
    multiply_add,
    store,
)

FULL = 4  # a row is stored in full, for speed, if more than 1 / FULL of its coefficients are non-zero


@kernel
def gather_rows(current, average_delta, average_scale, columns, piece):
    """Write the given columns of ``current - average_scale * average_delta`` to `piece`."""
    for r in range(piece.shape[0]):
        if len(average_delta) > 0:
            for j in range(piece.shape[1]):
                piece[r, j] = current[r, columns[j]] - average_scale * average_delta[r, columns[j]]
        else:
            for j in range(piece.shape[1]):
                piece[r, j] = current[r, columns[j]]


@inlined
def _bits(piece, r, c):
    left = piece.shape[1] - c
    return differing(load(piece, (r, c)) if left >= lanes(piece) else load_first(piece, (r, c), left), 0.0)


@kernel
def compress_rows(piece, data, indices, ends):
    """Write `piece` in sparse form, and the end of each row to `ends`; return the number of entries."""
    n, k = 0, piece.shape[1]
    for r in range(piece.shape[0]):
        size = 0
        for c in range(0, k, lanes(piece)):
            size += count_bits(_bits(piece, r, c))
        if size * FULL > k:
            for c in range(k):
                data[n + c] = piece[r, c]
                indices[n + c] = c
            n += k
        elif size > 0:
            for first in range(0, k, lanes(piece)):
                bits = _bits(piece, r, first)
                while bits != 0:
                    c = first + lowest_bit(bits)
                    bits &= bits - 1
                    data[n] = piece[r, c]
                    indices[n] = c
                    n += 1
        ends[r] = n
    return n


@kernel
def score_sparse_rows(rows, begin, end, data, indices, indptr, scores):
    """Like `score_rows`, but with sparse coefficients; `scores` must have one column per class, unpadded."""
    k = scores.shape[1]
    for i in range(begin, end):
        r = i - begin
        for c in range(k):
            scores[r, c] = 0
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            f, x = rows.indices[p], rows.data[p]
            first, last = indptr[f], indptr[f + 1]
            if last - first < k:
                for q in range(first, last):
                    scores[r, indices[q]] += x * data[q]
                continue
            c = 0
            while c + lanes(data) <= k:
                store(scores, (r, c), multiply_add(x, load(data, first + c), load(scores, (r, c))))
                c += lanes(data)
            while c < k:
                scores[r, c] += x * data[first + c]
                c += 1
