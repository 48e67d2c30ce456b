"""Crash-safe file operations (write to a temporary name, fsync, rename), locks, and checks of paths."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from streamsvm.errors import Option, Remedy, StreamsvmError

MAX_RECORD_BYTES = 2**27  # maximum size of a JSON record; even one with millions of classes is far smaller
PREVIOUS = "previous"  # name of the old folder inside the temporary folder of its replacement

_REMEDIES = {
    "check the path": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    "choose another path": (errno.EEXIST,),
    "free some space": (errno.ENOSPC, errno.EDQUOT),
    "use a file system that allows files of this size": (errno.EFBIG,),
    "change the permissions, or choose another path": (errno.EACCES, errno.EPERM),
    "choose a file system that is writable": (errno.EROFS,),
    "check the disk and its connection": (errno.EIO,),
    "check the connection to the file server": (errno.ESTALE,),
    "close the file in the other program, and try again": (errno.EAGAIN,),
    "use a regular file or a pipe": (errno.ENXIO,),  # a socket, or a device that does not exist
    "allow more open files (ulimit -n)": (errno.EMFILE,),
    "use a file system that supports locks, or mount this one with locks": (errno.ENOLCK, errno.EOPNOTSUPP),
}


def reason(error: OSError) -> str:
    """Return the operating system's message, followed by a remedy if one is known."""
    remedies = (f"; {remedy}" for remedy, codes in _REMEDIES.items() if error.errno in codes)
    return (error.strerror or str(error)) + next(remedies, "")


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file name to an `OSError` raised in the context, because read errors do not include it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def os_errors_as(error: type[StreamsvmError], path: object, verb: str) -> Iterator[None]:
    """Convert an `OSError` to `error` with the message "PATH cannot be VERB: REASON".

    PATH is the file name in the `OSError` or, if it has none, `path`. `verb` is a participle, such as "read".
    """
    try:
        yield
    except OSError as cause:
        raise error(f"{cause.filename or path} cannot be {verb}: {reason(cause)}") from None


class UnfitFile(OSError):
    """Raised for a file that streamsvm refuses to read: a pipe, device, link or oversized file."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(errno.EINVAL, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_descriptor(path: str | Path, flags: int, *, follow: bool = False) -> int:
    """Open a regular file with `os.open`, and return its descriptor; `flags` may include `os.O_CREAT`.

    Pipes, devices and links are refused, because a pipe could block forever, a device may be endless, and a
    link may lead outside streamsvm's folders. With `follow`, the last component of `path` may be a link.
    Raises an `OSError` if `path` is not a regular file: `IsADirectoryError` for a folder, else `UnfitFile`.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) and os.path.islink(path):
            raise UnfitFile(path, "links are not followed; replace the link with its target") from None
        if error.errno == errno.ENXIO:  # a socket, or a pipe without a reader
            raise UnfitFile(path, "not a regular file") from None
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise UnfitFile(path, "not a regular file")
    return descriptor


def open_file(path: str | Path, mode: str = "rb", *, follow: bool = False, buffering: int = -1) -> BinaryIO:
    """Open a regular file in a binary `mode`, with the checks of `open_descriptor`.

    Use this function, without `follow`, for every file in a run folder. The folder may come from an untrusted
    source and contain links to files elsewhere.
    """
    opener = functools.partial(open_descriptor, follow=follow)
    return cast(BinaryIO, open(path, mode, buffering, opener=opener))


def read_record(path: Path, *, follow: bool = False) -> Any:
    """Read a JSON file with `read_bounded`; raise `ValueError` or `RecursionError` if it is invalid JSON."""
    return json.loads(read_bounded(path, follow=follow))


def read_bounded(path: Path, *, follow: bool = False) -> bytes:
    """Read a file; raise `UnfitFile` if it is larger than `MAX_RECORD_BYTES` or is not a regular file."""
    with named(path), open_file(path, follow=follow) as file:
        length = os.fstat(file.fileno()).st_size
        if length > MAX_RECORD_BYTES:
            raise UnfitFile(path, f"its size, {length:,} bytes, exceeds the limit of {MAX_RECORD_BYTES:,}")
        return file.read(length)


def size(path: Path) -> int:
    """Return the size of a regular file in bytes; raise `UnfitFile` for links, pipes and devices."""
    with open_file(path) as file:
        return os.fstat(file.fileno()).st_size


def free_bytes(path: Path) -> int:
    """Return the number of bytes that this user can still write to the file system of `path`."""
    stats = os.statvfs(path)
    return stats.f_bavail * stats.f_frsize


