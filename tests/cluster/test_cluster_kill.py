"""Workers, the scheduler and the command of a cluster are killed within passes, at counted instants.

Whatever is lost, the run goes on or resumes, and the model has the bytes of threads. An instant is the end of
a task, as the scheduler sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import BY_CLASSES, BY_ROWS, EACH, LIMITS, fit, start
from run_files import model_bytes

import streamsvm
from streamsvm.errors import ClusterError

distributed = pytest.importorskip("distributed")

# Dask has warnings of its own.
pytestmark = [pytest.mark.crash, pytest.mark.filterwarnings("default")]

TASKS = range(8, 150)  # instants at which tasks end; there are more in each of the runs here


@pytest.fixture(scope="module")
def workers() -> Iterator[Callable[[], Any]]:
    """Returns a cluster of two workers: that of the test before, if they are there again."""
    found: list[Any] = []
    with contextlib.ExitStack() as stack:

        def cluster() -> Any:
            try:
                found[-1].wait_for_workers(2, timeout=10)
            except (IndexError, TimeoutError):
                found.append(stack.enter_context(start(2)))
            return found[-1]

        yield cluster


def of_either(seed: int) -> dict[str, Any]:
    return BY_ROWS if seed % 2 else BY_CLASSES


# -- workers ---------------------------------------------------------------------------------------


class KillAt(distributed.SchedulerPlugin):
    """Kills workers when the scheduler has seen some number of tasks end."""

    def __init__(
        self, pids: Callable[[], list[int]], at: list[int], signal_number: int = signal.SIGKILL
    ) -> None:
        self.ended = 0
        self.killed: list[int] = []
        self._pids, self._at, self._signal = pids, at, signal_number

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        self.ended += finish == "memory"
        while self._at and self.ended >= self._at[0]:
            del self._at[0]
            pids = [pid for pid in self._pids() if pid not in self.killed]
            if pids:
                self.killed.append(pids[self.ended % len(pids)])
                os.kill(self.killed[-1], self._signal)


def pids_of(cluster: Any) -> list[int]:
    """Of the processes of workers that run."""
    processes = [worker.process for worker in cluster.workers.values()]
    return sorted(p.pid for p in processes if p is not None and p.status.name == "running" and p.pid)


def kill_while_training(
    store: Path,
    tmp_path: Path,
    workers: Callable[[], Any],
    settings: dict[str, Any],
    instants: list[int],
    every: str,
) -> int:
    """Kill workers at some instants, and return how many."""
    fit(store, tmp_path / "whole", settings)
    cluster = workers()
    plugin = KillAt(lambda: pids_of(cluster), instants)
    cluster.scheduler.add_plugin(plugin, name="kill")
    try:
        fit(store, tmp_path / "run", settings, cluster=cluster.scheduler_address, checkpoint_every=every)
    finally:
        cluster.scheduler.remove_plugin("kill")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    return len(plugin.killed)


@EACH
def test_a_worker_is_killed(
    store: Path, tmp_path: Path, workers: Callable[[], Any], settings: dict[str, Any]
) -> None:
    assert kill_while_training(store, tmp_path, workers, settings, [60], "2 blocks")


@pytest.mark.more
@pytest.mark.parametrize("seed", range(1, 25))
def test_workers_are_killed_at_random(
    store: Path, tmp_path: Path, workers: Callable[[], Any], seed: int
) -> None:
    draw = random.Random(seed)
    instants = sorted(draw.sample(TASKS, draw.choice([1, 1, 2])))
    every = ["1 blocks", "2 blocks", "1h"][seed % 3]
    assert kill_while_training(store, tmp_path, workers, of_either(seed), instants, every)


def test_a_worker_that_hangs_ends_the_run_with_one_line_and_it_resumes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", LIMITS._replace(task=3.0))
    fit(store, tmp_path / "whole", BY_CLASSES)
    run = tmp_path / "run"
    with start(2) as cluster:
        stopped = pids_of(cluster)[40 % 2]
        cluster.scheduler.add_plugin(KillAt(lambda: pids_of(cluster), [40], signal.SIGSTOP))
        try:
            with pytest.raises(ClusterError, match=r"for 3 seconds.*resume") as raised:
                fit(store, run, BY_CLASSES, cluster=cluster.scheduler_address, checkpoint_every="1 blocks")
        finally:
            os.kill(stopped, signal.SIGKILL)
    assert "\n" not in str(raised.value)
    streamsvm.resume(run, progress=False)
    assert model_bytes(run) == model_bytes(tmp_path / "whole")


# -- the scheduler, alone or with the command -------------------------------------------------------

# A process with a scheduler and two workers. The scheduler kills the process when some number of tasks have
# ended: with it, the command that it was started for, if there is one.
SCHEDULER = """
import json, os, signal, sys, time
import distributed
import streamsvm

