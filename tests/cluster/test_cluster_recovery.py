"""What the workers of a cluster leave behind, and what a run does if something of it is missing or wrong."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import BY_CLASSES, EACH, fit, start
from helpers import make_problem, make_store
from run_files import model_bytes, stop_after

import streamsvm
from streamsvm.base.threads import WorkersLost
from streamsvm.cluster import worker
from streamsvm.errors import ClusterError, Interrupted

distributed = pytest.importorskip("distributed")
from streamsvm.cluster.client import Cluster, Limits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Dask has warnings of its own


def warnings_in(events: list[dict[str, Any]]) -> list[str]:
    return [event["warning"] for event in events if event.get("event") == "warning"]


# -- duals -----------------------------------------------------------------------------------------


@EACH
def test_parts_of_a_block_without_duals(local: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Of rows that are all empty."""
    X, labels = make_problem(200, 30, 6, noise=0.5)
    X = X.tolil()
    X[:100] = 0
    store = make_store(tmp_path / "a.zarr", X.tocsr(), labels)
    settings = {**settings, "block_rows": 50}
    fit(store, tmp_path / "threads", settings)
    fit(store, tmp_path / "run", settings, cluster=local.scheduler_address)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")


# -- what is lost ----------------------------------------------------------------------------------


@EACH
def test_a_worker_is_killed_long_after_the_last_commit(
    store: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """The run goes on from there, with the other."""
    settings, events, killed = {**settings, "passes": 5}, [], []
    fit(store, tmp_path / "whole", settings)
    with start() as cluster:

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage.startswith("pass 3 ") and not killed:
                killed.append(next(iter(cluster.workers.values())).process.pid)
                os.kill(killed[0], signal.SIGKILL)

        fit(
            store, tmp_path / "run", settings, cluster=cluster.scheduler_address, workers=2,
            progress=progress, report=events.append, checkpoint_every="1h",
        )  # fmt: skip
    assert killed
    [warning] = warnings_in(events)
    assert "continues from the last commit" in warning
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


@EACH
def test_all_workers_go_between_two_blocks(
    store: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=3.0, task=20.0))
    with start(1) as cluster:

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage.startswith("pass 2 ") and cluster.workers:
                cluster.scale(0)
                while cluster.scheduler.workers:
                    time.sleep(0.1)

        with pytest.raises(ClusterError, match=r"has 0 of 1 workers after waiting for 3 seconds.*resume"):
            fit(store, tmp_path / "run", settings, cluster=cluster.scheduler_address, progress=progress)
    streamsvm.resume(tmp_path / "run", progress=False)
    fit(store, tmp_path / "whole", settings)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


# -- what is left ----------------------------------------------------------------------------------


