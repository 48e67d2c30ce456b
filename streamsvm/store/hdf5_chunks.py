"""Compressed chunks of HDF5 arrays that others wrote: gzip and LZF, decoded by several threads.

libhdf5 decodes one chunk at a time under one lock for all files.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import h5py
import numpy as np

from streamsvm.store.chunk_reader import inflate

_DEFLATE, _SHUFFLE, _LZF = 1, 2, 32000  # numbers of filters
_LARGEST = 2  # a chunk may take so many times the bytes of its elements


class Hdf5Chunks:
    """The chunks of a dataset of one axis whose last filter is gzip or LZF, perhaps after a byte shuffle."""

    def __init__(self, dataset: h5py.Dataset, filters: list[int]) -> None:
        self._dataset = dataset
        self._filters = filters
        self.dtype = dataset.dtype
        self.chunk = int(dataset.chunks[0])
        self.fill = dataset.fillvalue

    def fetch(self, number: int, local: threading.local) -> Any:
        identity, at = self._dataset.id, (number * self.chunk,)
        found = identity.get_chunk_info_by_coord(at)
        if found.byte_offset is None:
            return None
        if found.size > _LARGEST * self.chunk * self.dtype.itemsize + 2**10:
            raise ValueError(f"the chunk claims {found.size} bytes")
        return identity.read_direct_chunk(at)

    def expect(self, number: int) -> None:
        """Do nothing: where a chunk is in the file, the library knows."""

    def decode(self, payload: Any, out: np.ndarray) -> None:
        mask, content = payload
        used = [each for place, each in enumerate(self._filters) if not mask >> place & 1]
        target = out
        shuffled = _SHUFFLE in used
        if shuffled:
            target = np.empty(len(out), self.dtype)
        if _DEFLATE in used:
            inflate(content, target)
        elif _LZF in used:
            from streamsvm.kernels.lzf import decompress

            source, space = np.frombuffer(content, np.uint8), target.view(np.uint8)
            if decompress(source, space) != len(space):
                raise ValueError("decompression failure")
        elif len(content) == target.nbytes:
            target.view(np.uint8)[:] = np.frombuffer(content, np.uint8)
        else:
            raise ValueError(f"the chunk has {len(content)} bytes instead of {target.nbytes}")
        if shuffled:
            planes = target.view(np.uint8).reshape(self.dtype.itemsize, len(out))
            out.view(np.uint8).reshape(len(out), self.dtype.itemsize)[:] = planes.T


def compressed_chunks(dataset: h5py.Dataset) -> Hdf5Chunks | None:
    """The chunks of a dataset if they can be decoded here; None for other filters, and without any."""
    numbers = dataset.dtype.kind in "fiub" and dataset.dtype.isnative and sys.byteorder == "little"
    if not numbers or dataset.chunks is None or len(dataset.chunks) != 1:
        return None
    properties = dataset.id.get_create_plist()
    filters = [int(properties.get_filter(i)[0]) for i in range(properties.get_nfilters())]
    if filters not in ([_DEFLATE], [_LZF], [_SHUFFLE, _DEFLATE], [_SHUFFLE, _LZF]):
        return None
    return Hdf5Chunks(dataset, filters)
