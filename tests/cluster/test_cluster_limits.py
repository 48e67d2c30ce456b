"""Workers of a cluster that run out of memory, or of disk: the right bytes, or one line that says it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from helpers import make_problem, make_store
from run_files import model_bytes
from scipy.sparse import csr_matrix

import streamsvm
from streamsvm.cluster.client import Limits
from streamsvm.errors import ClusterError

distributed = pytest.importorskip("distributed")

BY_ROWS: dict[str, Any] = {"split": "rows", "splits": 2, "passes": 2, "C": 0.1, "block_rows": 120}


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=20.0, task=20.0))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whose weights take 26 MB."""
    X, labels = make_problem(400, 30, 12, noise=1.5)
    far = csr_matrix((X.data, X.indices * 13_000, X.indptr), (400, 400_000))
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", far, labels)


def start(n_workers: int) -> Any:
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
        memory_limit=0, silence_logs=50,
    )  # fmt: skip


def on_one_worker(cluster: Any, function: Any) -> None:
    """Run a function in the process of one worker."""
    with distributed.Client(cluster, set_as_default=False) as client:
        client.run(function, workers=[sorted(client.scheduler_info()["workers"])[0]])


def leave_little_memory() -> None:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**25, resource.RLIM_INFINITY))


def have_no_memory() -> None:
    from streamsvm.cluster import tasks as cluster_tasks

    def fail() -> int:
        raise MemoryError("no room for weights")

    cluster_tasks.peak_private_memory = fail


def test_a_task_that_has_no_memory_ends_the_run_with_one_line(store: Path, tmp_path: Path) -> None:
    """When it was tried again and again; and the run goes on where there is memory."""
    run = tmp_path / "run"
    with start(1) as cluster:
        on_one_worker(cluster, have_no_memory)
        with pytest.raises(
            ClusterError, match=r"out of memory \(no room.*give workers more.*resume"
        ) as caught:
            streamsvm.fit(store, out=run, cluster=cluster.scheduler_address, progress=False, **BY_ROWS)
    assert "\n" not in str(caught.value)
    streamsvm.resume(run, workers=2, progress=False)
    streamsvm.fit(store, out=tmp_path / "threads", progress=False, **BY_ROWS)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


@pytest.mark.more
@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_worker_that_cannot_receive_weights(store: Path, tmp_path: Path, n_workers: int) -> None:
    """It dies of that: the others go on, or the run ends with one line, within the limits."""
    run, small = tmp_path / "run", make_store(tmp_path / "small.zarr", *make_problem(100, 30, 12))
    with start(n_workers) as cluster:
        address = cluster.scheduler_address
        streamsvm.fit(small, out=tmp_path / "small", cluster=address, progress=False, **BY_ROWS)  # loads all
        on_one_worker(cluster, leave_little_memory)
        lines = []
        try:
            streamsvm.fit(store, out=run, cluster=address, workers=n_workers, progress=False, **BY_ROWS)
        except ClusterError as error:
            lines = str(error).split("\n")
    if lines:
        assert len(lines) == 1
        assert "resume" in lines[0]
        streamsvm.resume(run, workers=2, progress=False)
    streamsvm.fit(store, out=tmp_path / "threads", progress=False, **BY_ROWS)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")
