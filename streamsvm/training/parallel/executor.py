"""Interface for executing the tasks of a training in other processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamsvm.base.threads import Threads


class Executor(Protocol):
    """Workers with their own memory that can read the data, such as `Cluster` with Dask.

    Tasks are pure functions that do not modify their arguments, because a task may run again.
    """

    token: str  # unique name, under which workers keep files open
    threads: Threads
    # Called now and then while a result is awaited and a worker does not answer; may raise.
    when_silent: Callable[[], None]

    @property
    def slots(self) -> list[str]: ...  # addresses of the available workers, each once per thread

    def put(self, values: Sequence[Any], at: str) -> list[Any]:
        """Send values to the worker at an address, and return references to them.

        No other worker has a copy, so if the worker is lost, `results` that need the values raise
        `WorkersLost`.
        """

    def task(self, name: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Any:
        """Make a task to start later, on the worker at an address or on any worker.

        An argument is a value, a task, a reference to a result, or a list of values, tasks and references.
        """

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks and the tasks that they depend on; return references to their results."""

    def results(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results and return them; raise `WorkersLost` to continue from the last commit."""

    def check(self, data: Any) -> list[str]:
        """Raise `ClusterError` unless all workers can read the data of ``data.open()``; return warnings."""
