"""Interface of what executes the tasks of a training elsewhere than in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from streamsvm.base.threads import Threads


class Executor(Protocol):
    """Workers with memory of their own, which can read the data: `Cluster` has them on Dask.

    Tasks are pure functions, which leave their arguments as they are: any of them may run again.

    Attributes
    ----------
    token : str
        Name that no other executor has; workers keep files open under it.
    threads : Threads
        Of this process, which measures.
    slots : list of str
        Addresses of the workers that are there, each repeated once per thread.
    when_silent : callable
        Called from time to time while a result is awaited and a worker is not heard of: it may raise.
    """

    token: str
    threads: Threads
    when_silent: Callable[[], None]

    @property
    def slots(self) -> list[str]: ...

    def put(self, values: Sequence[Any], at: str) -> list[Any]:
        """Send values to the worker `at` an address, and return references to them.

        Nobody else has them: if they are lost with the worker, so are the results that need them.

        Raises
        ------
        WorkersLost
            As `results` does.
        """

    def task(self, name: str, function: Callable[..., Any], *arguments: Any, at: str | None = None) -> Any:
        """Make a task to start later, which may run `at` the address of a worker, or elsewhere.

        Its arguments are values, tasks, references to results, and lists of these.
        """

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks, and those that they need, and return references to their results."""

    def results(self, references: Sequence[Any]) -> list[Any]:
        """Wait for results, and bring them here.

        Raises
        ------
        WorkersLost
            If they were lost, and the training is to go on from its last commit.
        """

    def check(self, data: Any) -> list[str]:
        """Raise `ClusterError` unless all workers can read what ``data.open()`` opens; return warnings."""
