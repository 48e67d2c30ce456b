"""Atomic changes of an HDF5 file in place: a crash leaves the old content or the new.

HDF5 writes where and when it likes, so its writes are collected in memory. Then a journal is written beside
the file, which has the old bytes of all places that are overwritten; the file is written; and the journal is
removed. A journal that is found later belongs to a process that died in between: the old bytes are put back.
This is the rollback journal of SQLite (https://www.sqlite.org/atomiccommit.html).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from streamsvm.base import durable, format
from streamsvm.base.decode import Count, Positive, decode
from streamsvm.errors import StoreError, warn

_SUFFIX = ".journal"
_VERSION = 1
_PAGE = 2**12


class Overlay(io.RawIOBase):
    """File whose written bytes stay in memory until `commit`.

    Parameters
    ----------
    path : Path
        Not a link.
    handle : int
        Its descriptor, open for reading and writing.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle
        self._old_size = self._size = os.fstat(handle).st_size
        self._at = 0
        self._pages: dict[int, bytearray] = {}

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def truncate(self, size: int | None = None) -> int:
        """Grow the file, but never shrink it: bytes beyond the end of HDF5 data do no harm."""
        size = self._at if size is None else size
        self._size = max(self._size, size)
        return size

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._size - self._at))
        found = os.preadv(self._handle, [view[:length]], self._at) if length else 0
        view[found:length] = bytes(length - found)  # beyond the end of the old file
        for page, start, stop in _pages(self._at, length):
            if page in self._pages:
                begin = page * _PAGE + start - self._at
                view[begin : begin + stop - start] = self._pages[page][start:stop]
        self._at += length
        return length

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        for page, start, stop in _pages(self._at, len(view)):
            if page not in self._pages:
                whole = os.pread(self._handle, _PAGE, page * _PAGE)
                self._pages[page] = bytearray(whole.ljust(_PAGE, b"\0"))
            begin = page * _PAGE + start - self._at
            self._pages[page][start:stop] = view[begin : begin + stop - start]
        self._at += len(view)
        if view:
            self._size = max(self._size, self._at)
        return len(view)

    def commit(self) -> None:
        """Write everything into the file; an error restores it, and a crash lets `recover` do so.

        Raises
        ------
        OSError
            If the journal or the file cannot be written.
        """
        changes = [(page * _PAGE, bytes(content)) for page, content in sorted(self._pages.items())]
        old, new, ranges = [], [], []
        for at, content in changes:
            before = os.pread(self._handle, _PAGE, at)  # empty beyond the end of the file
            if before and before != content[: len(before)]:
                ranges.append([at, len(before)])
                old.append(before)
                new.append(content[: len(before)])
        payload = b"".join(old) + b"".join(new)
        header = {
            "journal_version": _VERSION,
            "file": self._path.name,
            "size": self._old_size,
            "ranges": ranges,
            "sha256": hashlib.sha256(payload).hexdigest(),
        }
        durable.write_atomic(
            journal_of(self._path), json.dumps(format.sealed(header)).encode() + b"\n" + payload
        )
        try:
            with durable.named(self._path):
                for at, content in reversed(changes):  # the new end first: the disk may be full
                    _write(self._handle, content[: self._size - at], at)
                os.fsync(self._handle)
        except BaseException:
            with suppress(StoreError, OSError):  # a later command tries again
                _roll_back(self._path, self._handle)
            raise
        _remove_journal(self._path)


def journal_of(path: Path) -> Path:
    """Return the path of the journal of a file."""
    return path.with_name(path.name + _SUFFIX)


