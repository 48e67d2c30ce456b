"""Interface of executors, which run training tasks in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamsvm.base.threads import Threads


class Executor(Protocol):
    """Workers that have their own memory and can read the data, such as those of a Dask `Cluster`.

    Tasks are pure functions that do not modify their arguments, because a task may run again.
    """

    token: str  # unique name, under which workers keep files open
    threads: Threads
    # Called repeatedly while a worker whose result is awaited does not answer; may raise.
    when_silent: Callable[[], None]

    @property
    def slots(self) -> list[str]: ...  # addresses of the available workers, one entry per thread

    def put(self, values: Sequence[Any], at: str) -> list[Any]:
        """Send values to the worker at an address, and return references to them.

        The values are lost with the worker. Then `results` raises `WorkersLost` for tasks that need them.
        """

    def task(self, name: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Any:
        """Create a task to be started later, on the worker at an address or on any worker.

        An argument is a value, a task, a reference to a result, or a list of values, tasks and references.
        """

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks and the tasks that they depend on; return references to their results."""

    def results(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results and return them; raise `WorkersLost` if they are lost with their worker."""

    def check(self, data: Any) -> list[str]:
        """Return warnings of the workers; raise `ClusterError` unless all can read ``data.open()``."""
