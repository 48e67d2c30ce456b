"""Chunks of HDF5 arrays compressed by gzip, decoded by several threads.

libhdf5 decodes one chunk at a time under one lock for all files.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import h5py
import numpy as np

from streamsvm.store.chunk_reader import copy_bytes, inflate

_DEFLATE, _SHUFFLE = 1, 2  # numbers of filters


def chunk_sizes(dataset: h5py.Dataset) -> np.ndarray:
    """Return the bytes of each chunk of whole rows in the file, 0 for those that were never written.

    All are read at once: to find one, the library searches all chunks.
    """
    chunk = dataset.chunks[0]
    sizes = np.zeros(-(-len(dataset) // chunk), np.int64)

    def take(found: Any) -> None:
        sizes[found.chunk_offset[0] // chunk] = found.size

    dataset.id.chunk_iter(take)
    return sizes


class Hdf5Chunks:
    """Chunks of a dataset of one axis whose last filter is gzip, perhaps after a byte shuffle."""

    def __init__(self, dataset: h5py.Dataset, filters: list[int]) -> None:
        self._dataset = dataset
        self._filters = filters
        self.dtype = dataset.dtype
        self.chunk = int(dataset.chunks[0])
        self.fill = dataset.fillvalue
        self._lock = threading.Lock()
        self._sizes: np.ndarray | None = None

    def fetch(self, number: int, local: threading.local) -> Any:
        with self._lock:
            if self._sizes is None:
                self._sizes = chunk_sizes(self._dataset)
        if not self._sizes[number]:
            return None
        return self._dataset.id.read_direct_chunk((number * self.chunk,))

    def expect(self, number: int) -> None:
        """Do nothing: only the library knows the position of a chunk in the file."""

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


def compressed_chunks(dataset: h5py.Dataset) -> Hdf5Chunks | None:
    """Return the chunks of a dataset if they can be decoded here; None for other filters or none."""
    numbers = dataset.dtype.kind in "fiub" and dataset.dtype.isnative and sys.byteorder == "little"
    if not numbers or dataset.chunks is None or len(dataset.chunks) != 1:
        return None
    properties = dataset.id.get_create_plist()
    filters = [int(properties.get_filter(i)[0]) for i in range(properties.get_nfilters())]
    if filters not in ([_DEFLATE], [_SHUFFLE, _DEFLATE]):
        return None
    return Hdf5Chunks(dataset, filters)
