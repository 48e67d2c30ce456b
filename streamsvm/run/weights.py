"""Arrays of weights, in memory or in memory-mapped files."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

from streamsvm import durable
from streamsvm.errors import Call, Remedy, RunError
from streamsvm.text import format_size

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


def check_mapped(path: Path, array: np.ndarray, n_rows: int) -> None:
    """Raise `RunError` unless the file of a mapped array is whole, and its disk can take `n_rows` rows more.

    A mapped file is sparse: a page takes space when it is first written. If there is none left by then, or
    the file was cut short, the operating system ends the process by a signal. So this is to be called
    before rows are written. Nothing is lost either way: a run never resumes from these files.

    Parameters
    ----------
    path : Path
        The file, in a run directory. One that was removed is fine, because its map lives on.
    array : ndarray, shape (n, columns)
        What is mapped.
    n_rows : int
        Rows that may be written next; those that never were need space.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    resume = Call("resume", path.parent)
    if found.st_size < array.nbytes:
        remedy = Remedy("{} continues from the last commit", resume)
        raise RunError(f"{path} was cut short while it was in use", remedy=remedy)
    pages = array.strides[0] // mmap.PAGESIZE + 2  # that a row can be on
    needed = min(n_rows * pages * mmap.PAGESIZE, array.nbytes - 512 * found.st_blocks)
    if needed > (free := durable.free_bytes(path)):
        raise RunError(
            f"{path}: the disk has {format_size(free)} left, and the weights may need {format_size(needed)} "
            "more",
            remedy=Remedy("free some space, then {} continues from the last commit", resume),
        )
