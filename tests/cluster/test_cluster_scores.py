"""Predictions and evaluations on a Dask cluster: what threads give, in the same order."""

from __future__ import annotations

import gc
import io
import logging
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store

import streamsvm
from streamsvm.cluster.client import Cluster, Limits
from streamsvm.errors import ClusterError, ModelError, PlanError, SettingsError
from streamsvm.store import open_store

distributed = pytest.importorskip("distributed")

N, D, K = 700, 40, 6


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("scoring") / "a.zarr", *make_problem(N, D, K, noise=2.0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    other = make_store(out.parent / "other.zarr", *make_problem(200, D, K, noise=2.0, seed=3))
    streamsvm.fit(store, out=out, passes=2, C=0.1, calibrate=other, progress=False)
    return out


def memory_of_many_blocks(run: Path, store: Path) -> int:
    """A budget with room for few of the rows."""
    with pytest.raises(PlanError) as caught:
        streamsvm.predict(run, store, memory=1)
    assert caught.value.needed_memory is not None
    memory = caught.value.needed_memory + 2**16
    with open_store(store) as opened:
        model = streamsvm.load_model(run)
        assert len(model.store_blocks(opened, memory // 2, labelled=True, named=False)) > 5
    return memory


@pytest.mark.parametrize(
    "options",
    [{}, {"top_k": 3}, {"top_k": 2, "proba": True}, {"threshold": -1.0}],
    ids=["best", "top", "proba", "threshold"],
)
def test_predicts_what_threads_do(store: Path, run: Path, address: str, options: dict[str, Any]) -> None:
    memory = memory_of_many_blocks(run, store)
    ours = streamsvm.predict(run, store, cluster=address, memory=memory, **options)
    theirs = streamsvm.predict(run, store, memory=memory, **options)
    assert ours.n == theirs.n == N
    for of_ours, of_theirs in ((ours.labels, theirs.labels), (ours.scores, theirs.scores)):
        assert of_ours is not None
        assert of_theirs is not None
        for row, other in zip(of_ours, of_theirs, strict=True):
            np.testing.assert_array_equal(row, other)


def test_files_of_several_stores_are_the_same(store: Path, run: Path, address: str, tmp_path: Path) -> None:
    other = make_store(tmp_path / "b.zarr", *make_problem(90, D, K, seed=5))
    memory = memory_of_many_blocks(run, store)
    more: dict[str, Any]
    for name, more in (("a.csv", {}), ("b.csv", {"cluster": address})):
        streamsvm.predict(run, [store, other], tmp_path / name, top_k=2, memory=memory, **more)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize("when", [1, 3])
def test_a_worker_that_is_killed_leaves_the_file_as_it_is(
    store: Path, run: Path, tmp_path: Path, when: int
) -> None:
    """The others score what it had; and it is started anew."""
    from distributed import LocalCluster

    memory, calls = memory_of_many_blocks(run, store), []
    streamsvm.predict(run, store, tmp_path / "a.csv", memory=memory)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
    ) as cluster:

        def progress(*more: Any) -> None:
            calls.append(more)
            if len(calls) == when:
                os.kill(cluster.workers[0].pid, signal.SIGKILL)

        streamsvm.predict(
            run, store, tmp_path / "b.csv", memory=memory, progress=progress,
            cluster=cluster.scheduler_address, workers=2,
        )  # fmt: skip
    assert len(calls) > 5
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_evaluates_as_threads_do(store: Path, run: Path, address: str) -> None:
    costs = np.random.default_rng(0).random((K, K))
    np.fill_diagonal(costs, 0)
    options: dict[str, Any] = {"memory": memory_of_many_blocks(run, store), "top_k": [1, 2], "costs": costs}
    ours = streamsvm.evaluate(run, store, cluster=address, **options)
    theirs = streamsvm.evaluate(run, store, **options)
    assert ours.n == N
    assert ours.accuracy == theirs.accuracy
    assert ours.top_k == theirs.top_k
    assert ours.macro_f1 == theirs.macro_f1
    for name in ("log_loss", "calibration_error", "mean_cost"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
        assert getattr(ours, name) > 0


def test_evaluates_several_labels_a_row(address: str, tmp_path: Path) -> None:
    from streamsvm_converters import convert

    rng = np.random.default_rng(1)
    lines = [
        ",".join(map(str, sorted(rng.choice(5, rng.integers(1, 4), replace=False))))
        + " "
        + " ".join(f"{f + 1}:{x:.3f}" for f, x in enumerate(rng.normal(size=8)))
        for _ in range(300)
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    convert(tmp_path / "a.txt", tmp_path / "a.zarr", multilabel=True)
    streamsvm.fit(
        tmp_path / "a.zarr", out=tmp_path / "run", passes=2, loss="ovr2", dtype="float64", progress=False
    )
    memory = memory_of_many_blocks(tmp_path / "run", tmp_path / "a.zarr")
    ours = streamsvm.evaluate(tmp_path / "run", tmp_path / "a.zarr", cluster=address, memory=memory)
    theirs = streamsvm.evaluate(tmp_path / "run", tmp_path / "a.zarr", memory=memory)
    assert ours.ranking_loss == pytest.approx(theirs.ranking_loss, rel=1e-12)
    for name in ("n", "precision", "micro_f1", "macro_f1", "subset_accuracy"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_columns_of_the_file_that_workers_have_read(address: str, tmp_path: Path) -> None:
    """They have closed it when the predictions are written into it."""
    anndata = pytest.importorskip("anndata")
    X, y = make_problem(120, D, K, noise=2.0)
    cells = anndata.AnnData(X)
    cells.obs["type"] = np.array(y).astype(str)
    cells.write_h5ad(tmp_path / "a.h5ad")
    streamsvm.fit(tmp_path / "a.h5ad", label="type", out=tmp_path / "run", passes=2, progress=False)
    expected = streamsvm.predict(tmp_path / "run", tmp_path / "a.h5ad").labels
    streamsvm.predict(tmp_path / "run", tmp_path / "a.h5ad", into=tmp_path / "a.h5ad", cluster=address)
    written = anndata.read_h5ad(tmp_path / "a.h5ad").obs["streamsvm_label"]
    assert expected is not None
    assert written.astype(str).tolist() == expected[:, 0].tolist()


def test_a_store_may_be_named_from_the_folder_of_the_command(
    store: Path, run: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not the folder of the workers."""
    monkeypatch.chdir(store.parent)
    there = streamsvm.predict(run, store.name, cluster=address)
    np.testing.assert_array_equal(there.labels, streamsvm.predict(run, store).labels)
    assert streamsvm.evaluate(run, store.name, cluster=address).n == N


def test_a_store_that_workers_cannot_read(
    store: Path, run: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on machines that do not have it: here they look for it in another folder."""
    monkeypatch.chdir(store.parent)
    monkeypatch.setattr("streamsvm.prediction.predictions.absolute", str)
    with pytest.raises(ClusterError, match="cannot read the data"):
        streamsvm.predict(run, store.name, cluster=address)


def test_a_cluster_scores_stores_alone(store: Path, run: Path) -> None:
    X = np.zeros((3, D), np.float32)
    with pytest.raises(SettingsError, match="cluster is for paths of stores"):
        streamsvm.predict(run, X, cluster="local")
    with pytest.raises(SettingsError, match="cluster is for paths of stores"):
        streamsvm.evaluate(run, X, ["1", "2", "3"], cluster="local")
    with pytest.raises(SettingsError, match="y is for the rows of a matrix"):
        streamsvm.evaluate(run, store, ["1"] * N, cluster="local")
    with pytest.raises(SettingsError, match="groups is for the rows of a matrix"):
        streamsvm.predict(run, store, groups=[1] * N, cluster="local")
    with pytest.raises(SettingsError, match="observe is not for a cluster"):
        streamsvm.evaluate(run, store, cluster="local", observe=print)


def test_a_row_that_cannot_be_scored_is_named(address: str, tmp_path: Path) -> None:
    """By its number in the whole store, wherever it is scored."""
    X, y = make_problem(N, D, K, noise=2.0)
    store, run = make_store(tmp_path / "a.zarr", X * 1e-4, y), tmp_path / "run"
    streamsvm.fit(store, out=run, passes=1, progress=False)  # whose weights are large
    X = X.tolil()
    X[613, :] = 3e38
    bad = make_store(tmp_path / "bad.zarr", X.tocsr(), y)
    with pytest.raises(ModelError, match=r"row 613 of .*bad.zarr: a score overflows"):
        streamsvm.predict(run, bad, cluster=address, memory=memory_of_many_blocks(run, store))


def test_a_task_may_take_long_while_its_worker_is_heard_of(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=20, task=2))
    with Cluster(address, None, 2) as cluster:
        took = list(cluster.in_order("long", sleep_for, [(5.0,), (0.0,), (0.1,)]))
    assert took == [5.0, 0.0, 0.1]


def test_a_local_cluster_that_closes_slowly_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class SlowCluster(distributed.LocalCluster):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            started.append(self)

        def close(self, timeout: float | None = None) -> Any:
            if timeout is not None:
                raise TimeoutError
            return super().close()

    monkeypatch.setattr(distributed, "LocalCluster", SlowCluster)
    gc.collect()
    time.sleep(1)  # until schedulers of other tests have said that clients, collected now, are gone
    handler = logging.StreamHandler(io.StringIO())  # as Dask has one, but in tests
    monkeypatch.setattr(logging.getLogger("distributed"), "handlers", [handler])
    with Cluster("local", 1):
        pass
    started[0].close()
    assert handler.stream.getvalue() == ""


def sleep_for(seconds: float) -> float:
    time.sleep(seconds)
    return seconds