@contextmanager
def editing(path: Path) -> Iterator[Overlay]:
    """Let the HDF5 file `path` be changed: `Overlay` is for h5py, and is committed at the end.

    No other process can open the file by HDF5 meanwhile. What a crash left is undone first.

    Raises
    ------
    StoreError
        If the file cannot be locked or written.
    """
    path = path.resolve()
    with locked(path) as handle:
        if journal_of(path).exists():
            _roll_back(path, handle)
        overlay = Overlay(path, handle)
        yield overlay
        try:
            overlay.commit()
        except OSError as error:
            raise StoreError(
                f"{error.filename or path} cannot be written: {durable.reason(error)}; {path} is as it was"
            ) from None


def recover(path: Path) -> None:
    """Undo a change of `path` that a crash interrupted, with a warning.

    Raises
    ------
    StoreError
        If another process is changing the file, it cannot be written, or the journal is of another one.
    """
    target = path.resolve()
    if not journal_of(target).exists():
        return
    with locked(target) as handle:
        if not journal_of(target).exists():  # the other process is done
            return
        _roll_back(target, handle)
    warn(
        f"{path}: another process died while it added columns; they were taken out again, and the file is "
        "as it was before"
    )


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, with the lock that HDF5 takes held."""
    with durable.os_errors_as(StoreError, path, "written"):
        handle = durable.open_descriptor(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"{path} is open elsewhere, in this process or another one; close it there, and try again"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP):  # as HDF5 does without locks
                raise StoreError(f"{path} cannot be locked: {durable.reason(error)}") from None
        yield handle
    finally:
        os.close(handle)


@dataclass(frozen=True)
class _Header:
    """Header of a journal, checked strictly: it may be a stranger's, and undoing it overwrites a file."""

    journal_version: Literal[1]
    file: str
    size: Positive
    ranges: list[tuple[Count, Positive]]
    sha256: str

    def __post_init__(self) -> None:
        if not self.ranges or any(at + count > self.size for at, count in self.ranges):
            raise ValueError("there must be ranges, all within the old size of the file")


def _roll_back(path: Path, handle: int) -> None:
    """Put back the old bytes, and remove the journal."""
    journal = journal_of(path)
    present = os.fstat(handle).st_size
    try:
        line, _, payload = durable.read_bounded(journal).partition(b"\n")
        found = json.loads(line)
        header = decode(_Header, found)
        length = sum(count for _, count in header.ranges)
        is_whole = (
            format.is_sealed(found)
            and hashlib.sha256(payload).hexdigest() == header.sha256
            and len(payload) == 2 * length
        )
    except (ValueError, RecursionError):
        is_whole = False
    except OSError as error:
        raise StoreError(f"{journal} cannot be read: {durable.reason(error)}") from None
    if not is_whole:
        raise StoreError(
            f"{journal} is damaged, so that {path.name} cannot be restored: bring back a copy of it, "
            f"or, if it is whole, remove the journal"
        )
    other = StoreError(
        f"{journal} belongs to another file than the {path.name} that is beside it; remove the "
        "journal if that file is whole"
    )
    if header.file != path.name or header.size > present:  # a change never shortens the file
        raise other
    try:
        taken, pieces = 0, []
        for at, count in header.ranges:
            old = payload[taken : taken + count]
            new = payload[length + taken : length + taken + count]
            now = os.pread(handle, count, at)
            if len(now) < count or not all(a in (b, c) for a, b, c in zip(now, old, new, strict=True)):
                raise other
            pieces.append((at, old))
            taken += count
        for at, old in pieces:
            _write(handle, old, at)
        os.ftruncate(handle, header.size)
        os.fsync(handle)
        _remove_journal(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be restored: {durable.reason(error)}") from None


def _remove_journal(path: Path) -> None:
    journal_of(path).unlink()
    durable.sync_dir(path.parent)


def _write(handle: int, content: bytes, at: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written


def _pages(at: int, length: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pages of the bytes ``at : at + length``: number, and start and stop within the page."""
    stop = at + length
    for page in range(at // _PAGE, -(-stop // _PAGE) if length else 0):
        yield page, max(at - page * _PAGE, 0), min(stop - page * _PAGE, _PAGE)
