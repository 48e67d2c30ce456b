"""Workers of a cluster that run out of memory, or of disk: the right bytes, or one line that says it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import on_one_worker, start
from helpers import make_problem, make_store
from run_files import model_bytes
from scipy.sparse import csr_matrix

import streamsvm
from streamsvm.errors import ClusterError

distributed = pytest.importorskip("distributed")

BY_ROWS: dict[str, Any] = {"split": "rows", "splits": 2, "passes": 2, "C": 0.1, "block_rows": 120}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whose weights take 26 MB."""
    X, labels = make_problem(400, 30, 12, noise=1.5)
    far = csr_matrix((X.data, X.indices * 13_000, X.indptr), (400, 400_000))
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", far, labels)


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
        with pytest.raises(ClusterError, match=r"memory \(no room.*more memory.*resume") as caught:
            streamsvm.fit(store, out=run, cluster=cluster.scheduler_address, progress=False, **BY_ROWS)
    assert "\n" not in str(caught.value)
    streamsvm.resume(run, workers=2, progress=False)
    streamsvm.fit(store, out=tmp_path / "threads", progress=False, **BY_ROWS)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


@pytest.mark.parametrize("quiet", [False, True])
def test_semaphores_that_workers_leave_are_removed_without_a_warning(quiet: bool) -> None:
    code = """
import sys
from multiprocessing import resource_tracker
from streamsvm.cluster.client import start_quiet_tracker
if len(sys.argv) > 1:
    start_quiet_tracker()
resource_tracker.register("/none", "semaphore")
"""
    command = [sys.executable, "-c", code, *["quiet"] * quiet]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("resource_tracker" in done.stderr) is not quiet
