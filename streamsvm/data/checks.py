"""Validate rows for compiled code, which does not check bounds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

PIECE_ELEMENTS = 2**16  # elements processed at a time, few enough for the processor cache


def first_true(flags: np.ndarray) -> int | None:
    """Return the position of the first true element, or None."""
    return int(np.argmax(flags)) if flags.any() else None


def first_false(flags: np.ndarray) -> int | None:
    """Return the position of the first false element, or None."""
    return None if flags.all() else int(np.argmin(flags))


def first_outside(numbers: np.ndarray, stop: int, start: int = 0) -> int | None:
    """Return the position of the first integer outside ``start..stop - 1``, or None."""
    if not len(numbers) or start <= int(numbers.min()) <= int(numbers.max()) < stop:
        return None
    return first_true((numbers < start) | (numbers >= stop))


def first_no_amount(values: np.ndarray) -> int | None:
    """Return the position of the first negative or non-finite value, or None."""
    return first_false(np.isfinite(values) & (values >= 0))


def row_of(indptr: np.ndarray, element: int) -> int:
    """Return the index of the row that contains `element`, given the row pointers `indptr`."""
    return int(np.searchsorted(indptr, element, "right")) - 1


class Violation(NamedTuple):
    """Invalid element of `array` (``"data"`` or ``"indices"``), with the reason why it is invalid."""

    array: str
    element: int
    reason: str


def find_violation(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> Violation | None:
    """Find a value that is not finite, or an index that is out of range or not above the one before it.

    `data` (float32 or float64) and `indices` (int32 or int64) are contiguous and have the shape (nnz,).
    `indptr` is int64 of shape (n_rows + 1,) and increases from 0 to nnz.
    """
    flags = np.empty(PIECE_ELEMENTS, np.bool_)
    for start in range(0, len(data), PIECE_ELEMENTS):
        part = data[start : start + PIECE_ELEMENTS]
        at = first_false(np.isfinite(part, out=flags[: len(part)]))
        if at is not None:
            return Violation("data", start + at, "a value is not finite")
    return find_index_violation(indices, indptr, n_features, "index")


def find_index_violation(indices: np.ndarray, indptr: np.ndarray, end: int, what: str) -> Violation | None:
    """Find an index outside ``0..end - 1`` or not above its predecessor; `what` names it in the reason."""
    nnz = len(indices)
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))  # negative numbers become very large
    flags = np.empty(PIECE_ELEMENTS, np.bool_)
    for start in range(0, nnz, PIECE_ELEMENTS):
        stop = min(start + PIECE_ELEMENTS, nnz)
        if int(unsigned[start:stop].max()) >= end:
            at = start + int(np.argmax(unsigned[start:stop] >= end))
            return Violation("indices", at, f"{what} {indices[at]} is outside 0..{end - 1}")
        # Pair p compares elements p and p + 1. Pairs that span two rows are always valid.
        last_pair = min(stop, nnz - 1)
        lower, upper = indices[start:last_pair], indices[start + 1 : last_pair + 1]
        rising = np.greater(upper, lower, out=flags[: len(lower)])
        first, last = np.searchsorted(indptr, (start + 1, last_pair + 1))
        rising[indptr[first:last] - (start + 1)] = True
        if (place := first_false(rising)) is not None:
            at = start + 1 + place
            reason = f"{what} {indices[at]} is not above {indices[at - 1]}, its predecessor in the row"
            return Violation("indices", at, reason)
    return None


def first_labels(codes: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the first label code of each row, int32 of shape (n_rows,); -1 for a row without labels."""
    starts, filled = indptr[:-1], indptr[1:] > indptr[:-1]
    first = np.full(len(starts), -1, np.int32)
    first[filled] = codes[starts[filled]]
    return first


def row_norms(data: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the squared norm of each row, float64 of shape (n_rows,), with inf on overflow.

    The norms are bit-identical for any division of the rows into batches. `indptr` runs from 0 to nnz.
    """
    norms = np.zeros(len(indptr) - 1, np.float64)
    filled = np.flatnonzero(indptr[1:] > indptr[:-1])  # reduceat is wrong for empty rows
    space = np.empty(0)
    for start, stop in row_pieces(indptr[filled], len(data), PIECE_ELEMENTS):
        part = filled[start:stop]
        lo, hi = int(indptr[part[0]]), int(indptr[part[-1] + 1])
        if hi - lo > len(space):
            space = np.empty(max(hi - lo, PIECE_ELEMENTS))
        with np.errstate(over="ignore", invalid="ignore"):  # callers reject infinite norms and name the row
            squares = np.square(data[lo:hi], dtype=np.float64, out=space[: hi - lo])
            norms[part] = np.add.reduceat(squares, indptr[part] - lo)
    return norms


def row_pieces(starts: np.ndarray, end: int, target: int = 2**20) -> list[tuple[int, int]]:
    """Divide rows into ranges of about `target` elements, or of one longer row; return (start, stop) bounds.

    `starts` contains the first element of each row, and `end` is the end of the last row.
    """
    cuts, row = [], 0
    while row < len(starts):
        bound = min(int(starts[row]) + target, end)
        stop = max(row + 1, int(np.searchsorted(starts, bound))) if bound < end else len(starts)
        cuts.append((row, stop))
        row = stop
    return cuts
