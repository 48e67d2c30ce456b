"""Ranges of row or element numbers, stored as arrays because there may be hundreds of thousands."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_SHORT = 32  # mean range length below which elements are copied by index

Ranges = np.ndarray  # int64, shape (m, 2): starts and stops


def span(start: int, stop: int) -> Ranges:
    return np.array([[start, stop]], np.int64)


def spans(n: int, size: int) -> Iterator[Ranges]:
    """Yield successive ranges of length `size` that cover ``0:n``; the last range may be shorter."""
    return (span(start, min(start + size, n)) for start in range(0, n, size))


def lengths(ranges: Ranges) -> np.ndarray:
    """Return the length of each range, int64."""
    return ranges[:, 1] - ranges[:, 0]


def numbers_in(ranges: Ranges) -> np.ndarray:
    """Return all numbers in the ranges, one range after the other, int64."""
    sizes = lengths(ranges)
    ends = np.cumsum(sizes)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(ranges[:, 0] - (ends - sizes), sizes)


def number_at(ranges: Ranges, at: int) -> int:
    """Return ``numbers_in(ranges)[at]``."""
    ends = np.cumsum(lengths(ranges))
    place = int(np.searchsorted(ends, at, "right"))
    return int(ranges[place, 1] + at - ends[place])


def ranges_of(numbers: np.ndarray) -> Ranges:
    """Return the fewest ranges for which `numbers_in` returns `numbers`."""
    last = np.flatnonzero(np.diff(numbers) != 1)
    first = np.concatenate([[0], last + 1])[: len(numbers)]
    return np.column_stack([numbers[first], numbers[np.append(last, len(numbers) - 1)[: len(numbers)]] + 1])


def split_ranges(ranges: Ranges, borders: np.ndarray | int) -> tuple[np.ndarray, Ranges]:
    """Split ranges at borders.

    Parameters
    ----------
    ranges : Ranges
    borders : int, or ndarray of int64, shape (n_parts + 1,)
        Number whose multiples are the borders, or increasing borders that enclose all ranges.

    Returns
    -------
    parts : ndarray of int64, shape (m,)
        Part that contains each returned range; part i is ``borders[i]:borders[i + 1]``.
    ranges : Ranges, shape (m, 2)
        Non-empty split ranges, in the order of the input.
    """
    ranges = ranges[lengths(ranges) > 0]
    starts, lasts = ranges[:, 0], ranges[:, 1] - 1
    if isinstance(borders, int):
        first, last = starts // borders, lasts // borders
    else:
        first, last = (np.searchsorted(borders, numbers, "right") - 1 for numbers in (starts, lasts))
    parts = numbers_in(np.column_stack([first, last + 1]))
    if isinstance(borders, int):
        begins, ends = parts * borders, (parts + 1) * borders
    else:
        begins, ends = borders[parts], borders[parts + 1]
    whole = np.repeat(ranges, last + 1 - first, axis=0)
    divided = np.column_stack([np.maximum(whole[:, 0], begins), np.minimum(whole[:, 1], ends)])
    filled = lengths(divided) > 0
    return parts[filled], divided[filled]


def copy_ranges(target: np.ndarray, to: Ranges, source: np.ndarray, ranges: Ranges) -> None:
    """Copy ranges of `source` to ranges of `target` with the same lengths."""
    if lengths(ranges).sum() < _SHORT * len(ranges):
        target[numbers_in(to)] = source[numbers_in(ranges)]
        return
    for (first, end), (start, stop) in zip(to.tolist(), ranges.tolist(), strict=True):
        target[first:end] = source[start:stop]
