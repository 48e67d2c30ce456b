"""Write and read committed weights as segments, each of which is a stretch of non-zero pages."""

from __future__ import annotations

import errno
import heapq
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import RunError

PAGE_BYTES = 2**12  # zero pages are not written
_PIECE_BYTES = 2**20
HEADER = 3  # int64 numbers before a segment: array number, first element, length


def pieces(array: np.ndarray, path: Path | None) -> Iterator[slice]:
    """Yield slices of the flattened array, skipping holes in the file from which the array is mapped."""
    for begin, end in _data(path, array.nbytes):
        for at in range(begin, end, _PIECE_BYTES):
            yield slice(at // array.itemsize, min(at + _PIECE_BYTES, end) // array.itemsize)


def _data(path: Path | None, n_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield byte ranges that cover the first `n_bytes` of a file in whole pages, except for holes."""
    if path is None:
        yield 0, n_bytes
        return
    with durable.named(path), durable.open_file(path) as file:
        if (size := os.fstat(file.fileno()).st_size) < n_bytes:  # the missing end would look like a hole
            raise RunError(f"{path} is truncated: {size:,} of {n_bytes:,} bytes")
        end = 0
        while end < n_bytes:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
                hole = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    return
                if error.errno != errno.EINVAL:
                    raise
                begin, hole = end, n_bytes  # the file system does not report holes
            end = min(-(-hole // PAGE_BYTES) * PAGE_BYTES, n_bytes)
            yield begin // PAGE_BYTES * PAGE_BYTES, end


def rows_in_use(arrays: Sequence[tuple[np.ndarray, Path | None]]) -> np.ndarray:
    """Return ascending row ranges that cover all data in arrays with equal numbers of columns."""
    ranges, columns = [[0, 0]], arrays[0][0].shape[1]
    for part in heapq.merge(*(pieces(*each) for each in arrays), key=lambda part: part.start):
        begin, end = part.start // columns, -(-part.stop // columns)
        if begin > ranges[-1][1]:
            ranges.append([begin, end])
        ranges[-1][1] = max(ranges[-1][1], end)
    return np.array(ranges)


def state_of(arrays: Sequence[tuple[np.ndarray, Path | None]]) -> Iterator[np.ndarray]:
    """Yield the header and the elements of each segment."""
    for number, (array, path) in enumerate(arrays):
        flat, page = array.reshape(-1), PAGE_BYTES // array.itemsize
        for part in pieces(array, path):
            bits = flat[part].view(f"u{array.itemsize}")
            pages = np.flatnonzero(np.bitwise_or.reduceat(bits, np.arange(0, len(bits), page)))
            is_end = np.diff(pages, prepend=-2, append=len(bits) + 2) > 1  # a segment ends before the page
            begins, ends = pages[is_end[:-1]] * page, (pages[is_end[1:]] + 1) * page
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                segment = flat[part][begin:end]
                yield np.array([number, part.start + begin, len(segment)])
                yield segment


def restore_arrays(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Read the segments of a file, whose checksum was verified, into arrays of zeros."""
    with durable.named(path), durable.open_file(path) as file:
        while header := file.read(8 * HEADER):
            segment = _destination(path, header, arrays)
            if file.readinto(segment.data) != len(segment):  # type: ignore[attr-defined]
                raise RunError(f"{path} is damaged: its numbers are not valid")


def _destination(path: Path, header: bytes, arrays: Sequence[np.ndarray]) -> np.ndarray:
    if len(header) == 8 * HEADER:
        number, begin, n = np.frombuffer(header, np.int64).tolist()
        if 0 <= number < len(arrays) and 0 <= begin <= begin + n <= arrays[number].size:
            return arrays[number].reshape(-1)[begin : begin + n].view(np.uint8)
    raise RunError(f"{path} is damaged: its numbers are not valid")
