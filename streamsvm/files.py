"""Files that survive a crash: write aside, fsync, rename; locks that die with their process; refusals."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from streamsvm.errors import StreamsvmError

_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "check the path",
    errno.EEXIST: "use another place",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "use a file system that holds files of this size",
    errno.EACCES: "change the permissions, or use another place",
    errno.EPERM: "change the permissions, or use another place",
    errno.EROFS: "use a place that can be written to",
    errno.EIO: "check the disk and its connection",
    errno.ESTALE: "check the connection to the file server",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENOLCK: "use a file system with locks, or mount this one with them",
    errno.EOPNOTSUPP: "use a file system with locks, or mount this one with them",
}


def reason(error: OSError) -> str:
    """What the system refused, in its words, and what helps."""
    remedy = _REMEDIES.get(error.errno or 0)
    return (error.strerror or str(error)) + (f"; {remedy}" if remedy else "")


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Let an `OSError` say which file: one of reading, unlike one of opening, does not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def sync_dir(path: Path) -> None:
    """Make renames and new names in the folder `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Make a file, or every file and folder below `path`, durable."""
    if path.is_file():
        with path.open("rb") as file:
            os.fsync(file.fileno())
        return
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
        sync_dir(Path(folder))


def make_dir(path: Path) -> None:
    """Make the folder `path` durably; it may be there already."""
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_dir(path.parent)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: a reader or a crash sees the old file or the new, never a part."""
    aside = path.with_name(path.name + ".tmp")
    with aside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_dir(path.parent)


def remove(path: Path) -> None:
    """Delete a file or a tree, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, error: type[StreamsvmError], what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; the system frees it when the process dies.

    Raises `error` if another process holds it. The file stays: removing it would let two
    processes lock two different files of the same name.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(f"{what} is in use by another process; wait for it, or stop it") from None
        except OSError as refused:  # some network file systems have no locks
            raise error(f"{what}: {path} cannot be locked: {reason(refused)}") from None
        yield
    finally:
        os.close(handle)
