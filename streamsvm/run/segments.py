"""Weights of a commit in one file: the parts of arrays that are not zero."""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import RunError

SEGMENT_BYTES = 2**16  # so that features that are far apart take little disk
HEADER = 3  # int64 numbers before a segment: of its array, its first element, and its elements


def segments(array: np.ndarray, path: Path | None) -> Iterator[slice]:
    """Yield the segments of the elements of an array, without holes of the file that it is mapped from."""
    step = SEGMENT_BYTES // array.itemsize
    if path is None:
        yield from (slice(begin, min(begin + step, array.size)) for begin in range(0, array.size, step))
        return
    at = 0
    with durable.open_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) < array.nbytes:  # the end would pass for a hole
            raise RunError(f"{path} is cut short: {size:,} of {array.nbytes:,} bytes")
        while at < array.nbytes:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
            begin = at // SEGMENT_BYTES * step
            if begin < array.size:
                yield slice(begin, min(begin + step, array.size))
            at = (at // SEGMENT_BYTES + 1) * SEGMENT_BYTES


def rows_in_use(arrays: Sequence[tuple[np.ndarray, Path | None]]) -> np.ndarray:
    """Return ranges of rows, ascending, outside of which arrays of as many columns are holes of files."""
    found, columns = [[0, 0]], arrays[0][0].shape[1]
    for part in heapq.merge(*(segments(*each) for each in arrays), key=lambda part: part.start):
        begin, end = part.start // columns, -(-part.stop // columns)
        if begin > found[-1][1]:
            found.append([begin, end])
        found[-1][1] = max(found[-1][1], end)
    return np.array(found)


def multiply(array: np.ndarray, path: Path | None, factor: float) -> None:
    """Multiply an array by `factor`, without writing zeros into holes of the file that it is mapped from."""
    flat = array.reshape(-1)
    for part in segments(array, path):
        np.multiply(flat[part], array.dtype.type(factor), out=flat[part], where=flat[part] != 0)


def state_of(arrays: Sequence[tuple[np.ndarray, Path | None]]) -> Iterator[np.ndarray]:
    """Yield a header and the elements of each segment of the arrays that is not zero."""
    for number, (array, path) in enumerate(arrays):
        flat = array.reshape(-1)
        for part in segments(array, path):
            if flat[part].any():
                yield np.array([number, part.start, part.stop - part.start])
                yield flat[part]


def restore_arrays(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Read the segments in a file, whose checksum was checked, into arrays of zeros."""
    with durable.named(path), durable.open_file(path) as file:
        while header := file.read(8 * HEADER):
            number, begin, n = np.frombuffer(header, np.int64).tolist() if len(header) == 24 else (-1, 0, 0)
            is_there = 0 <= number < len(arrays) and 0 <= begin <= begin + n <= arrays[number].size
            part = arrays[number].reshape(-1)[begin : begin + n].view(np.uint8) if is_there else None
            if part is None or file.readinto(part.data) != len(part):  # type: ignore[attr-defined]
                raise RunError(f"{path} is damaged: impossible numbers")