class KillAt(distributed.SchedulerPlugin):
    ended = 0

    def transition(self, key, start, finish, *args, **kwargs):
        self.ended += finish == "memory"
        if self.ended == kill_at > 0:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    kill_at, *command = json.loads(sys.argv[1])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as cluster:
        cluster.scheduler.add_plugin(KillAt())
        if not command:
            print(cluster.scheduler_address, flush=True)
            while True:
                time.sleep(1)
        store, out, settings = command
        given = dict(cluster=cluster.scheduler_address, progress=False, checkpoint_every="1 blocks")
        if os.path.exists(out):
            streamsvm.resume(out, **given)
        else:
            streamsvm.fit(store, out=out, **settings, **given)
"""


def start_scheduler(folder: Path, *given: Any) -> subprocess.Popen:
    script = folder / "scheduler.py"
    script.write_text(SCHEDULER)
    words = [sys.executable, str(script), json.dumps(given)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_command(store: Path, tmp_path: Path, settings: dict[str, Any], instants: list[int]) -> None:
    """Kill commands that go on with a run on clusters of their own."""
    fit(store, tmp_path / "whole", settings)
    run = tmp_path / "run"
    for kill_at in [*instants, 0]:
        process = start_scheduler(tmp_path, kill_at, str(store), str(run), settings)
        errors = process.communicate()[1]
        assert process.returncode == (-signal.SIGKILL if kill_at else 0), errors
    assert model_bytes(run) == model_bytes(tmp_path / "whole")


def test_a_command_is_killed_and_another_resumes_on_a_new_cluster(store: Path, tmp_path: Path) -> None:
    kill_command(store, tmp_path, BY_CLASSES, [100])


@pytest.mark.more
@pytest.mark.parametrize("seed", range(6))
def test_commands_are_killed_at_random(store: Path, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    kill_command(store, tmp_path, of_either(seed), [draw.choice(TASKS[:60]) for _ in range(2)])


def kill_scheduler(
    store: Path, tmp_path: Path, settings: dict[str, Any], kill_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends with one line; the run resumes, on threads or on another cluster."""
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", LIMITS._replace(connect=10.0))
    fit(store, tmp_path / "whole", settings)
    run = tmp_path / "run"
    process = start_scheduler(tmp_path, kill_at)
    address = process.stdout.readline().strip()
    with pytest.raises(ClusterError, match="resume") as raised:
        fit(store, run, settings, cluster=address, workers=2, checkpoint_every="1 blocks")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "\n" not in str(raised.value)
    streamsvm.resume(run, progress=False, **({"cluster": "local"} if kill_at % 2 else {}), workers=2)
    assert model_bytes(run) == model_bytes(tmp_path / "whole")


@pytest.mark.more
@EACH
def test_the_scheduler_is_killed(
    store: Path, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_scheduler(store, tmp_path, settings, 60, monkeypatch)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(8))
def test_schedulers_are_killed_at_random(
    store: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at = random.Random(seed).choice(TASKS[12:])
    kill_scheduler(store, tmp_path, of_either(seed), kill_at, monkeypatch)
