"""Crash-safe file operations: write to a temporary name, fsync, rename; locks; checks of paths."""

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

# Upper bound of a JSON record in bytes. Records with millions of classes are far smaller.
MAX_RECORD_BYTES = 2**27
PREVIOUS = "previous"  # the folder being replaced, kept inside the temporary folder of its replacement

_REMEDIES = {
    "check the path": (errno.ENOENT, errno.ENOTDIR, errno.EISDIR),
    "use another place": (errno.EEXIST,),
    "free some space": (errno.ENOSPC, errno.EDQUOT),
    "use a file system that holds files of this size": (errno.EFBIG,),
    "change the permissions, or use another place": (errno.EACCES, errno.EPERM),
    "use a place that can be written to": (errno.EROFS,),
    "check the disk and its connection": (errno.EIO,),
    "check the connection to the file server": (errno.ESTALE,),
    "it is open in another program: close it there, and try again": (errno.EAGAIN,),
    "give a file or a pipe": (errno.ENXIO,),  # a socket, or a device that does not exist
    "allow more open files (ulimit -n)": (errno.EMFILE,),
    "use a file system with locks, or mount this one with them": (errno.ENOLCK, errno.EOPNOTSUPP),
}


def reason(error: OSError) -> str:
    """Return the operating system's message, followed by a remedy if one is known."""
    remedies = (f"; {remedy}" for remedy, codes in _REMEDIES.items() if error.errno in codes)
    return (error.strerror or str(error)) + next(remedies, "")


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the file name to an `OSError`, because errors of reading do not include one."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def os_errors_as(error: type[StreamsvmError], path: object, verb: str) -> Iterator[None]:
    """Convert an `OSError` to `error` with the message "PATH cannot be VERB: REASON".

    PATH is the error's own file name, or else `path`. `verb` is a participle, such as "read".
    """
    try:
        yield
    except OSError as found:
        raise error(f"{found.filename or path} cannot be {verb}: {reason(found)}") from None


class UnfitFile(OSError):
    """Error for a file that streamsvm refuses to read: a pipe, device, link or oversized file."""

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(errno.EINVAL, reason, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def open_descriptor(path: str | Path, flags: int, *, follow: bool = False) -> int:
    """Open a regular file like `os.open`, and return its descriptor; `flags` may create the file.

    Other files are refused: a pipe could block forever, a device may be endless, and a link may lead outside
    our folders. With `follow`, the last component of `path` may be a link. Raises `UnfitFile`, an `OSError`,
    if `path` is not a regular file.
    """
    flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) and os.path.islink(path):
            raise UnfitFile(path, "a symbolic link, which is not followed here; put the file there") from None
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

    Use this function, without `follow`, for every file in a run folder, which may come from a stranger and
    contain links to files elsewhere.
    """
    opener = functools.partial(open_descriptor, follow=follow)
    return cast(BinaryIO, open(path, mode, buffering, opener=opener))


def read_record(path: Path, *, follow: bool = False) -> Any:
    """Read the JSON file `path`; raise `ValueError` or `RecursionError` if the content is not JSON.

    Raises `OSError` if the file cannot be read; `UnfitFile` if it is not a regular file or is too large.
    """
    return json.loads(read_bounded(path, follow=follow))


def read_bounded(path: Path, *, follow: bool = False) -> bytes:
    """Read a regular file of at most `MAX_RECORD_BYTES`; raise `UnfitFile` for other files."""
    with named(path), open_file(path, follow=follow) as file:
        length = os.fstat(file.fileno()).st_size
        if length > MAX_RECORD_BYTES:
            raise UnfitFile(path, f"{length:,} bytes, where {MAX_RECORD_BYTES:,} at most are a record")
        return file.read(length)


def size(path: Path) -> int:
    """Return the size of a regular file in bytes; raise `UnfitFile` for other files, including links."""
    with open_file(path) as file:
        return os.fstat(file.fileno()).st_size


def free_bytes(path: Path) -> int:
    """Return the bytes that this user can still write to the file system of `path`."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def file_identity(path: Path) -> tuple[int, ...] | None:
    """Return (device, inode, size, mtime in ns), which changes with the file; None if it does not exist."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def sync_dir(path: Path) -> None:
    """Make renames and new names in the folder `path` durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Make a file, or all files and folders below `path`, durable."""
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
    """Write a file and sync its content, but not its name in the folder."""
    with open_file(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; after a crash, readers see either the old or the new file.

    The temporary file is ``NAME.tmp``, so use `replacing` in folders that belong to the user.
    """
    aside = path.with_name(path.name + ".tmp")
    write_synced(aside, content)
    os.replace(aside, path)
    sync_dir(path.parent)


