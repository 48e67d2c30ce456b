"""Arrays of weights, in memory or in memory-mapped files."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from streamsvm import durable

LARGEST_FILE = 2**43  # bytes: ext4 ends at 16 TB


def map_array(
    path: Path | None, shape: tuple[int, int], dtype: np.dtype, *, fresh: bool = True
) -> np.ndarray:
    """Return an array in the file `path`, or in memory if that is None.

    It is zero, and pages that stay zero take no space on disk. If not `fresh`, the file keeps what it
    holds, and is only extended.

    The file may be larger than memory. The operating system then writes changed pages to disk over and
    over: more than everything else that a fit writes.
    """
    size = shape[0] * shape[1] * dtype.itemsize
    if path is None:
        if size == 0:
            return np.zeros(shape, dtype)
        # Aligned to a page, as 64-byte vectors need; private, so that it counts as this process's memory.
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return np.frombuffer(memory, dtype).reshape(shape)
    with durable.open_file(path, "wb" if fresh else "r+b") as file:
        file.truncate(size)
    if size == 0:
        return np.zeros(shape, dtype)
    with durable.open_file(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), size)
    # Rows are accessed in random order: reading ahead would fetch megabytes for each of a few hundred
    # bytes, and under a tight memory limit evict the rows in use.
    mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, dtype).reshape(shape)
