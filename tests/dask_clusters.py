"""Clusters of Dask on this machine, and the trainings that tests share out to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streamsvm
from streamsvm.cluster.client import Limits

LIMITS = Limits(connect=20.0, task=60.0)
# Settings of runs of several blocks and passes, whose average begins within a block.
BY_CLASSES: dict[str, Any] = {"split": "classes", "splits": 3, "passes": 3, "gap": "pass", "block_rows": 120}
BY_ROWS: dict[str, Any] = BY_CLASSES | {"split": "rows"}
EACH = pytest.mark.parametrize("settings", [BY_CLASSES, BY_ROWS], ids=["classes", "rows"])
MEASURED = ("dual", "primal", "gap", "train_accuracy", "average_gap", "valid_accuracy")


def start(n_workers: int = 2, threads: int = 1) -> Any:
    """A cluster of processes."""
    import distributed

    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=threads, processes=True, dashboard_address="127.0.0.1:0",
        memory_limit=0, silence_logs=50,
    )  # fmt: skip


def fit(store: Path | str, out: Path, settings: dict[str, Any], **more: Any) -> Any:
    return streamsvm.fit(store, out=out, **{"progress": False, **settings, **more})


def on_one_worker(cluster: Any, function: Any) -> None:
    """Run a function in the process of one worker."""
    import distributed

    with distributed.Client(cluster, set_as_default=False) as client:
        client.run(function, workers=[min(client.scheduler_info()["workers"])])


def measured(result: Any) -> list[dict[str, Any]]:
    """What each pass measured."""
    return [{name: record.get(name) for name in MEASURED} for record in result.history]


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", LIMITS)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from helpers import make_problem, make_store

    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(400, 30, 12, noise=1.5))
