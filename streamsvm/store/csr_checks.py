"""What rows must satisfy before compiled code, which trusts them, may see them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Elements looked at together: their flags and the values stay in the processor's cache.
PIECE = 2**16


class Fault(NamedTuple):
    """The first element of `array` (``"data"`` or ``"indices"``) that is not as it must be."""

    array: str
    element: int
    reason: str


def find_fault(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int) -> Fault | None:
    """Look for values that are not finite, and indices out of range or not strictly increasing in a row.

    `indptr` must be monotonic, begin with 0 and end with ``len(indices)``; the arrays are contiguous.
    """
    nnz = len(indices)
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))  # below 0 becomes above n_features
    flags = np.empty(PIECE, np.bool_)
    for start in range(0, nnz, PIECE):
        stop = min(start + PIECE, nnz)
        finite = np.isfinite(data[start:stop], out=flags[: stop - start])
        if not finite.all():
            return Fault("data", start + int(np.argmin(finite)), "a value is not finite")
        if int(unsigned[start:stop].max()) >= n_features:
            at = start + int(np.argmax(unsigned[start:stop] >= n_features))
            return Fault("indices", at, f"index {indices[at]} is outside 0..{n_features - 1}")
        # Pair p compares elements p and p + 1; a pair across two rows is always in order.
        end = min(stop, nnz - 1)
        rising = np.greater(indices[start + 1 : end + 1], indices[start:end], out=flags[: end - start])
        first, last = np.searchsorted(indptr, (start + 1, end + 1))
        rising[indptr[first:last] - (start + 1)] = True
        if not rising.all():
            at = start + 1 + int(np.argmin(rising))
            return Fault("indices", at, f"index {indices[at]} does not follow {indices[at - 1]} in its row")
    return None


def is_monotonic(indptr: np.ndarray) -> bool:
    return bool((indptr[1:] >= indptr[:-1]).all())


def row_norms(data: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Squared norm of each row in float64, the same bits however rows are batched.

    `indptr` begins with 0 and ends with ``len(data)``.
    """
    norms = np.zeros(len(indptr) - 1, np.float64)
    filled = np.flatnonzero(indptr[1:] > indptr[:-1])  # reduceat would give an empty row its successor
    for start, stop in row_pieces(indptr[filled], len(data)):
        part = filled[start:stop]
        lo, hi = int(indptr[part[0]]), int(indptr[part[-1] + 1])
        with np.errstate(over="ignore"):  # the callers refuse infinite norms, with the row's number
            squares = np.square(data[lo:hi], dtype=np.float64)
            norms[part] = np.add.reduceat(squares, indptr[part] - lo)
    return norms


def row_pieces(starts: np.ndarray, end: int, target: int = 2**20) -> list[tuple[int, int]]:
    """Cut rows that begin at `starts` and end at `end` into ranges of about `target` elements."""
    cuts, row = [], 0
    while row < len(starts):
        bound = min(int(starts[row]) + target, end)
        stop = max(row + 1, int(np.searchsorted(starts, bound)))
        cuts.append((row, stop))
        row = stop
    return cuts
