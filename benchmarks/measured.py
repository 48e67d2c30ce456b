"""Run a command under a hard memory limit, with cold caches, and measure what it takes."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_SAMPLED_EVERY = 0.1  # seconds: private memory, for which no group keeps a maximum
_SECTOR = 512


class Cost(NamedTuple):
    """What a command took; None if the system does not report it."""

    seconds: float
    user_seconds: float
    system_seconds: float
    peak_memory: int | None  # of the group: the pages of files, too
    private_memory: int | None  # of the group without them, as sampled
    read_bytes: int  # by the command from the disk
    written_bytes: int  # by the command to files
    disk_read_bytes: int | None  # of the whole disk meanwhile, others' too
    disk_written_bytes: int | None
    disk_busy: float | None  # fraction of the time in which the disk had something to do
    output: str


class Failed(Exception):
    """A command ended with an error; the message contains its output."""


class Group:
    """A memory cgroup, version 2 or 1, below our own; root or the owner of a subtree can make one.

    Parameters
    ----------
    size : int
        The most bytes of its processes, including the pages of files that they read and wrote.

    Raises
    ------
    OSError
        If no cgroup can be made.
    """

    _PEAK = "memory.max_usage_in_bytes", "memory.peak"

    def __init__(self, size: int) -> None:
        self.size = size
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, limits = Path("/sys/fs/cgroup"), {"memory.max": size, "memory.swap.max": 0}
            elif "memory" in controllers.split(","):
                root, limits = Path("/sys/fs/cgroup/memory"), {"memory.limit_in_bytes": size}
            else:
                continue
            self.path = root / path.lstrip("/") / f"streamsvm-scale-{os.getpid()}"
            with contextlib.suppress(OSError):
                self.path.mkdir()
                try:
                    for name, value in limits.items():
                        if (self.path / name).exists() or name != "memory.swap.max":
                            (self.path / name).write_text(str(value))
                except OSError:
                    self.path.rmdir()
                    continue
                return
        raise OSError("no memory cgroup can be made here")

    def enter(self) -> None:
        """Put the calling process into the group."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> int | None:
        """The peak memory of its processes."""
        for name in self._PEAK:
            with contextlib.suppress(OSError):
                return int((self.path / name).read_text())
        return None

    def private(self) -> int:
        """The current memory of its processes, without pages of files."""
        words = (self.path / "memory.stat").read_text().split()
        stat = dict(zip(words[::2], words[1::2], strict=True))
        return int(stat.get("rss") or stat.get("anon") or 0)

    def close(self) -> None:
        self.path.rmdir()


@contextlib.contextmanager
def grouped(size: int | None) -> Iterator[Group | None]:
    """A group for one command, or none if `size` is None."""
    if size is None:
        yield None
        return
    group = Group(size)
    try:
        yield group
    finally:
        group.close()


def run(words: Sequence[object], *, cwd: Path, limit: int | None) -> Cost:
    """Run a command to its end in at most `limit` bytes of memory; `Failed` if it fails."""
    with grouped(limit) as group:
        before, disk, begin = resource.getrusage(resource.RUSAGE_CHILDREN), disk_counts(cwd), time.monotonic()
        process = subprocess.Popen(
            list(map(str, words)),
            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=group.enter if group else None,
        )  # fmt: skip
        private = 0
        while True:
            try:
                output, errors = process.communicate(timeout=_SAMPLED_EVERY)
                break
            except subprocess.TimeoutExpired:
                private = max(private, group.private() if group else 0)
        seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            raise Failed(f"{' '.join(map(str, words))}: exit code {process.returncode}\n{errors}")
        read, written, busy = (
            None if a is None or b is None else b - a
            for a, b in zip(disk, disk_counts(cwd), strict=True)
        )  # fmt: skip
        return Cost(
            seconds,
            after.ru_utime - before.ru_utime,
            after.ru_stime - before.ru_stime,
            group.peak() if group else None,
            private if group else None,
            _SECTOR * (after.ru_inblock - before.ru_inblock),
            _SECTOR * (after.ru_oublock - before.ru_oublock),
            None if read is None else _SECTOR * read,
            None if written is None else _SECTOR * written,
            None if busy is None else busy / 1000 / seconds,
            output,
        )


def disk_counts(folder: Path) -> tuple[int | None, int | None, int | None]:
    """Sectors read, sectors written, and milliseconds busy of the disk that a folder is on."""
    device = os.stat(folder).st_dev
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            fields = line.split()
            if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
                return int(fields[5]), int(fields[9]), int(fields[12])
    return None, None, None


def drop_caches(folder: Path) -> None:
    """Drop the page cache of all files below a folder, after they are written to the disk."""
    os.sync()
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def size_of(path: Path) -> int:
    """The size of a file, or of all files below a folder, in bytes."""
    paths = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in paths if each.is_file())
