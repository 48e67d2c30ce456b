"""Decode gzip-compressed chunks of HDF5 datasets with several threads.

libhdf5 itself decodes one chunk at a time, under one lock for all files.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import h5py
import numpy as np

from streamsvm.store.chunk_reader import copy_bytes, inflate

_DEFLATE, _SHUFFLE = 1, 2  # HDF5 filter numbers
HasChunks = Callable[[int, int], bool]  # (first, end): whether rows ``first:end`` of the grid are complete


def complete_rows(dataset: h5py.Dataset) -> np.ndarray | None:
    """Return a mask of the complete rows of the chunk grid, or None if no chunk is missing."""
    if dataset.chunks is None:
        return None
    grid = [-(-n // size) for n, size in zip(dataset.shape, dataset.chunks, strict=True)]
    if dataset.id.get_num_chunks() == math.prod(grid):
        return None
    counts = np.zeros(grid[0], np.int64)

    def count(chunk: Any) -> None:
        counts[chunk.chunk_offset[0] // dataset.chunks[0]] += 1

    dataset.id.chunk_iter(count)
    return counts == math.prod(grid[1:])


class Hdf5Chunks:
    """Chunks of a one-dimensional dataset whose last filter is gzip, optionally after a byte shuffle."""

    def __init__(self, dataset: h5py.Dataset, filters: list[int], has_chunks: HasChunks) -> None:
        self._dataset, self._filters, self._has_chunks = dataset, filters, has_chunks
        self.dtype = dataset.dtype
        self.chunk = int(dataset.chunks[0])
        self.fill = dataset.fillvalue

    def fetch(self, number: int, local: threading.local) -> Any:
        if not self._has_chunks(number, number + 1):
            return None
        return self._dataset.id.read_direct_chunk((number * self.chunk,))

    def expect(self, number: int) -> None:
        """Do nothing, because only libhdf5 knows the file position of a chunk."""

    def decode(self, payload: Any, out: np.ndarray) -> None:
        mask, content = payload
        used = [each for place, each in enumerate(self._filters) if not mask >> place & 1]
        shuffled = _SHUFFLE in used
        target = np.empty(len(out), self.dtype) if shuffled else out
        if _DEFLATE in used:
            inflate(content, target)
        else:
            copy_bytes(content, target)
        if shuffled:
            planes = target.view(np.uint8).reshape(self.dtype.itemsize, len(out))
            out.view(np.uint8).reshape(len(out), self.dtype.itemsize)[:] = planes.T


def compressed_chunks(dataset: h5py.Dataset, has_chunks: HasChunks) -> Hdf5Chunks | None:
    """Return the chunks of a dataset if they can be decoded without libhdf5, else None."""
    numbers = dataset.dtype.kind in "fiub" and dataset.dtype.isnative and sys.byteorder == "little"
    if not numbers or dataset.chunks is None or len(dataset.chunks) != 1:
        return None
    properties = dataset.id.get_create_plist()
    filters = [int(properties.get_filter(i)[0]) for i in range(properties.get_nfilters())]
    if filters not in ([_DEFLATE], [_SHUFFLE, _DEFLATE]):
        return None
    return Hdf5Chunks(dataset, filters, has_chunks)
