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

        No other worker has a copy. If the worker is lost, results that need the values are lost, too. Raises
        `WorkersLost` as `results` does.
        """

    def task(self, name: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Any:
        """Make a task to start later, on the worker at an address or on any worker.

        The arguments are values, tasks, references to results, and lists of these.
        """

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks and the tasks that they depend on; return references to their results."""

    def results(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results and fetch them.

        Raises `WorkersLost` if results are lost, and the training must continue from its last commit.
        """

    def check(self, data: Any) -> list[str]:
        """Raise `ClusterError` unless all workers can read the data of ``data.open()``; return warnings."""
