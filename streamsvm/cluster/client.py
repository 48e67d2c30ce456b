"""The workers of a Dask cluster: reaching them, checking that they are alike, and waiting for what they do.

Tasks are pure functions of their arguments, and arguments are other tasks' results or data that the scheduler
holds. So it can run again whatever was lost with a worker. What it cannot repair is raised as `WorkersLost`:
the run then goes on from its last commit.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import logging
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from streamsvm.base.threads import Threads, WorkersLost, count_workers
from streamsvm.cluster import worker as on_worker
from streamsvm.errors import ClusterError, Message, Option, Remedy, SettingsError, StreamsvmError
from streamsvm.kernels.jit import compiler

LOCAL = "local"
_AHEAD = 2  # items that each thread of a worker is given before the first result is awaited
_ASKED = 3  # times that all workers are asked, if some go meanwhile
_STEP = 1.0  # seconds between two looks at the cluster while a result is awaited
_SILENT = 5.0  # seconds without a sign of life of a worker; they give one each second or less
_GOODBYE = 3.0  # seconds that workers are given to close files, and local ones to end
_NO_LIMIT = "1000PB"  # of what a task may be given without a warning
_NOT_THERE = OSError, AttributeError  # of a scheduler; the second when the client has given it up


class Limits(NamedTuple):
    """How long is waited, in seconds, before a cluster counts as out of order."""

    connect: float = 30.0  # for the scheduler, and for a worker that is there
    task: float = 300.0  # for an answer, and between two signs of life of each worker
    busy: float = 3600.0  # while no task of a training ends, though all workers are heard of


LIMITS = Limits()


class _TooLong(WorkersLost):
    """A task that has not ended in the limit."""


class Cluster:
    """A Dask cluster, as the workers of a run or of predictions.

    Parameters
    ----------
    address : str or path
        Of the scheduler ("tcp://host:8786"), its scheduler file, or "local": processes of this machine, which
        are ended at the end.
    number : int, optional
        Workers to wait for, or to start; by default one, or one for each processor and split.
    splits : int, optional
        Of the work: more local processes than that have nothing to do. By default it has enough for all.
    limits : Limits, optional

    Attributes
    ----------
    threads : Threads
        Of this process, which measures.
    count : int
        Tasks made so far.
    when_silent : callable
        Called from time to time while a result is awaited and a worker is not heard of: it may raise.

    Raises
    ------
    ClusterError
        If the extra is not installed, there is no scheduler, or no worker.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        number: int | None = None,
        splits: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        splits = splits or number or count_workers(None)
        self.limits = limits or LIMITS
        self.address = os.fspath(address)
        self.token = uuid.uuid4().hex  # in the names of tasks: a cluster may serve several runs
        self._distributed = _load_distributed()
        self._stack = contextlib.ExitStack()
        self.threads = self._stack.enter_context(Threads(min(count_workers(None), splits)))
        self.count = 0
        self.when_silent: Callable[[], None] = lambda: None
        self._heard: dict[str, tuple[float, float]] = {}  # when, by the scheduler's clock and by ours
        self._clock = _clock()
        self._stack.enter_context(self._distributed.utils.silence_logging_cmgr(logging.CRITICAL))
        try:
            self._client = self._connect(number, splits)
            wanted = number or 1
            self._await_workers(min(wanted, splits) if self.address == LOCAL else wanted)
        except BaseException:
            self._stack.close()
            raise

    def _connect(self, number: int | None, splits: int) -> Any:
        distributed = self._distributed
        given = {"set_as_default": False, "direct_to_workers": True, "timeout": self.limits.connect}
        with _no_scheduler(self.address):
            if Path(self.address).is_file():
                with open(self.address) as file:
                    if "address" not in json.load(file):
                        raise ValueError("no address in it")
                client = distributed.Client(scheduler_file=self.address, **given)
            else:
                address, _ = self._stack.enter_context(started(self.address, number, splits))
                client = distributed.Client(address, **given)
            return self._stack.enter_context(client)

    def _await_workers(self, number: int = 1) -> None:
        try:
            self._client.wait_for_workers(number, timeout=self.limits.connect)
        except (TimeoutError, *_NOT_THERE):
            raise ClusterError(
                f"the cluster {self.address} has {len(self.workers)} workers, and {number} did not come in "
                f"{self.limits.connect:g} seconds",
                remedy=Remedy("start them with `dask worker`, or ask for fewer with {}", Option("workers")),
            ) from None

    @property
    def workers(self) -> list[str]:
        """The addresses of the workers that are there."""
        return sorted(self._threads_of())

    @property
    def slots(self) -> list[str]:
        """The addresses of the workers that are there, each as often as it has threads."""
        threads = self._threads_of()
        return [address for address in sorted(threads) for _ in range(threads[address])]

    @property
    def most_threads(self) -> int:
        """The threads of the worker that has most."""
        return max(self._threads_of().values(), default=1)

    def _threads_of(self) -> dict[str, int]:
        return {address: max(1, facts.get("nthreads", 1)) for address, facts in self._facts().items()}

    def _facts(self) -> dict[str, dict[str, Any]]:
        """What the scheduler knows of each worker."""
        found: dict[str, dict[str, Any]] = self._client.scheduler_info(n_workers=-1).get("workers", {})
        return found

    # -- tasks -------------------------------------------------------------------------------------

    def task(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        at: str | None = None,
        movable: bool = True,
    ) -> Any:
        """A task to be started, which is shown under `name`, on the worker `at`; or preferably there.

        Arguments may be tasks, futures, and lists of both.
        """
        import dask

        self.count += 1
        key = f"{name}-{self.token}", self.count
        with dask.annotate(**({} if at is None else {"workers": [at], "allow_other_workers": movable})):
            return dask.delayed(function, pure=False)(*arguments, dask_key_name=key)

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks, and those that they need; returns the futures of their results.

        Raises
        ------
        ClusterError
            If the scheduler has gone; `WorkersLost` if the connection was lost, and is there again.
        """
        from dask import config

        try:
            with config.set({"distributed.admin.large-graph-warning-threshold": _NO_LIMIT}):
                return self._client.compute(list(tasks), sync=False, optimize_graph=False)
        except Exception:
            if self._client.status == "running":
                raise
            self._await_scheduler()
            raise WorkersLost(f"the connection to the cluster {self.address} was lost") from None

    def results(self, futures: Iterable[Any]) -> list[Any]:
        """The results of futures; errors of the data are raised as on this machine.

        Raises
        ------
        WorkersLost
            If a worker is not heard of, no task ends for very long, or what is needed was lost.
        """
        futures = list(futures)
        return [self._result_of_long(future, futures) for future in futures]

    def _result(self, future: Any, at: str | None = None) -> Any:
        coming = asyncio.run_coroutine_threadsafe(
            self._client.gather(future, asynchronous=True), self._client.loop.asyncio_loop
        )
        try:
            return self._awaited(coming, at)
        except StreamsvmError:
            raise
        except MemoryError as error:
            raise WorkersLost(
                f"a worker is out of memory ({_line(error)}): give workers more of it, or split the work more"
            ) from error
        except (CancelledError, self._distributed.scheduler.KilledWorker, OSError) as error:
            self._await_scheduler()
            raise WorkersLost(_line(error)) from error
        except Exception as error:  # Dask has many kinds for what was lost
            raise WorkersLost(f"{type(error).__name__}: {_line(error)}") from error

    def _awaited(self, coming: Future[Any], at: str | None) -> Any:
        """The result of a task, while there are workers that can end it: any, or the one `at` an address."""
        begin = time.monotonic()
        while True:
            try:
                return coming.result(timeout=_STEP)
            except TimeoutError:
                if coming.done():  # an error of the task
                    raise
            waited, set_back = time.monotonic() - begin, self._clock - _clock()
            if self._has_silent_worker():
                self.when_silent()
            if at is not None and at not in self._heard:
                raise WorkersLost(f"the worker {at} has gone")
            if waited > self.limits.connect and set_back > self.limits.task:
                raise ClusterError(
                    f"no task ends since the clock was set back by {set_back:.0f} seconds: Dask plans by it"
                )
            if waited > self.limits.task:
                raise self._too_long(self.limits.task)

    def _has_silent_worker(self) -> bool:
        """Whether a worker has not been heard of for a while; waits for one if there are none."""
        seen = {at: facts["last_seen"] for at, facts in self._facts().items()}  # by the scheduler's clock
        if not seen:
            self._await_workers()
        now, before = time.monotonic(), self._heard
        self._heard = {
            at: before[at] if at in before and before[at][0] == last else (last, now)
            for at, last in seen.items()
        }
        return self._is_silent(_SILENT)

    def _is_silent(self, seconds: float) -> bool:
        now = time.monotonic()
        return any(now - since > seconds for _, since in self._heard.values())

    def _await_scheduler(self) -> None:
        """Wait for a connection that was lost, or raise `ClusterError`."""
        until = time.monotonic() + self.limits.connect
        while self._client.status not in ("running", "closed") and time.monotonic() < until:
            time.sleep(_STEP / 10)
        if self._client.status != "running":
            raise ClusterError(f"the scheduler of the cluster {self.address} has gone")

    def hold(self, value: Any) -> Any:
        """The future of a value that tasks are given."""
        (held,) = self.start([self.task("settings", on_worker.hold, value)])
        return held

    def in_order(
        self, name: str, function: Callable[..., Any], items: Iterable[tuple[Any, ...]]
    ) -> Iterator[Any]:
        """What ``function(*item)`` returns for each item, in their order; some are ahead of their use.

        Raises
        ------
        ClusterError
            If workers are lost faster than others do their work, or are not heard of. A task may take long.
        """
        awaited: collections.deque[Any] = collections.deque()
        try:
            for item in items:
                awaited += self.start([self.task(name, function, *item)])
                while len(awaited) >= _AHEAD * max(len(self.slots), 1):
                    yield self._result_of_long(awaited.popleft())
            while awaited:
                yield self._result_of_long(awaited.popleft())
        except ClusterError as error:  # there is no commit to go on from
            again = error.message.remedy or Remedy("run the command again")
            raise ClusterError(error.message.problem, remedy=again) from None

    def _result_of_long(self, future: Any, others: Sequence[Any] | None = None) -> Any:
        """The result of a task that takes long, while all workers are heard of.

        And while any of `others` ends from time to time, if they are given.
        """
        done, since = -1, time.monotonic()
        while True:
            try:
                return self._result(future)
            except _TooLong:
                if not self._heard or self._is_silent(self.limits.task):
                    raise
                if others is None:
                    continue
                earlier, done = done, sum(each.done() for each in others)
                if done > earlier:
                    since = time.monotonic()
                if time.monotonic() - since > self.limits.busy:
                    raise self._too_long(self.limits.busy) from None

    def _too_long(self, seconds: float) -> _TooLong:
        return _TooLong(f"no task ended for {seconds:g} seconds on the cluster {self.address}")

    # -- checks ------------------------------------------------------------------------------------

    def check(self, data: Any) -> list[str]:
        """Raise `ClusterError` unless all workers have our versions and can read the store; returns warnings.

        ``data.open()`` opens it on a worker.
        """
        found = self.on_each(versions_here)
        here = versions_here()
        for address, versions in found.items():
            other = [name for name in here if name != "processor" and here[name] != versions.get(name)]
            if other:
                name = other[0]
                raise ClusterError(
                    f"the worker {address} has {name} {versions.get(name)}, and this process {here[name]}",
                    remedy=Remedy("install the same versions on all machines of the cluster"),
                )
        for address, problem in self.on_each(on_worker.why_unreadable, data).items():
            if problem is not None:
                raise ClusterError(f"the worker {address} cannot read the data: {problem}")
        processors = sorted({versions["processor"] for versions in found.values()})
        if len(processors) == 1:
            return []
        return [
            Message(
                f"the processors of the workers differ ({', '.join(processors)}): their results may, in the "
                "last digits, and the model then depends on who did what",
                Remedy("set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES to the same on all machines"),
            )
        ]

    def on_each(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function on each worker, or on the others if some go; returns results by address."""
        for attempt in range(_ASKED):
            self._await_workers()
            addresses = self.workers
            tasks = [self.task("check", function, *arguments, at=at, movable=False) for at in addresses]
            with self._one_line():
                try:
                    return {
                        address: self._result(future, address)
                        for address, future in zip(addresses, self.start(tasks), strict=True)
                    }
                except WorkersLost:
                    if attempt + 1 == _ASKED or set(addresses) <= set(self.workers):
                        raise
        raise AssertionError

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function in the process of each worker that is there, beside its tasks, if it answers."""
        with contextlib.suppress(TimeoutError, *_NOT_THERE):
            self._client.run(function, *arguments, on_error="ignore", callback_timeout=_GOODBYE)

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        """Errors of a cluster on which nothing runs yet."""
        try:
            yield
        except WorkersLost as error:
            if isinstance(error.__cause__, ImportError | RuntimeError | AttributeError):
                raise ClusterError(
                    f"the scheduler or a worker of {self.address} cannot run streamsvm: {error}",
                    remedy=Remedy("install the same versions on all machines of the cluster"),
                ) from None
            raise ClusterError(f"a worker does not answer: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def versions_here() -> dict[str, str]:
    """Of what results depend on: programs, and the processor that kernels are compiled for."""
    return {
        "streamsvm": sys.modules["streamsvm"].__version__,
        "python": platform.python_version().rpartition(".")[0],
        "numpy": np.__version__,
        **compiler(),
    }


def _load_distributed() -> Any:
    try:
        import distributed
        import distributed.scheduler
    except ImportError:
        raise ClusterError("a cluster needs dask.distributed: pip install 'streamsvm[cluster]'") from None
    return distributed


def _clock() -> float:
    """How far the clock of this machine is ahead of one that is never set."""
    return time.time() - time.monotonic()


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:300] if text else type(error).__name__


@contextlib.contextmanager
def _no_scheduler(address: str) -> Iterator[None]:
    """Errors of reaching a scheduler, or of starting one."""
    try:
        yield
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ClusterError(
            f"there is no Dask scheduler at {address}: {reason}",
            remedy=Remedy(
                "give the address that `dask scheduler` prints, its scheduler file, or {}",
                Option("cluster", LOCAL),
            ),
        ) from None


@contextlib.contextmanager
def started(
    address: str | os.PathLike[str], number: int | None, splits: int
) -> Iterator[tuple[str, int | None]]:
    """The address of a cluster and the workers to wait for; for "local", of one that is ended at the end."""
    if os.fspath(address) != LOCAL:
        yield os.fspath(address), number
        return
    distributed = _load_distributed()
    from dask.system import CPU_COUNT

    number = min(number or CPU_COUNT, splits)
    with _no_scheduler(LOCAL):
        cluster = distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, processes=True,
            dashboard_address="127.0.0.1:0", memory_limit=0, silence_logs=50,
        )  # fmt: skip
    try:
        _start_workers(cluster, number)
        yield cluster.scheduler_address, number
    finally:
        with contextlib.suppress(TimeoutError):  # which ends the processes, too
            cluster.close(timeout=_GOODBYE)


def _start_workers(cluster: Any, number: int) -> None:
    """Start workers of this machine; Dask itself waits for those that die meanwhile, perhaps for ever."""
    cluster.scale(number)
    until = time.monotonic() + 2 * LIMITS.connect
    while (count := len(cluster.scheduler.workers)) < number:
        is_over = {worker.status.name for worker in cluster.workers.values()} & {"failed", "closed"}
        if is_over or time.monotonic() > until:
            raise ClusterError(
                f"{number - count} of {number} processes of the local cluster did not start",
                remedy=Remedy("run the command again"),
            )
        time.sleep(_STEP / 20)


def check_splits(splits: int) -> None:
    """Raise `SettingsError` if there is nothing to share out."""
    if splits == 1:
        raise SettingsError(
            "a cluster has nothing to share out in a run of one split",
            remedy=Remedy("give {}, of 2 or more", Option("splits")),
            setting="cluster",
        )