def file_identity(path: Path) -> tuple[int, ...] | None:
    """Return (device, inode, size, mtime in ns), which changes with the file; None if there is no file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def sync_dir(path: Path) -> None:
    """Sync a folder, so that new and renamed entries survive a crash."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Sync a file, or a folder and everything in it."""
    if path.is_file():
        with open_file(path) as file:
            os.fsync(file.fileno())
        return
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
        sync_dir(Path(folder))


def make_dir(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_dir(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and sync it, but not its folder; call `sync_dir` for the folder."""
    with open_file(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, content: bytes) -> None:
    """Write `content` to `path`; after a crash, the file has either the old or the new content.

    This first writes ``NAME.tmp``, which could overwrite a user's file. In a user's folder, use `replacing`.
    """
    temporary_path = path.with_name(path.name + ".tmp")
    write_synced(temporary_path, content)
    os.replace(temporary_path, path)
    sync_dir(path.parent)


def is_temporary(name: str, path: Path) -> bool:
    """Return whether `temporary` could have created a file or folder called `name` next to `path`."""
    return re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp", name) is not None


@contextlib.contextmanager
def temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a new file or folder with a hidden name next to `path`, and delete it at the end.

    The file, or the file ``lock`` in the folder, is locked until then. Leftovers of killed processes, which
    are no longer locked, are deleted first. If `path` is missing and a leftover contains the folder that it
    was about to replace (`PREVIOUS`), that folder is restored. If the file system does not support locks,
    leftovers are kept. An `OSError` that names the temporary file, or no file, is changed to name `path`.
    """
    try:
        for name in os.listdir(path.parent):
            leftover = path.with_name(name)
            if is_temporary(name, path):
                with contextlib.suppress(OSError), _exclusive_lock(leftover, fcntl.LOCK_NB):
                    if (leftover / PREVIOUS).exists() and not os.path.lexists(path):
                        os.rename(leftover / PREVIOUS, path)
                    remove(leftover)
        with contextlib.ExitStack() as stack:
            created = path
            while created == path or not os.path.lexists(created):  # retry if another process deleted it
                created = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
                created.mkdir() if folder else created.touch(exist_ok=False)
                stack.callback(_try_to_remove, created)
                with contextlib.suppress(OSError):
                    stack.enter_context(_exclusive_lock(created))
            yield created
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(str(path.with_name(f".{path.name}."))):
            error.filename = str(path)
        raise


def _try_to_remove(path: Path) -> None:
    """Delete a file or folder, ignoring errors: after an interrupt, threads may still be writing to it."""
    with contextlib.suppress(OSError):
        remove(path)


@contextlib.contextmanager
def _exclusive_lock(path: Path, flags: int = 0) -> Iterator[None]:
    """Hold an exclusive lock on a file, or on the file ``lock`` in a folder; raise `OSError` on failure."""
    file = path / "lock" if path.is_dir() and not path.is_symlink() else path
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(handle)


def move_into_place(source: Path, path: Path, previous: Path) -> None:
    """Move a synced file or folder to `path`; an existing folder is first moved to `previous`.

    `previous` must be next to `path`, or in a folder next to `path`.
    """
    if path.is_dir() and not path.is_symlink():  # a folder cannot be replaced in one step
        sync_dir(path.parent)  # makes the parent folder of `previous` durable
        os.rename(path, previous)
        try:
            os.rename(source, path)
        except OSError:
            os.rename(previous, path)
            raise
    else:
        os.replace(source, path)
    sync_dir(path.parent)


def check_replaceable(path: Path, error: type[StreamsvmError], *, force: bool, folder: bool = False) -> None:
    """Raise `error` if `path` exists and must not be replaced, or if a new file's parent folder is missing.

    Devices and pipes are accepted, because they are written to, not replaced.
    """
    if not folder and not path.parent.exists():
        raise error(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir() and not folder:
        raise error(f"{path} is a folder; specify a file name")
    if not force and (path.is_file() or path.is_dir() or (path.is_symlink() and not path.exists())):
        raise error(f"{path} already exists", remedy=Remedy("replace it with {}", Option("force", True)))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end; for a device or pipe, yield `path` itself."""
    if path.exists() and not path.is_file():
        yield path
        return
    path = path.resolve()  # replaces the target of a link, not the link
    with temporary(path) as aside:
        yield aside
        sync_tree(aside)
        os.replace(aside, path)
        sync_dir(path.parent)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, error: type[StreamsvmError], what: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`; raise `error` if another process holds it.

    `what` names the locked object in messages. The operating system releases the lock if the process dies.
    The lock file is never deleted, because two processes could then lock two files with the same name.
    """
    handle = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(f"{what} is in use by another process; wait until it ends, or stop it") from None
        except OSError as refused:  # some network file systems do not support locks
            raise error(f"{what}: {path} cannot be locked: {reason(refused)}") from None
        yield
    finally:
        os.close(handle)
