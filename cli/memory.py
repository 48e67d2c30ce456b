"""Configure the memory allocator of the C library."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1


def return_freed_memory(min_bytes: int = 2**20, kept_bytes: int | None = None) -> None:
    """Make the allocator return freed arrays of at least `min_bytes` to the system at once.

    By default, glibc allocates arrays of up to 32 MB in heaps, which fragment. A fit with --memory 100M then
    takes at least 209 MB instead of 140 MB. If `kept_bytes` is set, each heap keeps up to that much free.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, min_bytes)
            if kept_bytes is not None:
                ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, kept_bytes)