@EACH
def test_workers_keep_nothing_open_of_a_run_that_has_ended(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Though it was stopped while tasks of it ran, as some do while the gap is measured."""
    settings = settings | {"cluster": local.scheduler_address, "resume_or_start": True}
    for stop in (stop_after(6), lambda: False):
        with contextlib.suppress(Interrupted):
            fit(store, tmp_path / "run", settings, stop=stop)
        with distributed.Client(local, set_as_default=False) as client:
            assert set(client.run(what_is_open).values()) == {()}


def what_is_open() -> tuple[str, ...]:
    names = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if _is_link(n)]
    return *worker._open, *(name for name in names if "a.zarr" in name)


def _is_link(n: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{n}")


def test_workers_close_what_a_killed_command_had_open(store: Path, tmp_path: Path) -> None:
    words = ["--split", "rows", "--splits", "2", "--passes", "100000", "--gap", "none", "--block-rows", "120"]
    with start(1) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        client.run(look_often)
        command = [sys.executable, "-m", "streamsvm_cli.main", "fit", store, "--out", tmp_path / "run"]
        fitting = subprocess.Popen([*command, *words, "--cluster", cluster.scheduler_address, "--quiet"])
        try:
            wait_until(lambda: any(client.run(what_is_open).values()))
        finally:
            fitting.kill()
            fitting.wait()
        wait_until(lambda: not any(client.run(what_is_open).values()))


def look_often() -> None:
    worker._IDLE_SECONDS = 0.1


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_two_runs_at_once(store: Path, local: Any, tmp_path: Path) -> None:
    settings = {**BY_CLASSES, "passes": 2, "block_rows": 20, "gap": "none"}
    runs = [tmp_path / "a", tmp_path / "b"]
    more = {"cluster": local.scheduler_address}
    threads = [threading.Thread(target=fit, args=(store, run, settings), kwargs=more) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fit(store, tmp_path / "threads", settings)
    for run in runs:
        assert model_bytes(run) == model_bytes(tmp_path / "threads")


# -- waiting ---------------------------------------------------------------------------------------


def test_training_waits_for_long_tasks_whose_workers_are_heard_of(
    local: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Cluster(local.scheduler_address, None, 2) as cluster:
        cluster.call_on_workers(is_here)  # they import this module, and give no sign of life meanwhile
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=20, task=2.0))
    with Cluster(local.scheduler_address, None, 2) as cluster:
        tasks = [cluster.task("long", sleep_for, seconds) for seconds in (3.0, 0.0)]
        assert cluster.results(cluster.start(tasks)) == [3.0, 0.0]
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=20, task=2.0, busy=2.0))
    with Cluster(local.scheduler_address, None, 2) as cluster:
        tasks = [cluster.task("too long", sleep_for, 10.0)]
        with pytest.raises(WorkersLost, match="finished no task for 2 seconds"):
            cluster.results(cluster.start(tasks))


def test_a_task_is_not_waited_for_when_all_workers_have_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own limit is far longer than that for a worker to come."""
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=1.0))
    with start(1) as cluster, Cluster(cluster.scheduler_address, 1, 2) as workers:
        tasks = workers.start([workers.task("long", sleep_for, 600.0)])
        cluster.scale(0)
        with pytest.raises(ClusterError, match="has 0 of 1 workers after waiting for 1 seconds"):
            workers.results(tasks)


def test_a_check_does_not_wait_for_a_worker_that_has_gone() -> None:
    with start(1) as cluster, Cluster(cluster.scheduler_address, 1, 2) as workers:
        (worker,) = cluster.workers.values()
        os.kill(worker.process.pid, signal.SIGKILL)  # the next one has another address
        assert list(workers.call_on_workers(is_here).values()) == [True]


def is_here() -> bool:
    return True


def test_a_run_stops_while_a_worker_hangs_and_goes_on_from_its_last_commit(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.cluster.client._SILENT_SECONDS", 1.0)
    monkeypatch.setattr("streamsvm.cluster.client.CLOSE_SECONDS", 0.5)
    hanging: list[int] = []
    with start(2) as cluster:

        def progress(stage: str, done: int, total: int | None) -> None:
            if stage.startswith("pass 2 ") and not hanging:
                hanging.append(next(iter(cluster.workers.values())).process.pid)
                os.kill(hanging[0], signal.SIGSTOP)

        more = {"cluster": cluster.scheduler_address, "progress": progress, "stop": lambda: bool(hanging)}
        with pytest.raises(Interrupted, match=r"waiting for an unresponsive worker.*; continue with"):
            fit(store, tmp_path / "run", BY_CLASSES, **more)
        os.kill(hanging[0], signal.SIGKILL)  # else its end is waited for
    streamsvm.resume(tmp_path / "run", progress=False)
    fit(store, tmp_path / "whole", BY_CLASSES)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_a_local_worker_that_is_killed_while_it_starts_ends_with_one_line(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_process, killed = multiprocessing.process.BaseProcess.start, []

    def and_kill(process: Any) -> None:
        start_process(process)
        if not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", and_kill)
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=6.0))
    with pytest.raises(ClusterError, match=r"the cluster local has \d of 2 workers"):
        fit(store, tmp_path / "run", BY_CLASSES, cluster="local", workers=2)


def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
