"""Linux's user notification of system calls: one process decides about those of another.

Whatever makes a call, Python, a C library or a thread of its own, it waits until the supervisor has
answered. Needs no privilege, no compiler and no debugger.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import struct
import sys
from collections.abc import Iterable
from typing import NamedTuple

# Numbers of x86-64; the tests that need this are skipped elsewhere.
CALLS = {
    0: "read", 17: "pread64", 19: "readv", 295: "preadv", 1: "write", 18: "pwrite64", 20: "writev",
    296: "pwritev", 328: "pwritev2", 76: "truncate", 77: "ftruncate", 285: "fallocate", 40: "sendfile",
    326: "copy_file_range", 74: "fsync", 75: "fdatasync", 2: "open", 85: "creat", 257: "openat",
    437: "openat2", 82: "rename", 264: "renameat", 316: "renameat2", 83: "mkdir", 258: "mkdirat",
    87: "unlink", 263: "unlinkat", 84: "rmdir", 86: "link", 265: "linkat", 88: "symlink",
    266: "symlinkat", 9: "mmap", 425: "io_uring_setup",
}  # fmt: skip
NUMBERS = {name: number for number, name in CALLS.items()}

_ARCH_X86_64 = 0xC000003E
_NOTIFY, _ALLOW = 0x7FC00000, 0x7FFF0000
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_MAP_SHARED = 1
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE = struct.Struct("<QIIiIQ6Q")
_ANSWER = struct.Struct("<Qqii")
_CONTINUE = 1

_libc = ctypes.CDLL(None, use_errno=True)


class Notice(NamedTuple):
    """A call that waits for an answer."""

    id: int
    thread: int
    name: str
    args: tuple[int, ...]


def available() -> bool:
    """Whether this system has it: Linux 5.6 on x86-64, not forbidden by a sandbox."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    child = os.fork()
    if child == 0:
        try:
            listen([])
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def listen(names: Iterable[str]) -> int:
    """From here on the named calls of this process wait; returns the handle that answers them."""
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, _ARCH_X86_64), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    for name in names:
        if name == "mmap":  # shared maps only
            code += [(_EQUAL, 0, 4, NUMBERS[name]), (_LOAD, 0, 0, 16 + 8 * 3), (_ANY_BIT, 0, 1, _MAP_SHARED)]
            code += [(_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]
        else:
            code += [(_EQUAL, 0, 1, NUMBERS[name]), (_RETURN, 0, 0, _NOTIFY)]
    code.append((_RETURN, 0, 0, _ALLOW))
    packed = b"".join(struct.pack("<HBBI", *step) for step in code)
    steps = ctypes.create_string_buffer(packed)
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(steps)))
    if _libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl")
    handle = _libc.syscall(317, 1, 8, program)  # seccomp(SET_MODE_FILTER, NEW_LISTENER)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return handle


def receive(listener: int) -> Notice | None:
    """The next call that waits; None if its thread was killed in the meantime."""
    buffer = bytearray(_NOTICE.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except FileNotFoundError:
        return None
    id, thread, _, number, _, _, *args = _NOTICE.unpack(buffer)
    return Notice(id, thread, CALLS[number], tuple(args))


def let_pass(listener: int, notice: Notice) -> None:
    """The system makes the call."""
    _answer(listener, _ANSWER.pack(notice.id, 0, 0, _CONTINUE))


def refuse(listener: int, notice: Notice, error: int) -> None:
    """The call fails with the error number `error`."""
    _answer(listener, _ANSWER.pack(notice.id, 0, -error, 0))


def pretend(listener: int, notice: Notice, value: int) -> None:
    """The call returns `value` and does nothing."""
    _answer(listener, _ANSWER.pack(notice.id, value, 0, 0))


def _answer(listener: int, answer: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):  # killed while it waited
        fcntl.ioctl(listener, _SEND, bytearray(answer))


def memory(thread: int, address: int, size: int) -> bytes:
    """`size` bytes of another process's memory."""
    with open(f"/proc/{thread}/mem", "rb", 0) as file:
        file.seek(address)
        return file.read(size)


def text(thread: int, address: int) -> str:
    """The C string at `address`, by pages: the next one may not be there."""
    found = b""
    while b"\0" not in found:
        found += memory(thread, address + len(found), 4096 - (address + len(found)) % 4096)
    return os.fsdecode(found.split(b"\0", 1)[0])


def borrow(thread: int, handle: int) -> int:
    """A copy of another process's file handle, which shares its position."""
    with open(f"/proc/{thread}/status") as file:
        process = next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))
    pidfd = os.pidfd_open(process)
    try:
        copy = _libc.syscall(438, pidfd, handle, 0)  # pidfd_getfd
    finally:
        os.close(pidfd)
    if copy < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return copy
