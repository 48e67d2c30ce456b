"""Logs of duals that a worker of a cluster writes into the run directory."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamsvm.base import durable
from streamsvm.cluster.worker import own_address
from streamsvm.kernels.duals import RowDuals
from streamsvm.run.append_log import LogEnd
from streamsvm.run.dual_log import DualWriter

_MAX_OPEN_LOGS = 4  # the last pass may be visited again, for what was lost


class DualLogs:
    """Open logs, one for each pass of each training; a training that goes on from a commit is another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: collections.OrderedDict[tuple[str, int], DualWriter] = collections.OrderedDict()

    def append(
        self, key: tuple[str, int], path: Path, block: int, parts: Sequence[RowDuals]
    ) -> tuple[str, LogEnd]:
        """Append duals of a block durably, and return the name of the log and its end.

        A log that is not there yet is begun at `path`. Threads wait for each other to write, but not to sync.
        """
        with self._lock:
            log = self._logs.get(key)
            if log is None:
                log = self._logs[key] = DualWriter(path, LogEnd())
                durable.sync_dir(path.parent)
                while len(self._logs) > _MAX_OPEN_LOGS:
                    self._logs.popitem(last=False)[1].close()
            try:
                for part in parts:
                    log.append_duals(block, part)
            except BaseException:  # it may end within a part: nothing is appended to it any more
                self._logs.pop(key).close()
                raise
            end = log.end
        try:
            log.sync()
        except BaseException:  # what it holds may be lost
            with self._lock:
                if self._logs.get(key) is log:
                    del self._logs[key]
            raise
        return log.path.name, end

    def close(self) -> None:
        with self._lock:
            while self._logs:
                self._logs.popitem()[1].close()


@contextlib.contextmanager
def naming_this_worker(path: Path) -> Iterator[None]:
    """Add the path and this worker's address to errors of writing; partial logs are deleted with others."""
    try:
        yield
    except OSError as error:
        raise OSError(f"the worker {own_address()} cannot write {path}: {durable.reason(error)}") from None
