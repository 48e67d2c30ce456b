"""Dask clusters of processes on this machine, and errors of reaching a scheduler."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from streamsvm.errors import ClusterError, Option, Remedy

LOCAL = "local"
CLOSE_SECONDS = 3.0  # that workers are given to close files, and local ones to end
_START_SECONDS = 60.0  # that local workers are given to start


def load_distributed() -> Any:
    """Import dask.distributed, or raise `ClusterError`."""
    try:
        import distributed
        import distributed.scheduler
    except ImportError:
        raise ClusterError("a cluster needs dask.distributed: pip install 'streamsvm[cluster]'") from None
    return distributed


@contextlib.contextmanager
def no_scheduler_errors(address: str) -> Iterator[None]:
    """Raise `ClusterError` for errors of reaching a scheduler, or of starting one."""
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
def running_cluster(
    address: str | os.PathLike[str], number: int | None, splits: int
) -> Iterator[tuple[str, int | None]]:
    """Start a cluster if the address is "local", and end it on leaving.

    Gives the address of the scheduler and the number of workers to wait for.
    """
    if os.fspath(address) != LOCAL:
        yield os.fspath(address), number
        return
    distributed = load_distributed()
    from dask.system import CPU_COUNT

    number = min(number or CPU_COUNT, splits)
    with no_scheduler_errors(LOCAL):
        cluster = distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, processes=True,
            dashboard_address="127.0.0.1:0", memory_limit=0, silence_logs=50,
        )  # fmt: skip
    try:
        _start_workers(cluster, number)
        yield cluster.scheduler_address, number
    finally:
        with contextlib.suppress(TimeoutError):  # which ends the processes, too
            cluster.close(timeout=CLOSE_SECONDS)


def _start_workers(cluster: Any, number: int) -> None:
    """Start workers of this machine; Dask itself waits for those that die meanwhile, perhaps for ever."""
    cluster.scale(number)
    until = time.monotonic() + _START_SECONDS
    while (count := len(cluster.scheduler.workers)) < number:
        failed = {worker.status.name for worker in cluster.workers.values()} & {"failed", "closed"}
        if failed or time.monotonic() > until:
            raise ClusterError(
                f"{number - count} of {number} processes of the local cluster did not start",
                remedy=Remedy("run the command again"),
            )
        time.sleep(0.05)
