"""Where targets put the files that they make of their bytes."""

from __future__ import annotations

import atexit
import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@functools.cache
def folder(name: str) -> Path:
    """A folder of this process, deleted at its end; in memory where the system has such a place."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@contextlib.contextmanager
def allowed(*errors: type[Exception]) -> Iterator[None]:
    """Let a target end by an error of ours, whose message must be one line."""
    try:
        yield
    except errors as error:
        message = str(error)
    else:
        return
    assert message
    assert "\n" not in message, message
