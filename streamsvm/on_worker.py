"""What the processes of a cluster's workers do for training and scoring alike."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from streamsvm.errors import StreamsvmError

_KEPT = 2  # runs, or stores that are scored, whose files a worker keeps open


class _Closable(Protocol):
    def close(self) -> None: ...


_T = TypeVar("_T", bound=_Closable)
_opened: collections.OrderedDict[str, Any] = collections.OrderedDict()
_lock = threading.Lock()  # a worker may have several threads


def opened(token: str, open_: Callable[[], _T]) -> _T:
    """What this process has opened under a name, or opens now. Of others it keeps the last ones."""
    with _lock:
        if token not in _opened:
            _opened[token] = open_()
        _opened.move_to_end(token)
        while len(_opened) > _KEPT:
            _opened.popitem(last=False)[1].close()
        found: _T = _opened[token]
        return found


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
