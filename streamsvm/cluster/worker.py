"""Functions that run on the workers of a cluster, and keep files open between tasks."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from streamsvm.errors import StreamsvmError

_IDLE_SECONDS = 10.0  # interval of checks for remaining tasks of a command

_T = TypeVar("_T")
_open: dict[str, Any] = {}
_closed: set[str] = set()  # tokens of closed objects, which remaining tasks may still request
_lock = threading.Lock()  # a worker may have several threads


def _dask_worker() -> Any:
    try:
        return sys.modules["distributed"].get_worker()
    except (KeyError, ValueError):
        return None


def own_address() -> str:
    return getattr(_dask_worker(), "address", f"process {os.getpid()}")


def open_once(token: str, open_: Callable[[], _T]) -> _T:
    """Return the open object named `token`; call `open_` if there is none.

    The token begins with the token of a `Cluster`. The object is closed once the worker has no task of this
    cluster. Raises `RuntimeError` if the object was closed with `close`.
    """
    with _lock:
        if token in _closed:
            raise RuntimeError("the command that started this task has ended")
        if token not in _open:
            _open[token] = open_()
            if (dask_worker := _dask_worker()) is not None:
                threading.Thread(target=_close_when_idle, args=(token, dask_worker), daemon=True).start()
        opened: _T = _open[token]
        return opened


def _close_when_idle(token: str, worker: Any) -> None:
    """Close an object once no task of its command is left on this worker; killed commands do not close it."""
    while token in _open:
        time.sleep(_IDLE_SECONDS)
        with _lock:  # the worker lists a task before the task asks for the object
            names = [str(key[0]) for key in list(worker.state.tasks) if isinstance(key, tuple)]
            if token in _open and not any(token.startswith(name.rpartition("-")[2]) for name in names):
                _open.pop(token).close()


def close(token: str) -> None:
    with _lock:
        _closed.add(token)
        opened = _open.pop(token, None)
    if opened is not None:
        opened.close()


def read_problem(data: Any) -> str | None:
    """Read a row of the store that ``data.open()`` opens; return the error message, or None."""
    try:
        with data.open() as store:
            store.rows(0, min(1, store.n_rows))
    except StreamsvmError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def identity(value: Any) -> Any:
    """Return `value`, to make it the result of a task, which the scheduler can repeat if a worker is lost."""
    return value
