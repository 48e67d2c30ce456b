"""How much memory a worker of a cluster is said to need, beside what it then holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import make_store
from scipy.sparse import csr_array

import streamsvm
from streamsvm.errors import PlanError, RunError

pytestmark = pytest.mark.engine  # most of it plans, which needs no Dask


def draw(n: int, length: int, used: int, d: int) -> csr_array:
    """`n` rows of about `length` non-zeros, one of which is not in the first `used` features."""
    rng = np.random.default_rng(0)
    indices = rng.integers(0, used, (n, length))
    indices[0, 0] = d - 1
    rows = np.repeat(np.arange(n), length)
    return csr_array((np.ones(n * length, np.float32), (rows, indices.ravel())), shape=(n, d))


def write(folder: Path, X: csr_array, k: int) -> Path:
    return make_store(folder / f"{X.nnz}.zarr", X, np.arange(X.shape[0]) % k, chunk_nnz=2**16)


def test_without_splits_there_are_no_workers(tmp_path: Path) -> None:
    plan = streamsvm.plan(write(tmp_path, draw(100, 5, 50, 50), 4))
    assert plan["worker_bytes"] is None
    assert plan["worker_split_bytes"] is None


@pytest.mark.parametrize("average", [False, True])
def test_by_rows_a_worker_has_weights_of_a_block_s_features_beside_all_weights(
    tmp_path: Path, average: bool
) -> None:
    """All weights twice; for each split, those of its rows' features; and those of the block's."""
    n, d, k, splits = 2000, 50_000, 64, 4
    few, many = draw(n, 100, 5_000, d), draw(n, 100, d, d)
    plans = [
        streamsvm.plan(write(tmp_path, X, k), C=1, split="rows", splits=splits, average=average)
        for X in (few, many)
    ]
    feature = k * 4 * (1 + average)
    in_part, in_block = ([len(np.unique(X[:rows].indices)) for X in (few, many)] for rows in (n // splits, n))
    weights = feature * (2 * d + in_part[0] + in_block[0])
    assert weights < plans[0]["worker_bytes"] < weights + 12 * 10**6  # blocks, and chunks that are decoded
    more = {"worker_split_bytes": np.diff(in_part), "worker_bytes": np.diff(in_part) + np.diff(in_block)}
    for name, features in more.items():
        assert plans[1][name] - plans[0][name] == pytest.approx(feature * features, rel=0.05)


def test_by_classes_a_worker_has_two_groups_of_each_split(tmp_path: Path) -> None:
    store = write(tmp_path, draw(2000, 20, 50_000, 50_000), 256)
    two, eight = (
        streamsvm.plan(store, C=1, split="classes", splits=splits, average=False) for splits in (2, 8)
    )
    assert two["worker_split_bytes"] == pytest.approx(4 * eight["worker_split_bytes"], rel=0.1)
    assert two["worker_bytes"] > 2 * two["weights_bytes"]


def test_weights_of_many_splits_need_not_fit_into_the_command_of_a_cluster(tmp_path: Path) -> None:
    """Threads refuse, and say which budget is enough; with it, a cluster has the same plan, and weights."""
    distributed = pytest.importorskip("distributed")
    store = write(tmp_path, draw(400, 20, 50_000, 50_000), 64)
    settings = {"split": "rows", "splits": 8, "C": 0.1, "passes": 2, "block_rows": 150}
    small = 64 * 10**6
    assert streamsvm.plan(store, memory=small, cluster="any", **settings)["planned_bytes"] <= small
    with pytest.raises(PlanError, match="bytes for weights") as caught:
        streamsvm.fit(store, out=tmp_path / "refused", memory=small, workers=2, **settings)
    assert not (tmp_path / "refused").exists()
    enough = caught.value.needed_memory + 2**24  # so that `block_rows` alone says where blocks end
    assert enough > 9 * 2 * 50_000 * 64 * 4
    streamsvm.fit(store, out=tmp_path / "threads", memory=enough, workers=2, **settings)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
    ) as cluster:
        address = cluster.scheduler_address
        streamsvm.fit(
            store, out=tmp_path / "workers", memory=small, cluster=address, progress=False, keep_duals=True,
            **settings,
        )  # fmt: skip
    plans = [streamsvm.plan(store, memory=enough, cluster=each, **settings) for each in (None, "any")]
    assert plans[0] == plans[1]
    threads, workers = (streamsvm.load_model(tmp_path / name) for name in ("threads", "workers"))
    assert (threads.coef_ != workers.coef_).nnz == 0
    with pytest.raises(RunError, match="splits need more than"):
        streamsvm.resume(tmp_path / "workers", passes=3)


@pytest.mark.more
@pytest.mark.parametrize("used", [4_000, 40_000])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("split", ["rows", "classes"])
def test_a_worker_holds_what_is_said(tmp_path: Path, split: str, average: bool, used: int) -> None:
    """Weights of 102 MB; what the program takes is measured by a small fit.

    How much is there at the same time differs between runs.
    """
    distributed = pytest.importorskip("distributed")
    small = write(tmp_path, draw(200, 5, 20, 20), 64)
    store = write(tmp_path, draw(16_000, 150, used, 40_000), 640)
    settings = {"split": split, "splits": 2, "average": average, "C": 0.1, "passes": 3, "inner_passes": 0}
    peaks = []
    for path, block_rows in ((small, 100), (store, 4_000)):
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=0, dashboard_address="127.0.0.1:0"
        ) as cluster:
            result = streamsvm.fit(
                path, out=tmp_path / f"run of {path.stem}", cluster=cluster.scheduler_address, progress=False,
                block_rows=block_rows, **settings,
            )  # fmt: skip
        peaks.append(max(each["worker_peak_memory_bytes"] for each in result.history))
    planned = streamsvm.plan(store, block_rows=4_000, **settings)["worker_bytes"]
    assert 0.6 * planned < peaks[1] - peaks[0] < 1.15 * planned
