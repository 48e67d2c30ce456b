"""Setting of the C library for memory that is freed."""

from __future__ import annotations

import contextlib
import ctypes
import sys

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of glibc's mallopt


def give_memory_back(least: int = 2**20, kept: int | None = None) -> None:
    """Return the memory of arrays of `least` bytes and more to the system as soon as they are freed.

    By default, glibc keeps arrays of up to 32 MB in heaps, which fragment: a fit with --memory 100M took
    209 MB and more, and takes 140 MB with this setting. Of smaller arrays a heap keeps `kept` bytes, by
    default 128 KB: memory that is given back and taken again costs a page fault for every 4 KB.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, least)
            if kept is not None:
                ctypes.CDLL(None).mallopt(_TRIM_THRESHOLD, kept)
