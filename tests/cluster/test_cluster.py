"""Training on a Dask cluster: the bytes that threads give, whoever works, and whoever is lost on the way."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_clusters import BY_CLASSES, BY_ROWS, LIMITS, fit, measured, on_one_worker, start
from helpers import make_problem, make_store
from run_files import model_bytes

import streamsvm
from streamsvm.errors import ClusterError, SettingsError, StreamsvmError

distributed = pytest.importorskip("distributed")
from streamsvm.cluster.client import Cluster  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Dask has warnings of its own


# -- the same bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        BY_CLASSES,
        BY_CLASSES | {"loss": "ovr2", "average": False, "dtype": "float64", "transform": "scale=std"},
        BY_CLASSES | {"loss": "ww", "splits": 6, "class_weight": "balanced", "tol": 1e-9, "C": 0.1},
        BY_ROWS,
        BY_ROWS | {"loss": "llw", "splits": 5, "inner_passes": 0},
        BY_CLASSES | {"loss": "llw", "inner_passes": 0},
        BY_ROWS | {"splits": 2, "tol": 1e-9, "C": 0.1},
        BY_ROWS | {"loss": "cs", "splits": 2, "hold_out": "1/5", "block_rows": None},
        BY_ROWS | {"loss": "ovr", "class_weight": "balanced", "average": False},
    ],
    ids=lambda s: f"{s['split']}-{s['splits']}-{s.get('loss', 'ww')}",
)
def test_a_cluster_gives_the_model_and_the_gaps_of_threads(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    one = fit(store, tmp_path / "one", settings, workers=1)
    two = fit(store, tmp_path / "two", settings, workers=2)
    dask = fit(store, tmp_path / "dask", settings, cluster=local.scheduler_address)
    assert model_bytes(tmp_path / "two") == model_bytes(tmp_path / "one")
    assert model_bytes(tmp_path / "dask") == model_bytes(tmp_path / "one")
    assert measured(dask) == measured(one)
    assert dask.history[-1]["workers"] == 2
    assert two.relative_gap == one.relative_gap == dask.relative_gap


@pytest.mark.parametrize(
    ("n_workers", "threads"), [(1, 3), pytest.param(2, 2, marks=pytest.mark.more)], ids=["one", "two"]
)
def test_threads_of_a_worker_share_what_it_holds(
    store: Path, tmp_path: Path, n_workers: int, threads: int
) -> None:
    """The same bytes, though tasks that run at the same time are given the same arrays."""
    with start(n_workers, threads) as cluster:
        for number, settings in enumerate((BY_CLASSES, BY_ROWS, BY_ROWS | {"loss": "llw", "splits": 5})):
            folder = tmp_path / str(number)
            folder.mkdir()
            one = fit(store, folder / "one", settings, workers=1)
            dask = fit(store, folder / "dask", settings, cluster=cluster.scheduler_address)
            assert model_bytes(folder / "dask") == model_bytes(folder / "one")
            assert dask.history[-1]["workers"] == n_workers
            assert dask.relative_gap == one.relative_gap
            if n_workers == 1:
                assert dask.history[-1]["moved_bytes"] == 0


def test_workers_read_the_copy_of_a_store_at_an_address(store: Path, local: Any, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    fit(store, tmp_path / "one", BY_ROWS)
    dask = {"cluster": local.scheduler_address, "cache": tmp_path / "cache"}
    result = fit(store.as_uri(), tmp_path / "dask", BY_ROWS, **dask)
    assert model_bytes(tmp_path / "dask") == model_bytes(tmp_path / "one")
    assert all(each["worker_bytes_read"] > 0 for each in result.history)
    assert all(0 < each["bytes_read"] < each["worker_bytes_read"] for each in result.history)  # labels


def test_the_command_starts_processes(store: Path, tmp_path: Path) -> None:
    words = ["fit", store, "--passes", "2", "--split", "classes", "--splits", "2", "--seed", "3"]
    found = {}
    for name, more in (("threads", []), ("dask", ["--cluster", "local", "--workers", "2"])):
        command = [sys.executable, "-m", "streamsvm_cli.main", *words, "--out", tmp_path / name, *more]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found[name] = model_bytes(tmp_path / name)
        assert "distributed" not in done.stderr
    assert found["dask"] == found["threads"]


# -- what cannot work ------------------------------------------------------------------------------


def refusal(store: Path, tmp_path: Path, **given: Any) -> str:
    """The one line of a fit that is refused; nothing is trained."""
    run = tmp_path / "refused"
    with pytest.raises(StreamsvmError) as raised:
        fit(store, run, BY_CLASSES | given)
    assert isinstance(raised.value, ClusterError | SettingsError)
    assert not run.exists()
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_no_scheduler_is_there(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", LIMITS._replace(connect=1.0))
    damaged = tmp_path / "scheduler.json"
    damaged.write_text("{")
    for address in ("tcp://127.0.0.1:9", "nonsense://x", str(tmp_path / "none.json"), damaged):
        assert f"no Dask scheduler at {address}" in refusal(store, tmp_path, cluster=address)


def test_too_few_workers_come(
    store: Path, local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", LIMITS._replace(connect=1.0))
    message = refusal(store, tmp_path, cluster=local.scheduler_address, workers=3)
    assert "has 2 of 3 workers" in message


def test_a_client_without_connections_can_still_be_left(local: Any) -> None:
    """A further error would replace the one that says that the scheduler does not answer."""
    with Cluster(local.scheduler_address, 1, 1) as cluster:
        client = cluster._client
        asyncio.run_coroutine_threadsafe(client.rpc.close(), client.loop.asyncio_loop).result()


def test_a_scheduler_file_serves_as_address(store: Path, local: Any, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": local.scheduler_address}))
    fit(store, tmp_path / "threads", BY_ROWS)
    fit(store, tmp_path / "dask", BY_ROWS, cluster=path)
    assert model_bytes(tmp_path / "dask") == model_bytes(tmp_path / "threads")


def test_a_cluster_needs_a_store_splits_and_its_extra(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "splits" in refusal(store, tmp_path, splits=1, split="auto", cluster="local")
    with pytest.raises(SettingsError, match="cluster does not apply"):
        streamsvm.fit(np.eye(4), [0, 1, 0, 1], passes=1, splits=2, cluster="local")
    with pytest.raises(SettingsError, match="cluster has nothing to distribute"):
        streamsvm.tune(store, out=tmp_path / "run", cluster="local", progress=False)
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "streamsvm[cluster]" in refusal(store, tmp_path, cluster="local")


def test_versions_differ(store: Path, tmp_path: Path) -> None:
    def change() -> None:
        import numba

        numba.__version__ = "0.1"

    with start(2) as cluster:
        on_one_worker(cluster, change)
        message = refusal(store, tmp_path, cluster=cluster.scheduler_address)
    assert "has numba 0.1, but this process has" in message


def test_workers_see_another_store_or_none(store: Path, tmp_path: Path) -> None:
    other = str(make_store(tmp_path / "other.zarr", *make_problem(400, 30, 12, seed=1)))
    none = str(tmp_path / "none.zarr")
    for seen, problem in ((other, "fingerprint"), (none, none)):

        def change(seen: str = seen) -> None:
            from streamsvm.training import training

            opened = training.open_stores
            training.open_stores = lambda paths, **given: opened([seen], **given)

        with start(2) as cluster:
            on_one_worker(cluster, change)
            message = refusal(store, tmp_path, cluster=cluster.scheduler_address)
        assert "cannot read the data" in message
        assert problem in message


@pytest.mark.more
def test_processors_differ(store: Path, tmp_path: Path) -> None:
    def change() -> None:
        import numba

        numba.config.CPU_NAME = "generic"

    with start(2) as cluster:
        on_one_worker(cluster, change)
        result = fit(store, tmp_path / "run", BY_ROWS, cluster=cluster.scheduler_address)
    assert any("the workers have different processors" in warning for warning in result.warnings)


# -- searches ----------------------------------------------------------------------------------------


def test_settings_are_chosen_on_a_cluster(store: Path, local: Any, tmp_path: Path) -> None:
    """The same model as on threads."""
    search = {"C": [0.01, 0.1], "folds": 2, "split": "rows", "splits": 2, "progress": False}
    threads = streamsvm.tune(store, out=tmp_path / "threads", **search)
    dask = streamsvm.tune(store, out=tmp_path / "dask", cluster=local.scheduler_address, **search)
    without_seconds = [
        [{name: value for name, value in row.items() if name != "seconds"} for row in result.tried]
        for result in (threads, dask)
    ]
    assert without_seconds[0] == without_seconds[1]
    assert model_bytes(tmp_path / "dask") == model_bytes(tmp_path / "threads")
    assert dask.result.history[-1]["workers"] == 2
