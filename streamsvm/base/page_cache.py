"""Memory limit of this process, and hints that files should enter or leave the page cache."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@functools.cache
def memory_limit() -> int:
    """Return the memory, in bytes, available to this process and its files in the page cache.

    This is the memory of the machine or, if lower, the limit of the control group.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    lines = []
    with contextlib.suppress(OSError):  # not Linux
        lines = MEMBERSHIP.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, name = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            with contextlib.suppress(OSError, ValueError):  # not visible to this process, or "max"
                limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min(limits)


def will_need(file: Path) -> None:
    """Ask the operating system to preload a file; ignore errors, such as a missing file."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not block
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def dont_need(descriptor: int) -> None:
    """Ask the operating system to drop a file from the page cache.

    Files that are read once per pass would otherwise evict the weights and duals, which are memory-mapped and
    in constant use. Under a tight memory limit a pass would take twice as long (docs/measurements/store.md).
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