def is_temporary(name: str, path: Path) -> bool:
    """Return True if `name` is a name that `temporary` creates next to `path`."""
    return re.fullmatch(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.tmp", name) is not None


@contextlib.contextmanager
def temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a new file or folder with a hidden name next to `path`, and delete it at the end.

    It is locked until then; a folder is locked by the file ``lock`` in it. The operating system releases the
    lock of a killed process, so unlocked leftovers are deleted first. If `path` is missing, and a leftover
    contains the folder that it was about to replace (`PREVIOUS`), that folder is restored. On file systems
    without locks, leftovers stay. An `OSError` about the temporary file, or without a file name, names
    `path`.
    """
    try:
        for name in os.listdir(path.parent):
            left = path.with_name(name)
            if is_temporary(name, path):
                with contextlib.suppress(OSError), _own_lock(left, fcntl.LOCK_NB):
                    if (left / PREVIOUS).exists() and not os.path.lexists(path):
                        os.rename(left / PREVIOUS, path)
                    remove(left)
        with contextlib.ExitStack() as stack:
            made = path
            while made == path or not os.path.lexists(made):  # retry if another process deleted it
                made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
                made.mkdir() if folder else made.touch(exist_ok=False)
                stack.callback(_try_to_remove, made)
                with contextlib.suppress(OSError):
                    stack.enter_context(_own_lock(made))
            yield made
    except OSError as error:
        if error.filename is None or str(error.filename).startswith(str(path.with_name(f".{path.name}."))):
            error.filename = str(path)
        raise


def _try_to_remove(path: Path) -> None:
    """Delete a file or tree if possible; threads may still write to it after an interrupt."""
    with contextlib.suppress(OSError):
        remove(path)


@contextlib.contextmanager
def _own_lock(path: Path, flags: int = 0) -> Iterator[None]:
    """Hold an exclusive lock on a file, or on ``lock`` in a folder; raise `OSError` if impossible."""
    file = path / "lock" if path.is_dir() and not path.is_symlink() else path
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(handle)


def move_into_place(made: Path, path: Path, previous: Path) -> None:
    """Rename a durable file or folder to `path`, after moving an existing folder there to `previous`.

    `previous` must be next to `path`, or in a folder next to it.
    """
    if path.is_dir() and not path.is_symlink():  # a folder cannot be replaced in one step
        sync_dir(path.parent)  # makes the parent folder of `previous` durable
        os.rename(path, previous)
        try:
            os.rename(made, path)
        except OSError:
            os.rename(previous, path)
            raise
    else:
        os.replace(made, path)
    sync_dir(path.parent)


def check_replaceable(path: Path, error: type[StreamsvmError], *, force: bool, folder: bool = False) -> None:
    """Raise `error` if `path` must not be replaced, or its parent folder is missing.

    Devices and pipes are accepted, because they are written to, not replaced.
    """
    if not folder and not path.parent.exists():
        raise error(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir() and not folder:
        raise error(f"{path} is a folder; give the name of a file")
    if not force and (path.is_file() or path.is_dir() or (path.is_symlink() and not path.exists())):
        raise error(f"{path} is there already", remedy=Remedy("{} replaces it", Option("force", True)))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` at the end; yield a device or pipe itself."""
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

    The operating system releases the lock if the process dies. The file is never deleted, because two
    processes could then lock two different files of the same name.
    """
    handle = open_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise error(f"{what} is in use by another process; wait for it, or stop it") from None
        except OSError as refused:  # some network file systems do not support locks
            raise error(f"{what}: {path} cannot be locked: {reason(refused)}") from None
        yield
    finally:
        os.close(handle)
