"""What the processes of a cluster's workers do for training and scoring alike."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from streamsvm.errors import StreamsvmError

_LEFT = 10.0  # seconds between two looks whether a command still has tasks here
_KEPT = 8  # runs, or stores that are scored, whose files a worker keeps open: most commands close theirs


class _Closable(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T", bound=_Closable)
_opened: collections.OrderedDict[str, Any] = collections.OrderedDict()
_lock = threading.Lock()  # a worker may have several threads


def here() -> str:
    """The address of the worker that runs this task."""
    from distributed import get_worker

    address: str = get_worker().address
    return address


def opened(token: str, open_: Callable[[], _T]) -> _T:
    """What this process has opened under a name, or opens now. Of others it keeps the last ones.

    The name begins with the token of the `Cluster` whose tasks ask for it: once none of these are here, it is
    closed.
    """
    from distributed import get_worker

    with _lock:
        if token not in _opened:
            for other in _opened.values():
                getattr(other, "forget", lambda: None)()  # what it holds in memory, and can read again
            _opened[token] = open_()
            threading.Thread(target=_close_when_left, args=(token, get_worker()), daemon=True).start()
        _opened.move_to_end(token)
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)[1].close()
        found: _T = _opened[token]
        return found


def _close_when_left(token: str, worker: Any) -> None:
    """Close what was opened for a command once it has no task here: it may have been killed."""
    while token in _opened:
        time.sleep(_LEFT)
        with _lock:  # a task that needs it is among those of the worker before it asks for it
            names = [str(key[0]) for key in list(worker.state.tasks) if isinstance(key, tuple)]
            if token in _opened and not any(token.startswith(name.rpartition("-")[2]) for name in names):
                _opened.pop(token).close()


def close(token: str) -> None:
    """Close what was opened under a name."""
    with _lock:
        found = _opened.pop(token, None)
    if found is not None:
        found.close()


def why_unreadable(data: Any) -> str | None:
    """Why this process cannot read the store that ``data.open()`` opens; None if it can."""
    try:
        with data.open() as store:
            store.rows(0, min(1, store.n_rows))
    except StreamsvmError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def hold(value: Any) -> Any:
    """The value: a task that has data, which the scheduler keeps and sends again if it was lost."""
    return value
