"""Watch what a command does to the files below a folder, make one of its calls fail, or record them all."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import select
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import syscalls
from syscalls import Notice

CHANGING = {
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "truncate", "ftruncate", "fallocate"),
    *("sendfile", "copy_file_range", "fsync", "fdatasync", "open", "creat", "openat", "openat2"),
    *("rename", "renameat", "renameat2", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "link"),
    *("linkat", "symlink", "symlinkat", "mmap", "io_uring_setup"),
}
READING = {"read", "pread64", "readv", "preadv"}
FILLING = {"create", "write", "grow", "mkdir", "link"}  # what a full disk refuses
_AT_FDCWD = 2**32 - 100
_KEEP_SIZE = 1


class Event(NamedTuple):
    """One thing done to a file; paths are relative to the folder.

    `kind` is create, truncate, grow, write, fsync, rename, link, mkdir, unlink, rmdir, map, open or
    read. `to` is the new name after rename and link, `size` the length after truncate and grow; `at`
    and `data` say what is written where.
    """

    kind: str
    path: str
    to: str = ""
    at: int = 0
    data: bytes = b""
    size: int = 0


@dataclasses.dataclass
class Plan:
    """What shall happen.

    Attributes
    ----------
    kinds : list of str
        Events that count; for "read" and "open", calls that change nothing are watched too.
    path : str
        Pattern of the paths that count.
    at : int or None
        The counted event that is struck.
    error : int
        Number of the error it fails with; 0: it succeeds, after `act`.
    half : bool
        A write, if it is struck, is cut short instead: half of it is made, and then there is no room.
    stays : bool
        From the strike on, every call that needs room on the disk fails as well.
    act : list
        Done at the strike: ["remove", path], ["truncate", path, size], ["rename", path, to] or
        ["kill", signal].
    record : str
        File to write all events to, as a list.
    """

    kinds: list[str]
    path: str = "*"
    at: int | None = None
    error: int = 0
    half: bool = False
    stays: bool = False
    act: list[Any] = dataclasses.field(default_factory=list)
    record: str = ""


class Tracer:
    """Answers the calls of a process and all its threads, one at a time."""

    def __init__(self, root: str, plan: Plan) -> None:
        self.root = os.path.realpath(root)
        self.plan = plan
        self.count = 0
        self.what: str | None = None  # the event that was struck
        self.seen: list[str] = []  # the counted events, in short
        self.events: list[Event] = []
        self._full = False

    @property
    def names(self) -> set[str]:
        """The calls to watch."""
        return CHANGING | (READING if "read" in self.plan.kinds else set())

    def serve(self, listener: int, process: int, patience: float) -> bool:
        """Answer until the process has ended; False if it had not after `patience` seconds."""
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        deadline = time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            for _, what in poll.poll(1000 * left):
                if what & select.POLLIN:
                    self._serve(listener, process)
                elif what & select.POLLHUP:
                    return True
        return False

    def _serve(self, listener: int, process: int) -> None:
        notice = syscalls.receive(listener)
        if notice is None:
            return
        try:
            event = self._event(notice)
        except (OSError, IndexError):  # the thread was killed while it waited
            syscalls.let_pass(listener, notice)
            return
        if event is None:
            syscalls.let_pass(listener, notice)
            return
        if self.plan.record and event.kind not in ("read", "open"):
            self.events.append(event)
        if event.kind in self.plan.kinds and fnmatch.fnmatch(event.path, self.plan.path):
            self.seen.append(f"{event.kind} {event.to or event.path}")
            self.count += 1
            if self.count - 1 == self.plan.at:
                self.what = self.seen[-1]
                self._full = self.plan.stays
                self._strike(listener, notice, event, process)
                return
        if self._full and event.kind in FILLING:
            syscalls.refuse(listener, notice, self.plan.error)
            return
        syscalls.let_pass(listener, notice)

    def _strike(self, listener: int, notice: Notice, event: Event, process: int) -> None:
        self._act(process)
        if self.plan.half and event.kind == "write" and len(event.data) > 1:
            handle = syscalls.borrow(notice.thread, notice.args[0])
            half = event.data[: len(event.data) // 2]
            if notice.name.startswith("p"):
                os.pwrite(handle, half, event.at)
            else:
                os.write(handle, half)
            os.close(handle)
            self._full = True
            syscalls.pretend(listener, notice, len(half))
        elif self.plan.error:
            syscalls.refuse(listener, notice, self.plan.error)
        else:
            syscalls.let_pass(listener, notice)

    def _act(self, process: int) -> None:
        match self.plan.act:
            case []:
                pass
            case ["remove", path]:
                path = os.path.join(self.root, path)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            case ["truncate", pattern, size]:
                for path in Path(self.root).glob(pattern):
                    os.truncate(path, size)
            case ["rename", path, to]:
                os.rename(os.path.join(self.root, path), os.path.join(self.root, to))
            case ["kill", number]:
                os.kill(process, number)
            case other:
                raise ValueError(f"no such act: {other}")

    # -- what a call means -------------------------------------------------------------------------

    def _event(self, notice: Notice) -> Event | None:
        """The event that a call is, or None if it changes nothing below the folder."""
        return _MEANINGS[notice.name](self, notice.name, notice.thread, notice.args)

    def _below(self, path: str) -> str | None:
        """`path` relative to the folder, or None."""
        if path == self.root:
            return "."
        return path.removeprefix(self.root + "/") if path.startswith(self.root + "/") else None

    def _handle(self, thread: int, handle: int) -> str | None:
        """The path of an open file, if it is below the folder and has one."""
        path = os.readlink(f"/proc/{thread}/fd/{handle & 0xFFFFFFFF}")
        return None if path.endswith(" (deleted)") else self._below(path)

    def _path(self, thread: int, folder: int, address: int) -> str | None:
        """The path that a call names; links of the folder it is in are followed, itself is not."""
        folder &= 0xFFFFFFFF
        name = syscalls.text(thread, address)
        base = f"/proc/{thread}/cwd" if folder == _AT_FDCWD else f"/proc/{thread}/fd/{folder}"
        path = os.path.normpath(os.path.join(os.readlink(base), name))
        parent, last = os.path.split(path)
        return self._below(os.path.join(os.path.realpath(parent), last))

    def _there(self, path: str) -> bool:
        return os.path.lexists(os.path.join(self.root, path))

    def _write(self, name: str, thread: int, args: tuple) -> Event | None:
        path = self._handle(thread, args[0])
        if path is None:
            return None
        if name in ("write", "pwrite64"):
            data = syscalls.memory(thread, args[1], args[2]) if args[2] else b""
        else:
            data = b"".join(
                syscalls.memory(thread, *piece) for piece in self._pieces(thread, args[1], args[2])
            )
        at = args[3] if name.startswith("p") else self._position(thread, args[0], path)
        return Event("write", path, at=at, data=data)

    @staticmethod
    def _pieces(thread: int, address: int, count: int) -> list[tuple[int, int]]:
        return list(struct.iter_unpack("QQ", syscalls.memory(thread, address, 16 * count)))

    def _position(self, thread: int, handle: int, path: str) -> int:
        with open(f"/proc/{thread}/fdinfo/{handle & 0xFFFFFFFF}") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        if int(fields["flags"], 8) & os.O_APPEND:
            return os.stat(os.path.join(self.root, path)).st_size
        return int(fields["pos"])

    def _transfer(self, name: str, thread: int, args: tuple) -> Event | None:
        if name == "sendfile":
            to, source, offset, count = args[:4]
            to_offset = 0
        else:
            source, offset, to, to_offset, count = args[:5]
        path = self._handle(thread, to)
        if path is None:
            return None

        def position(handle: int, address: int) -> int:
            if address:
                return int.from_bytes(syscalls.memory(thread, address, 8), "little")
            return self._position(thread, handle, "")

        handle = syscalls.borrow(thread, source & 0xFFFFFFFF)
        data = os.pread(handle, min(count, os.fstat(handle).st_size), position(source, offset))
        os.close(handle)
        return Event("write", path, at=position(to, to_offset), data=data) if data else None

    def _truncate(self, name: str, thread: int, args: tuple) -> Event | None:
        by_path = name == "truncate"
        path = self._path(thread, _AT_FDCWD, args[0]) if by_path else self._handle(thread, args[0])
        if path is None or not self._there(path):
            return None
        before = os.stat(os.path.join(self.root, path)).st_size
        size = args[1]
        if name == "fallocate":
            size = before if args[1] & _KEEP_SIZE else max(before, args[2] + args[3])
        return Event("grow" if size > before else "truncate", path, size=size)

    def _open(self, name: str, thread: int, args: tuple) -> Event | None:
        if name == "open":
            path, flags = self._path(thread, _AT_FDCWD, args[0]), args[1]
        elif name == "creat":
            path, flags = self._path(thread, _AT_FDCWD, args[0]), os.O_CREAT | os.O_TRUNC
        elif name == "openat":
            path, flags = self._path(thread, args[0], args[1]), args[2]
        else:
            path = self._path(thread, args[0], args[1])
            flags = int.from_bytes(syscalls.memory(thread, args[2], 8), "little")
        if path is None:
            return None
        if not self._there(path):
            return Event("create", path) if flags & os.O_CREAT else None
        if flags & os.O_TRUNC and not flags & os.O_EXCL:
            return Event("truncate", path, size=0)
        return Event("open", path)

    def _two(self, name: str, thread: int, args: tuple) -> Event | None:
        args = args if "at" in name else (_AT_FDCWD, args[0], _AT_FDCWD, args[1])
        path, to = self._path(thread, args[0], args[1]), self._path(thread, args[2], args[3])
        if path is None or to is None or not self._there(path):
            return None
        if name.startswith("link"):
            return None if self._there(to) else Event("link", path, to=to)
        return Event("rename", path, to=to)

    def _name(self, name: str, thread: int, args: tuple) -> Event | None:
        kind = name.removesuffix("at")
        path = (
            self._path(thread, *args[:2]) if name.endswith("at") else self._path(thread, _AT_FDCWD, args[0])
        )
        if name == "unlinkat" and args[2] & 0x200:  # AT_REMOVEDIR
            kind = "rmdir"
        if path is None or self._there(path) != (kind != "mkdir"):
            return None
        return Event(kind, path)

    def _on_handle(self, name: str, thread: int, args: tuple) -> Event | None:
        path = self._handle(thread, args[0])
        return None if path is None else Event("fsync" if "sync" in name else "read", path)

    def _map(self, name: str, thread: int, args: tuple) -> Event | None:
        if not args[2] & 2 or args[3] & 0x20:  # PROT_WRITE, MAP_ANONYMOUS
            return None
        path = self._handle(thread, args[4])
        return None if path is None else Event("map", path)

    def _unknown(self, name: str, thread: int, args: tuple) -> Event | None:
        raise NotImplementedError(f"{name}: the model of the disk does not know it")


_MEANINGS: dict[str, Callable[[Tracer, str, int, tuple], Event | None]] = {
    **dict.fromkeys(("write", "pwrite64", "writev", "pwritev", "pwritev2"), Tracer._write),
    **dict.fromkeys(("sendfile", "copy_file_range"), Tracer._transfer),
    **dict.fromkeys(("truncate", "ftruncate", "fallocate"), Tracer._truncate),
    **dict.fromkeys(("open", "creat", "openat", "openat2"), Tracer._open),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link", "linkat"), Tracer._two),
    **dict.fromkeys(("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"), Tracer._name),
    **dict.fromkeys(("fsync", "fdatasync", *READING), Tracer._on_handle),
    **dict.fromkeys(("symlink", "symlinkat", "io_uring_setup"), Tracer._unknown),
    "mmap": Tracer._map,
}
