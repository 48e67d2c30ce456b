"""The logs of duals that a process of a cluster writes for a run, in the run directory."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from streamsvm.base import durable
from streamsvm.cluster.worker import here
from streamsvm.kernels.duals import RowDuals
from streamsvm.run.append_log import LogEnd
from streamsvm.run.dual_log import DualWriter

_KEPT = 4  # logs that are open: the last pass may be visited again, for what was lost


class DualLogs:
    """Keeps one log for each pass of each training: one that goes on from a commit is another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: collections.OrderedDict[tuple[str, int], DualWriter] = collections.OrderedDict()

    def append(
        self, key: tuple[str, int], path: Path, block: int, parts: Sequence[RowDuals]
    ) -> tuple[str, LogEnd]:
        """Append duals of a block durably; returns the name of the log, and how far it has come.

        A log that is not there yet is begun at `path`. Threads wait for each other to write, and not for the
        disk.
        """
        with self._lock:
            log = self._logs.get(key)
            if log is None:
                log = self._logs[key] = DualWriter(path, LogEnd())
                durable.sync_dir(path.parent)
                while len(self._logs) > _KEPT:
                    self._logs.popitem(last=False)[1].close()
            try:
                for part in parts:
                    log.append_duals(block, part.as_buffer())
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
        raise OSError(f"the worker {here()} cannot write {path}: {durable.reason(error)}") from None
