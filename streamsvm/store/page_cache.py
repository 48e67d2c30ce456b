"""What the system keeps in memory of a store's files: asked for ahead of use, given up behind it."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@functools.cache
def room() -> int:
    """Bytes of memory for this process and its files: the machine's, or its control group's limit."""
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
            with contextlib.suppress(OSError, ValueError):  # not ours to see, or "max"
                limits.append(int((folder / name).read_text()))
            if folder == root:
                break
    return min(limits)


def announce(file: Path) -> None:
    """Let the system begin to read a file; that it is missing is for the reader to say."""
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # or a pipe in its place would keep us
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(descriptor)


def forget(descriptor: int) -> None:
    """Let the system drop what it keeps of a file.

    What is read once a pass would else push out the weights and duals, which are memory-mapped and used
    all the time: under a tight limit a pass then takes twice as long (docs/store.md).
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
