"""Duals and weights that workers of a cluster write to the run directory themselves."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import make_problem, make_store
from run_files import model_bytes

import streamsvm
from streamsvm import cluster as cluster_module
from streamsvm.errors import Interrupted, RunError
from streamsvm.run import weights
from streamsvm.run.directory import RunDir

distributed = pytest.importorskip("distributed")
from streamsvm.cluster import Cluster  # noqa: E402
from streamsvm.training.parallel import on_cluster  # noqa: E402
from streamsvm.training.parallel.cluster_tasks import Held  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Dask has warnings of its own

BY_CLASSES: dict[str, Any] = {"split": "classes", "splits": 2, "passes": 3, "block_rows": 120}
BY_ROWS: dict[str, Any] = {"split": "rows", "splits": 2, "passes": 3, "block_rows": 120}
EACH = pytest.mark.parametrize("settings", [BY_CLASSES, BY_ROWS], ids=["classes", "rows"])


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "LIMITS", cluster_module.Limits(connect=20.0, task=60.0))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(400, 30, 12, noise=1.5))


def start() -> Any:
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", memory_limit=0,
        silence_logs=50,
    )  # fmt: skip


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    with start() as cluster:
        yield cluster


def fit(store: Path, out: Path, settings: dict[str, Any], **more: Any) -> Any:
    return streamsvm.fit(store, out=out, progress=False, **settings, **more)


def stop_after(blocks: int) -> Callable[[], bool]:
    asked = iter(range(blocks - 1))
    return lambda: next(asked, None) is None


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whenever weights come to this process."""
    found: list[Any] = []
    results = Cluster.results

    def counting(self: Cluster, futures: list[Any]) -> list[Any]:
        values = results(self, futures)
        found.extend(value for value in values if isinstance(value, Held))
        return values

    monkeypatch.setattr(Cluster, "results", counting)
    return found


def last_commit(run: Path) -> dict[str, Any]:
    directory = RunDir(run)
    manifest: dict[str, Any] = json.loads(
        (directory.commit_path(directory.commits()[0]) / "manifest.json").read_bytes()
    )
    return manifest


