"""Functions that run on the workers of a cluster: they keep files open from one task to the next."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from streamsvm.errors import StreamsvmError

_IDLE_SECONDS = 10.0  # between two looks whether a command still has tasks here

_T = TypeVar("_T")
_open: dict[str, Any] = {}
_closed: set[str] = set()  # names of what commands closed, though they may have tasks here still
_lock = threading.Lock()  # a worker may have several threads


def _dask_worker() -> Any:
    """Return the worker that runs this task; None if it is not one of Dask."""
    try:
        return sys.modules["distributed"].get_worker()
    except (KeyError, ValueError):
        return None


def own_address() -> str:
    """Return the address of the worker that runs this task."""
    return getattr(_dask_worker(), "address", f"process {os.getpid()}")


def open_once(token: str, open_: Callable[[], _T]) -> _T:
    """Return what this process has open under a name; call `open_` if it has nothing.

    The name begins with the token of the `Cluster` whose tasks ask for it: once none of these tasks are here,
    the object is closed. Raises `RuntimeError` if `close` was called with the name.
    """
    with _lock:
        if token in _closed:
            raise RuntimeError("the command of this task has ended")
        if token not in _open:
            _open[token] = open_()
            if (found := _dask_worker()) is not None:
                threading.Thread(target=_close_when_idle, args=(token, found), daemon=True).start()
        opened: _T = _open[token]
        return opened


def _close_when_idle(token: str, worker: Any) -> None:
    """Close what was opened for a command once the command has no task here: it may have been killed."""
    while token in _open:
        time.sleep(_IDLE_SECONDS)
        with _lock:  # a task that needs it is among those of the worker before it asks for it
            names = [str(key[0]) for key in list(worker.state.tasks) if isinstance(key, tuple)]
            if token in _open and not any(token.startswith(name.rpartition("-")[2]) for name in names):
                _open.pop(token).close()


def close(token: str) -> None:
    """Close what was opened under a name, for good."""
    with _lock:
        _closed.add(token)
        found = _open.pop(token, None)
    if found is not None:
        found.close()


def read_problem(data: Any) -> str | None:
    """Try to read the store that ``data.open()`` opens; return what is wrong, or None."""
    try:
        with data.open() as store:
            store.rows(0, min(1, store.n_rows))
    except StreamsvmError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def hold(value: Any) -> Any:
    """Return the value: the scheduler keeps it with this task, and sends it again if it was lost."""
    return value
