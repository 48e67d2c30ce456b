"""The run directory of a training on a cluster: this process writes it, as it does for threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from dask_clusters import EACH, fit, start
from run_files import model_bytes, stop_after

import streamsvm
from streamsvm.errors import Interrupted

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.filterwarnings("default")  # Dask has warnings of its own


def logs_in(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("*.bin")}


@EACH
def test_logs_are_those_of_threads(store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]) -> None:
    """In the second pass: duals of both, and weights."""
    for run, who in (("run", {"cluster": local.scheduler_address}), ("threads", {"workers": 2})):
        with pytest.raises(Interrupted):
            fit(store, tmp_path / run, settings, stop=stop_after(10), **who)
    ours = logs_in(tmp_path / "run")
    assert {name[:7] for name in ours} == {"committ", "duals-1", "duals-2"}
    assert ours == logs_in(tmp_path / "threads")


@EACH
def test_threads_and_workers_take_turns(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Either goes on with what the other began."""
    run, settings = tmp_path / "run", {**settings, "tol": 1e-9, "C": 0.1}
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


def refuse(folder: str) -> None:
    """Let this process open and list nothing in a folder, as a machine that does not have it."""

    def watch(event: str, given: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir", "os.mkdir") and str(given[0]).startswith(folder):
            raise FileNotFoundError(2, "No such file or directory", str(given[0]))

    sys.addaudithook(watch)


@EACH
def test_workers_need_nothing_of_the_run_directory(
    store: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Nor does a run that goes on."""
    run = tmp_path / "run"
    with start() as cluster, distributed.Client(cluster, set_as_default=False) as client:
        client.run(refuse, str(tmp_path))
        with pytest.raises(Exception, match="No such file"):
            client.run(os.listdir, str(tmp_path))
        who = {"cluster": cluster.scheduler_address, "workers": 2}
        with pytest.raises(Interrupted):
            fit(store, run, settings, stop=stop_after(6), **who)
        streamsvm.resume(run, progress=False, cluster=cluster.scheduler_address)
    fit(store, tmp_path / "threads", settings)
    assert model_bytes(run) == model_bytes(tmp_path / "threads")


@EACH
def test_a_scheduler_forgets_tasks_that_were_done(
    store: Path, local: Any, tmp_path: Path, settings: dict[str, Any]
) -> None:
    """In passes without a commit; and so it forgets the duals that were sent to them."""
    known: dict[str, int] = {}

    def progress(stage: str, done: int, total: int | None) -> None:
        known[stage] = max(known.get(stage, 0), len(local.scheduler.tasks))

    settings = {**settings, "passes": 20, "block_rows": 40, "gap": "none", "progress": progress}
    streamsvm.fit(
        store, out=tmp_path / "run", cluster=local.scheduler_address, checkpoint_every="1h", **settings
    )
    assert known["pass 20 of 20"] <= known["pass 2 of 20"] + 10