@EACH
def test_a_commit_is_of_what_workers_wrote(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """In the second pass: duals of both, and weights, of which this process has written nothing."""
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(store, run, settings, cluster=local.scheduler_address, stop=stop_after(6))
    manifest = last_commit(run)
    assert manifest["passes_done"] == 1
    assert manifest["weights"]["length"] == 0
    assert [end["length"] for end in manifest["duals"].values()] == [0, 0]
    logs = manifest["worker_logs"]
    for kind in ("duals-1-", "duals-2-", f"changes-{manifest['weights_number']}-"):
        assert sum(name.startswith(kind) for name in logs) >= 2
    assert {name: (run / name).stat().st_size for name in logs} == {
        name: end["length"] for name, end in logs.items()
    }
    streamsvm.resume(run, cluster=local.scheduler_address, progress=False)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")
    assert sorted(last_commit(run)["worker_logs"]) == sorted(
        path.name for path in run.iterdir() if path.name.count("-") == 2 and path.suffix == ".bin"
    )


@EACH
@pytest.mark.parametrize("largest", [2**26, 0], ids=["whole", "changes"])
def test_workers_that_do_not_reach_the_run_directory(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any], largest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """They give the same bytes, with a warning; and either kind goes on with what the other has begun.

    Whether this process writes all weights at each commit, or those that changed.
    """
    monkeypatch.setattr(weights, "_WRITTEN_WHOLE", largest)
    run, address = tmp_path / "run", local.scheduler_address
    begin = [(2, False), (4, True), (3, False), (2, True)]
    for n, (blocks, reached) in enumerate(begin):
        monkeypatch.setattr(cluster_module.Cluster, "all", lambda *_, reached=reached: reached)
        more = {"cluster": address, "stop": stop_after(blocks), "resume_or_start": n > 0}
        with pytest.raises(Interrupted):
            fit(store, run, settings, **more)
    monkeypatch.setattr(cluster_module.Cluster, "all", lambda *_: False)
    result = streamsvm.resume(run, cluster=address, progress=False)
    assert any("do not reach the run directory" in warning for warning in result.warnings)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


@EACH
def test_a_damaged_log_of_a_worker(store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """It is found before the run goes on, with its name, if there is no commit before it."""
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(store, run, settings, cluster=local.scheduler_address, stop=stop_after(6))
    name = next(name for name in last_commit(run)["worker_logs"] if name.startswith("changes"))
    content = bytearray((run / name).read_bytes())
    content[-1] ^= 1
    (run / name).write_bytes(content)
    with pytest.raises(RunError, match=rf"{name} is damaged"):
        streamsvm.resume(run, progress=False)


@EACH
@pytest.mark.parametrize("largest", [2**26, 0], ids=["whole", "changes"])
def test_this_process_has_the_weights_only_when_it_needs_them(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any], largest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Without a gap: at the end, for the model. A run that goes on has them from its commit."""
    monkeypatch.setattr(weights, "_WRITTEN_WHOLE", largest)
    address, settings = local.scheduler_address, {**settings, "gap": "none"}
    for run, blocks in (("run", 6), ("other", 2)):
        gathered = counted(monkeypatch)
        with pytest.raises(Interrupted):
            fit(store, tmp_path / run, settings, cluster=address, stop=stop_after(blocks))
        streamsvm.resume(tmp_path / run, cluster=address, progress=False)
        assert len(gathered) == (2 * settings["splits"] if settings["split"] == "classes" else 1)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")
    assert model_bytes(tmp_path / "other") == model_bytes(tmp_path / "threads")


@EACH
@pytest.mark.parametrize("workers_write", [True, False])
def test_without_commits_tasks_do_not_depend_on_all_earlier_ones(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any], workers_write: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """After many tasks there is a commit; if workers do not write, their weights are sent to them anew."""
    monkeypatch.setattr(on_cluster, "_LONGEST_GRAPH", 1)
    if not workers_write:
        monkeypatch.setattr(Cluster, "all", lambda *more: False)
    gathered, settings = counted(monkeypatch), {**settings, "gap": "none"}
    result = fit(store, tmp_path / "run", settings, cluster=local.scheduler_address)
    if workers_write:
        assert result.checkpoints >= 12  # of 12 blocks
    else:
        assert len(gathered) >= 8
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")


def no_disk_left() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@EACH
def test_a_disk_that_becomes_full(store: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """Then the process that waits for the workers does the writing; and says who could not write what."""
    run, done, warnings = tmp_path / "run", [], []
    with start() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        one = sorted(client.scheduler_info()["workers"])[0]

        def progress(stage: str, *more: Any) -> None:
            if stage == "pass 2" and not done:
                done.append(client.run(no_disk_left, workers=[one]))

        def report(event: dict[str, Any]) -> None:
            warnings.append(event.get("warning") or "")

        result = streamsvm.fit(
            store, out=run, cluster=cluster.scheduler_address, workers=2, progress=progress, report=report,
            checkpoint_every="1 blocks", **settings,
        )  # fmt: skip
    assert any(f"{one} cannot write {run}/" in warning for warning in warnings)
    assert any("do not reach the run directory" in warning for warning in result.warnings)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


def test_objectives_are_those_of_threads(local: Any, tmp_path: Path) -> None:
    """To the last bit, with groups that fill no whole vectors, and as C grows by what they say."""
    store = make_store(tmp_path / "a.zarr", *make_problem(600, 30, 80, noise=1.5))
    settings = {**BY_CLASSES, "dtype": "float64", "first_C": 0.02, "C": 0.1, "gap": "none", "passes": 4}
    one = fit(store, tmp_path / "threads", settings)
    dask = fit(store, tmp_path / "run", settings, cluster=local.scheduler_address)
    assert [each["dual"] for each in dask.history] == [each["dual"] for each in one.history]
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")
