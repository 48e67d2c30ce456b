"""Connect to a Dask cluster: find its workers, check that they match, and wait for their results.

Tasks are pure functions of results of other tasks or of data on the scheduler, which repeats them if a worker
is lost. If data that only workers hold is lost (`WorkersLost`), the run continues from its last commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import platform
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from streamsvm.base.threads import Threads, WorkersLost, count_workers
from streamsvm.cluster import worker
from streamsvm.errors import ClusterError, Message, Option, Remedy, StreamsvmError, extra
from streamsvm.kernels.jit import compiler

LOCAL = "local"
CLOSE_SECONDS = 3.0  # time limit for workers to close files, and for local workers to end
_CHECK_ATTEMPTS = 3
_POLL_SECONDS = 1.0
_SILENT_SECONDS = 5.0  # time without a heartbeat; workers send at least one per second
_GRAPH_WARNING_SIZE = "1000PB"  # so large that Dask never warns of large arguments
_SCHEDULER_ERRORS = OSError, AttributeError, RuntimeError  # the last two are raised once the client gives up


class Limits(NamedTuple):
    """Time limits in seconds."""

    connect: float = 30.0  # for connecting to the scheduler or a worker
    task: float = 300.0  # for an answer, and between two heartbeats of a worker
    busy: float = 3600.0  # for tasks of a run, while all workers send heartbeats


LIMITS = Limits()
_SAME_VERSIONS = Remedy("install the same versions on all machines of the cluster")


def _load_distributed() -> Any:
    with extra(ClusterError, "a cluster needs dask.distributed, which is not installed", "cluster"):
        import distributed
    return distributed


def start_quiet_tracker() -> None:
    """Start the resource tracker without its warnings about the semaphores of killed workers."""
    sys.warnoptions.append("ignore:resource_tracker")  # the tracker inherits the options of this process
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.pop()


@contextlib.contextmanager
def running_cluster(
    address: str | os.PathLike[str], number: int | None, splits: int
) -> Iterator[tuple[str, int | None]]:
    """Start local workers if the address is "local"; yield the scheduler address and number of workers."""
    if os.fspath(address) != LOCAL:
        yield os.fspath(address), number
        return
    number = min(count_workers(number), splits)
    start_quiet_tracker()
    cluster = _load_distributed().LocalCluster(
        n_workers=0, threads_per_worker=1, processes=True,
        dashboard_address="127.0.0.1:0", memory_limit=0, silence_logs=50,
    )  # fmt: skip
    try:
        cluster.scale(number)  # does not wait, because waiting may never end if a worker dies
        yield cluster.scheduler_address, number
    finally:
        with contextlib.suppress(TimeoutError):  # a timeout also ends the processes
            cluster.close(timeout=CLOSE_SECONDS)


class Cluster:
    """Connection to a Dask cluster that runs the tasks of a training run.

    Parameters
    ----------
    address : str or path
        Address of the scheduler, such as "tcp://host:8786", its scheduler file, or "local" for processes on
        this machine, which end with the connection.
    number : int or None
        Number of workers to wait for (default 1), or maximum number of local processes to start (default:
        number of processors).
    splits : int
        Number of splits, which also limits the number of local processes.

    Attributes
    ----------
    threads : Threads
        Threads of this process, which compute accuracy and objective.
    when_silent : callable
        Called repeatedly during a wait while a worker sends no heartbeats. It may raise an exception.
    """

    def __init__(self, address: str | os.PathLike[str], number: int | None, splits: int) -> None:
        self._limits = LIMITS
        self._distributed = _load_distributed()
        self.address = os.fspath(address)
        self.token = uuid.uuid4().hex  # part of the task names, because a cluster may serve several runs
        self._stack = contextlib.ExitStack()
        self.threads = self._stack.enter_context(Threads(min(count_workers(None), splits)))
        self._n_tasks = 0
        self.when_silent: Callable[[], None] = lambda: None
        # Last heartbeat of each worker, by the scheduler's clock and by the local clock.
        self._heartbeats: dict[str, tuple[float, float]] = {}
        try:
            self._connect(number, splits)
        except BaseException:
            self._stack.close()
            raise

    def _connect(self, number: int | None, splits: int) -> None:
        options: dict[str, Any] = {"set_as_default": False, "direct_to_workers": True}
        try:
            if Path(self.address).is_file():
                with open(self.address) as file:
                    if "address" not in json.load(file):
                        raise ValueError("the file contains no address")
                options["scheduler_file"] = self.address
            else:
                running = running_cluster(self.address, number, splits)
                options["address"], number = self._stack.enter_context(running)
            # Keep the log silent until a local cluster has closed, which may be after `CLOSE_SECONDS`.
            self._stack.enter_context(self._distributed.utils.silence_logging_cmgr(logging.CRITICAL))
            # Collect clients that could not connect: closing one while another starts could block forever.
            gc.collect()
            client = self._distributed.Client(timeout=self._limits.connect, **options)
            self._client: Any = self._stack.enter_context(client)
        except (OSError, ValueError, TypeError) as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise ClusterError(
                f"there is no Dask scheduler at {self.address}: {reason}",
                remedy=Remedy(
                    "set the address that `dask scheduler` prints, its scheduler file, or {}",
                    Option("cluster", LOCAL),
                ),
            ) from None
        self._await_workers(number or 1)

    def _await_workers(self, number: int = 1) -> None:
        try:
            self._client.wait_for_workers(number, timeout=self._limits.connect)
        except (TimeoutError, *_SCHEDULER_ERRORS):
            raise ClusterError(
                f"the cluster {self.address} has {len(self.workers)} of {number} workers after waiting for "
                f"{self._limits.connect:g} seconds",
                remedy=Remedy("start more workers with `dask worker`, or reduce {}", Option("workers")),
            ) from None

    @property
    def workers(self) -> list[str]:
        return sorted(self._worker_records())

    @property
    def slots(self) -> list[str]:
        """Addresses of the workers, each repeated once per thread."""
        records = sorted(self._worker_records().items())
        return [address for address, record in records for _ in range(max(1, record["nthreads"]))]

    def _worker_records(self) -> dict[str, dict[str, Any]]:
        records: dict[str, dict[str, Any]] = self._client.scheduler_info(n_workers=-1).get("workers", {})
        return records

    def task(
        self,
        name: str,
        function: Callable[..., Any],
        *arguments: Any,
        at: str | None = None,
        movable: bool = True,
    ) -> Any:
        """Create a task to start later, shown as `name` on Dask's dashboard.

        `arguments` are values, tasks or futures, or lists of them. The task runs on the worker with the
        address `at`, or on another one if `movable` is True and Dask prefers that.
        """
        import dask

        self._n_tasks += 1
        key = f"{name}-{self.token}", self._n_tasks
        with dask.annotate(**({} if at is None else {"workers": [at], "allow_other_workers": movable})):
            return dask.delayed(function, pure=False)(*arguments, dask_key_name=key)

    def start(self, tasks: Sequence[Any]) -> list[Any]:
        """Start tasks and their dependencies; return the futures of the results.

        Raises `ClusterError` if the scheduler is gone, or `WorkersLost` if a lost connection was restored.
        """
        from dask import config

        try:
            with config.set({"distributed.admin.large-graph-warning-threshold": _GRAPH_WARNING_SIZE}):
                return self._client.compute(list(tasks), sync=False, optimize_graph=False)
        except Exception:
            if self._client.status == "running":
                raise
            self._await_scheduler()
            raise WorkersLost(f"the connection to the cluster {self.address} was lost") from None

    def results(self, futures: Sequence[Any], at: str | None = None) -> list[Any]:
        """Return the results of futures; errors in the data are raised as in training without a cluster.

        If `at` is the address of a worker, it must answer within `Limits.task`. Otherwise, the limit is
        `Limits.busy` while all workers send heartbeats. Raises `WorkersLost` if a limit is exceeded or a
        result is lost.
        """
        results: list[Any] = self._finish(self._client.gather(futures, asynchronous=True), futures, at)
        return results

    def put(self, values: Sequence[Any], at: str) -> list[Any]:
        """Send values to the worker `at`, and return futures, which are lost if the worker leaves."""
        scattering = self._client.scatter(
            list(values), workers=[at], direct=True, hash=False, timeout=self._limits.connect,
            asynchronous=True,
        )  # fmt: skip
        references: list[Any] = self._finish(scattering, [], at)
        return references

    def _finish(self, work: Coroutine[Any, Any, Any], futures: Sequence[Any], at: str | None) -> Any:
        pending = asyncio.run_coroutine_threadsafe(work, self._client.loop.asyncio_loop)
        try:
            return self._await(pending, futures, at)
        except StreamsvmError:
            raise
        except MemoryError as error:
            raise WorkersLost(
                f"a worker ran out of memory ({_one_line(error)}): give the workers more memory, or use more "
                "splits"
            ) from error
        except Exception as error:  # Dask raises many classes for lost results
            self._await_scheduler()
            raise WorkersLost(f"{type(error).__name__}: {_one_line(error)}") from error

    def _await(self, pending: Future[Any], futures: Sequence[Any], at: str | None) -> Any:
        last_finish = time.monotonic()
        n_finished, limits = 0, self._limits
        while True:
            try:
                return pending.result(timeout=_POLL_SECONDS)
            except TimeoutError:
                if pending.done():
                    raise
            now = time.monotonic()
            if self._has_silent_worker():
                self.when_silent()
            if at is not None and at not in self._heartbeats:
                raise WorkersLost(f"the worker {at} has left the cluster")
            if (count := sum(future.done() for future in futures)) > n_finished:
                n_finished, last_finish = count, now
            limit = limits.task if at is not None or self._is_silent(limits.task) else limits.busy
            if now - last_finish > limit:
                raise WorkersLost(f"the cluster {self.address} finished no task for {limit:g} seconds")

    def _has_silent_worker(self) -> bool:
        """Wait until there is a worker; return True if any has been silent for `_SILENT_SECONDS`."""
        if not (records := self._worker_records()):
            self._await_workers()
        now, before = time.monotonic(), self._heartbeats
        self._heartbeats = {}
        for at, record in records.items():
            last = record["last_seen"]  # by the scheduler's clock
            self._heartbeats[at] = before[at] if at in before and before[at][0] == last else (last, now)
        return self._is_silent(_SILENT_SECONDS)

    def _is_silent(self, seconds: float) -> bool:
        now = time.monotonic()
        return any(now - since > seconds for _, since in self._heartbeats.values())

    def _await_scheduler(self) -> None:
        until = time.monotonic() + self._limits.connect
        while self._client.status not in ("running", "closed") and time.monotonic() < until:
            time.sleep(_POLL_SECONDS / 10)
        if self._client.status != "running":
            raise ClusterError(f"the scheduler of the cluster {self.address} no longer answers")

    def check(self, data: Any) -> list[str]:
        """Check versions and data access of all workers; raise `ClusterError` or return warnings."""
        by_address = self.call_on_workers(versions)
        for address, remote in by_address.items():
            for name, version in versions().items():
                if name != "processor" and version != remote.get(name):
                    raise ClusterError(
                        f"the worker {address} has {name} {remote.get(name)}, but this process has {version}",
                        remedy=_SAME_VERSIONS,
                    )
        for address, problem in self.call_on_workers(worker.read_problem, data).items():
            if problem is not None:
                raise ClusterError(f"the worker {address} cannot read the data: {problem}")
        processors = sorted({remote["processor"] for remote in by_address.values()})
        if len(processors) == 1:
            return []
        return [
            Message(
                f"the workers have different processors ({', '.join(processors)}), so the last digits of the "
                "model depend on which worker runs which task",
                Remedy("set NUMBA_CPU_NAME and NUMBA_CPU_FEATURES to the same values on all machines"),
            )
        ]

    def call_on_workers(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function on all workers and return the results by address; try again if a worker leaves."""
        for attempt in range(_CHECK_ATTEMPTS):
            while not (addresses := self.workers):  # the last worker may just have left
                self._await_workers()
            tasks = [self.task("check", function, *arguments, at=at, movable=False) for at in addresses]
            try:
                return {
                    address: self.results([future], address)[0]
                    for address, future in zip(addresses, self.start(tasks), strict=True)
                }
            except WorkersLost as error:  # no run has begun that could continue
                if isinstance(error.__cause__, ImportError | RuntimeError | AttributeError):
                    raise ClusterError(
                        f"the scheduler or a worker of {self.address} cannot run streamsvm: {error}",
                        remedy=_SAME_VERSIONS,
                    ) from None
                if attempt + 1 == _CHECK_ATTEMPTS or set(addresses) <= set(self.workers):
                    raise ClusterError(f"a worker does not answer: {error}; restart the workers") from None
        raise AssertionError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect, after workers that answer have closed their files."""
        with contextlib.suppress(TimeoutError, *_SCHEDULER_ERRORS):
            self._client.run(worker.close, self.token, on_error="ignore", callback_timeout=CLOSE_SECONDS)
        self._stack.close()


def versions() -> dict[str, str]:
    """Return the program versions and the target processor of the kernels, which affect results."""
    return {
        "streamsvm": sys.modules["streamsvm"].__version__,
        "python": platform.python_version().rpartition(".")[0],
        "numpy": np.__version__,
        **compiler(),
    }


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
