"""Checks of rows before compiled code, which does not check bounds, may read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Elements checked at a time: the values and their flags stay in the processor's cache.
PIECE_ELEMENTS = 2**16


def first_true(flags: np.ndarray) -> int | None:
    """Return the position of the first element that is true, or None."""
    return int(np.argmax(flags)) if flags.any() else None


def first_false(flags: np.ndarray) -> int | None:
    """Return the position of the first element that is false, or None."""
    return None if flags.all() else int(np.argmin(flags))


def first_outside(numbers: np.ndarray, stop: int, start: int = 0) -> int | None:
    """Return the position of the first of some integers that is not in ``start..stop - 1``, or None."""
    if not len(numbers) or start <= int(numbers.min()) <= int(numbers.max()) < stop:
        return None
    return first_true((numbers < start) | (numbers >= stop))


def first_no_amount(values: np.ndarray) -> int | None:
    """Return the position of the first value that is not a finite number from 0 on, or None."""
    return first_false(np.isfinite(values) & (values >= 0))


def row_of(indptr: np.ndarray, element: int) -> int:
    """Return the row that an element is in; `indptr` says where each begins."""
    return int(np.searchsorted(indptr, element, "right")) - 1


class Violation(NamedTuple):
    """First element of `array` (``"data"`` or ``"indices"``) that breaks a rule, and the reason."""

    array: str
    element: int
    reason: str


def find_violation(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_features: int
) -> Violation | None:
    """Find a value that is not finite, or an index that is out of range or not above the one before it.

    Parameters
    ----------
    data : ndarray of float32 or float64, shape (nnz,)
    indices : ndarray of int32 or int64, shape (nnz,)
        Contiguous, as `data` is. Within a row they must be strictly increasing.
    indptr : ndarray of int64, shape (n_rows + 1,)
        Monotonic, from 0 to `nnz`.
    n_features : int

    Returns
    -------
    Violation or None
    """
    flags = np.empty(PIECE_ELEMENTS, np.bool_)
    for start in range(0, len(data), PIECE_ELEMENTS):
        part = data[start : start + PIECE_ELEMENTS]
        at = first_false(np.isfinite(part, out=flags[: len(part)]))
        if at is not None:
            return Violation("data", start + at, "a value is not finite")
    return find_index_violation(indices, indptr, n_features, "index")


def find_index_violation(indices: np.ndarray, indptr: np.ndarray, end: int, what: str) -> Violation | None:
    """Find an index that is not below `end`, or not above the one before it in its row; `what` names it."""
    nnz = len(indices)
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))  # numbers below 0 become very large
    flags = np.empty(PIECE_ELEMENTS, np.bool_)
    for start in range(0, nnz, PIECE_ELEMENTS):
        stop = min(start + PIECE_ELEMENTS, nnz)
        if int(unsigned[start:stop].max()) >= end:
            at = start + int(np.argmax(unsigned[start:stop] >= end))
            return Violation("indices", at, f"{what} {indices[at]} is outside 0..{end - 1}")
        # Pair p compares elements p and p + 1; pairs that span two rows are always allowed.
        last_pair = min(stop, nnz - 1)
        lower, upper = indices[start:last_pair], indices[start + 1 : last_pair + 1]
        rising = np.greater(upper, lower, out=flags[: len(lower)])
        first, last = np.searchsorted(indptr, (start + 1, last_pair + 1))
        rising[indptr[first:last] - (start + 1)] = True
        if (place := first_false(rising)) is not None:
            at = start + 1 + place
            reason = f"{what} {indices[at]} is not above {indices[at - 1]}, the one before it in its row"
            return Violation("indices", at, reason)
    return None


def first_labels(codes: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Return the first label code of each row, int32 of shape (n_rows,); -1 for rows without a label."""
    starts, filled = indptr[:-1], indptr[1:] > indptr[:-1]
    first = np.full(len(starts), -1, np.int32)
    first[filled] = codes[starts[filled]]
    return first


def row_norms(data: np.ndarray, indptr: np.ndarray) -> np.ndarray:
    """Compute the squared norm of each row; the bits do not depend on how rows are batched.

    Parameters
    ----------
    data : ndarray of float, shape (nnz,)
    indptr : ndarray of int64, shape (n_rows + 1,)
        From 0 to `nnz`.

    Returns
    -------
    ndarray of float64, shape (n_rows,)
        Infinite where the square overflows.
    """
    norms = np.zeros(len(indptr) - 1, np.float64)
    filled = np.flatnonzero(indptr[1:] > indptr[:-1])  # reduceat would give an empty row the next row's value
    space = np.empty(0)
    for start, stop in row_pieces(indptr[filled], len(data), PIECE_ELEMENTS):
        part = filled[start:stop]
        lo, hi = int(indptr[part[0]]), int(indptr[part[-1] + 1])
        if hi - lo > len(space):
            space = np.empty(max(hi - lo, PIECE_ELEMENTS))
        with np.errstate(over="ignore", invalid="ignore"):  # callers refuse such norms and name the row
            squares = np.square(data[lo:hi], dtype=np.float64, out=space[: hi - lo])
            norms[part] = np.add.reduceat(squares, indptr[part] - lo)
    return norms


def row_pieces(starts: np.ndarray, end: int, target: int = 2**20) -> list[tuple[int, int]]:
    """Cut rows that begin at `starts`, the last of which ends at `end`, into ranges of rows.

    Each range has about `target` elements, or one row that has more.
    """
    cuts, row = [], 0
    while row < len(starts):
        bound = min(int(starts[row]) + target, end)
        stop = max(row + 1, int(np.searchsorted(starts, bound))) if bound < end else len(starts)
        cuts.append((row, stop))
        row = stop
    return cuts
