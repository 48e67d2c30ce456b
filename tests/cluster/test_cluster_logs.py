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
from streamsvm.errors import ClusterError, Interrupted, RunError
from streamsvm.run import weights
from streamsvm.run.directory import RunDir

distributed = pytest.importorskip("distributed")
from streamsvm.cluster.client import Cluster, Limits  # noqa: E402
from streamsvm.cluster.tasks import WeightShard  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # Dask has warnings of its own

BY_CLASSES: dict[str, Any] = {"split": "classes", "splits": 2, "passes": 3, "block_rows": 120}
BY_ROWS: dict[str, Any] = {"split": "rows", "splits": 2, "passes": 3, "block_rows": 120}
EACH = pytest.mark.parametrize("settings", [BY_CLASSES, BY_ROWS], ids=["classes", "rows"])


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.cluster.client.LIMITS", Limits(connect=20.0, task=60.0))


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

    def counting(self: Cluster, futures: list[Any], *at: Any) -> list[Any]:
        values = results(self, futures, *at)
        found.extend(value for value in values if isinstance(value, WeightShard))
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
def test_threads_and_workers_take_turns(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any], largest: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Either goes on with what the other began, whether threads write all weights or those that changed."""
    monkeypatch.setattr(weights, "_MAX_UNTRACKED_BYTES", largest)
    run, settings = tmp_path / "run", {**settings, "first_C": 0.02, "C": 0.1}
    turns: list[tuple[int, dict[str, Any]]] = [
        (blocks, {"cluster": local.scheduler_address} if cluster else {"workers": 2})
        for blocks, cluster in ((2, False), (4, True), (3, False), (2, True))
    ]
    for n, (blocks, who) in enumerate(turns):
        with pytest.raises(Interrupted):
            fit(store, run, settings, stop=stop_after(blocks), resume_or_start=n > 0, **who)
    streamsvm.resume(run, progress=False)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


def hide(folder: str) -> None:
    """Let this process read nothing in a folder, as a machine that has another one there."""
    stat = Path.stat

    def stat_elsewhere(path: Path, **given: Any) -> Any:
        if str(path).startswith(folder):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return stat(path, **given)

    Path.stat = stat_elsewhere  # type: ignore[method-assign, assignment]


def test_a_worker_that_does_not_reach_the_run_directory(store: Path, tmp_path: Path) -> None:
    """It is one line before anything is written; a run that is there stays as it is."""
    new, begun = tmp_path / "new", tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(store, begun, BY_ROWS, stop=stop_after(2))
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    with start() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        one = sorted(client.scheduler_info()["workers"])[0]
        client.run(hide, str(tmp_path), workers=[one])
        for run in (new, begun):
            with pytest.raises(ClusterError) as caught:
                fit(store, run, BY_ROWS, cluster=cluster.scheduler_address, resume_or_start=True)
            assert str(caught.value) == (
                f"the worker {one} cannot write to the run directory {run}: it sees no folder there, "
                "or another one; put it on a file system that all machines share, at the same path"
            )
    assert not new.exists()
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


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
    monkeypatch.setattr(weights, "_MAX_UNTRACKED_BYTES", largest)
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
def test_after_many_tasks_there_is_a_commit(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that tasks do not depend on all earlier ones."""
    monkeypatch.setattr("streamsvm.cluster.weights._MAX_GRAPH_TASKS", 1)
    settings = {**settings, "gap": "none"}
    result = fit(store, tmp_path / "run", settings, cluster=local.scheduler_address)
    assert result.checkpoints >= 12  # of 12 blocks
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "threads")


def no_disk_left() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


@EACH
def test_a_disk_that_becomes_full(store: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    """The run ends with a line that says who could not write, and resumes."""
    run, done, warnings = tmp_path / "run", [], []
    with start() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        one = sorted(client.scheduler_info()["workers"])[0]

        def progress(stage: str, *more: Any) -> None:
            if stage.startswith("pass 2 ") and not done:
                done.append(client.run(no_disk_left, workers=[one]))

        def report(event: dict[str, Any]) -> None:
            warnings.append(event.get("warning") or "")

        with pytest.raises(ClusterError) as caught:
            streamsvm.fit(
                store, out=run, cluster=cluster.scheduler_address, workers=2, progress=progress,
                report=report, checkpoint_every="1 blocks", **settings,
            )  # fmt: skip
    assert any(f"{one} cannot write {run}/" in warning for warning in warnings)
    assert str(caught.value).startswith(f"the worker {one} cannot write to the run directory {run}: ")
    assert "continues from the last commit" in str(caught.value)
    assert "\n" not in str(caught.value)
    streamsvm.resume(run, progress=False)
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
