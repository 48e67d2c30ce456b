"""Run a command, if asked for under a hard memory limit, and measure what it takes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_SAMPLED_EVERY = 0.1  # seconds: private memory, for which no group keeps a maximum
_SECTOR = 512


class Cost(NamedTuple):
    """What a command took; None if it ran without a limit, which is what counts it."""

    seconds: float
    user_seconds: float
    system_seconds: float
    resident_memory: int  # the peak of the command's process, or of the largest that it started, in bytes
    peak_memory: int | None  # of all its processes: the pages of files, too
    private_memory: int | None  # of them without these, as sampled
    read_bytes: int  # from the disk
    written_bytes: int  # to files
    output: str

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds


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
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                root, limits = Path("/sys/fs/cgroup"), {"memory.max": size, "memory.swap.max": 0}
            elif "memory" in controllers.split(","):
                root, limits = Path("/sys/fs/cgroup/memory"), {"memory.limit_in_bytes": size}
            else:
                continue
            self.path = root / path.lstrip("/") / f"streamsvm-benchmark-{os.getpid()}"
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
        raise OSError("no memory cgroup can be made here: run as root, or where they are delegated")

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


@contextlib.contextmanager
def sampled(group: Group | None) -> Iterator[list[int]]:
    """The private memory of a group, from time to time."""
    found: list[int] = []
    done = threading.Event()

    def sample() -> None:
        while group and not done.wait(_SAMPLED_EVERY):
            found.append(group.private())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def run(words: Sequence[object], *, cwd: Path, limit: int | None = None) -> Cost:
    """Run a command to its end in at most `limit` bytes of memory; `Failed` if it fails.

    Its resident memory is at least that of this process, which should not hold data then.
    """
    with grouped(limit) as group, tempfile.TemporaryFile("w+") as errors, sampled(group) as private:
        begin = time.monotonic()
        with subprocess.Popen(
            list(map(str, words)),
            cwd=cwd, stdout=subprocess.PIPE, stderr=errors, text=True,
            preexec_fn=group.enter if group else None,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - begin
        if process.returncode:
            errors.seek(0)
            raise Failed(f"{' '.join(map(str, words))}: exit code {process.returncode}\n{errors.read()}")
        return Cost(
            seconds,
            usage.ru_utime,
            usage.ru_stime,
            1024 * usage.ru_maxrss,
            group.peak() if group else None,
            max(private, default=0) if group else None,
            _SECTOR * usage.ru_inblock,
            _SECTOR * usage.ru_oublock,
            output,
        )


def drop_caches(path: Path) -> None:
    """Drop the page cache of a file, or of all below a folder, after they are written to the disk."""
    os.sync()
    if not hasattr(os, "posix_fadvise"):  # macOS
        return
    for each in files_of(path):
        file = os.open(each, os.O_RDONLY)
        try:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def files_of(path: Path) -> list[Path]:
    """A file, or all files below a folder."""
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def size_of(path: Path) -> int:
    """The size of a file, or of all files below a folder, in bytes."""
    return sum(each.stat().st_size for each in files_of(path))
