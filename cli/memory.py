"""Configuration of the C library's memory allocator."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt


def give_memory_back(least: int = 2**20, kept: int | None = None) -> None:
    """Return freed arrays of at least `least` bytes to the system at once.

    By default, glibc keeps arrays of up to 32 MB in heaps, which fragment: a fit with --memory 100M takes 209
    MB and more, but 140 MB with this setting. A heap keeps `kept` free bytes of smaller arrays, by default
    128 KB, because returning memory and allocating it again costs a page fault for every 4 KB.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, least)
            if kept is not None:
                ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, kept)
