"""One line, and not a core dump, when a page of a memory-mapped file cannot be had."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
from typing import Any

_SA_SIGINFO = 4
_ADDRESS_AT = 16  # in siginfo_t, of 64-bit Linux


class _Action(ctypes.Structure):
    """Linux's struct sigaction, as its C libraries have it."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def end_with_a_line() -> None:
    """Let a bus error end this process with exit code 1 and a line that names the file.

    The weights in use are a sparse file: pages take room on the disk as rows are first written, and
    when there is none left the system has no other answer to a store into memory than this signal.
    Taking all the room beforehand is no way out, since rare features may never come. Nothing is lost:
    what is mapped is never the checkpoint.

    A handler set by Python's `signal` would never run: it waits for the interpreter, and the
    instruction that failed is tried again before. A C callback does run, at that instruction and
    nowhere else, so it may take the interpreter's lock and go on in Python.
    """
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return
    action = _Action(ctypes.cast(_callback, ctypes.c_void_p), flags=_SA_SIGINFO)
    ctypes.CDLL(None).sigaction(signal.SIGBUS, ctypes.byref(action), None)


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
def _callback(number: int, info: int, context: Any) -> None:
    line = None
    try:
        line = _line(ctypes.c_void_p.from_address(info + _ADDRESS_AT).value or 0)
    finally:
        if line is None:  # not a file: the system's own way to end
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
        else:
            os.write(2, f"streamsvm: {line}\n".encode())
            os._exit(1)


def _line(address: int) -> str | None:
    """What became of the mapped file at `address`, and what to do; None if there is no file."""
    from streamsvm import files, format
    from streamsvm.text import printable

    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, offset, _, inode, *path = line.split(maxsplit=5)
            start, end = (int(bound, 16) for bound in span.split("-"))
            if start <= address < end:
                break
        else:
            return None
    if inode == "0":
        return None
    name = path[0].rstrip("\n")
    if not os.path.exists(name) or os.stat(name).st_size <= address - start + int(offset, 16):
        told = f"{name.removesuffix(' (deleted)')}: cut short or removed while it was in use; bring it back"
    else:
        space = os.statvfs(name)
        full = space.f_bavail * space.f_frsize < 2**20
        error = errno.ENOSPC if full else errno.EIO
        told = f"{name}: {files.reason(OSError(error, os.strerror(error)))}"
    folder = os.path.dirname(name)
    if os.path.exists(os.path.join(folder, format.RUN_JSON)):
        told += f"; then `streamsvm resume {folder}` continues from the last commit"
    return printable(told)
