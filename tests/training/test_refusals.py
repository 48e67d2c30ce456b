"""Damaged runs, changed stores, and run directories that are in use or hold other files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from cases import few
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from run_files import files_of_duals, flip, metrics_of, model_bytes, parse_metrics, stop_after
from small_problem import BLOCK, D, K, N

from streamsvm import plan, resume
from streamsvm.base import format
from streamsvm.errors import Interrupted, PlanError, RunError, StoreError
from streamsvm.info import inspect


@pytest.fixture
def stopped(tmp_path: Path, store: Path) -> Path:
    """A run stopped in its second pass, with a commit."""
    with pytest.raises(Interrupted):
        fit(
            store, out=tmp_path / "run", passes=3, block_rows=BLOCK, gap="none",
            checkpoint_every="1", stop=stop_after(8),
        )  # fmt: skip
    assert (tmp_path / "run/commit.json").exists()
    return tmp_path / "run"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, store: Path) -> dict[str, bytes]:
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(store, out=run, passes=3, block_rows=BLOCK, gap="none")
    return model_bytes(run)


@pytest.mark.parametrize("loss", few(["llw", "llw2", "logistic"], "llw", "logistic"))
def test_duals_that_no_disk_holds_are_refused_before_training(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    """One byte less than two passes of duals is too little, and as many bytes are enough."""
    entry = 8 + 1  # float64, and the number of a class
    row = 8 + (K - 1) * entry
    for free, refused in ((2 * N * row - 1, True), (2 * N * row, False)):
        monkeypatch.setattr("streamsvm.training.train.durable.free_bytes", lambda path, free=free: free)
        if not refused:
            fit(store, out=tmp_path / "run", loss=loss, passes=2, gap="none", dtype="float64")
            continue
        with pytest.raises(PlanError, match=f"the loss {loss} .* has duals for nearly all classes") as error:
            fit(store, out=tmp_path / "run", loss=loss, passes=2, gap="none", dtype="float64")
        assert "--loss ww" in str(error.value) or "loss='ww'" in str(error.value)
        assert not (tmp_path / "run/run.json").exists()
        fit(store, out=tmp_path / "once", loss=loss, passes=1, gap="none", dtype="float64")  # keeps no duals


@pytest.mark.engine
@pytest.mark.parametrize("loss", ["llw", pytest.param("llw2", marks=pytest.mark.more), "logistic"])
def test_the_plan_knows_the_size_of_dense_duals(tmp_path: Path, loss: str) -> None:
    """What it says of two passes is twice the files of the last one, but for headers."""
    store = make_store(tmp_path / "a.zarr", *make_problem(2000, D, 40))
    options: dict[str, Any] = {"loss": loss, "dtype": "float64"}
    announced = plan(store, passes=2, C=0.05, **options)["dense_duals_bytes"]
    fit(store, out=tmp_path / "run", passes=2, C=0.05, gap="none", **options)
    written = 2 * sum(path.stat().st_size for path in files_of_duals(tmp_path / "run", 2))
    assert 0.98 * written <= announced <= 1.02 * written  # a few duals are 0
    assert plan(store, passes=2, loss="ww")["dense_duals_bytes"] == 0


def test_duals_that_no_memory_holds_are_refused_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = make_problem(N, D, K)
    monkeypatch.setattr("streamsvm.training.fit_plan.available_memory", lambda: 1000)
    with pytest.raises(PlanError, match="the memory of this process has"):
        fit(X, labels, loss="logistic", passes=2)
    fit(X, labels, loss="ww", passes=2)


@pytest.mark.parametrize("name", ["commit.json", "committed-*.bin", "duals-1-*.bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing"])
def test_a_damaged_commit_is_refused(stopped: Path, name: str, damage: str) -> None:
    path = max(stopped.glob(name))
    if damage == "flip":
        flip(path, -40)
    elif damage == "missing" and name != "commit.json":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] if damage == "cut" else b"")
    for _ in range(2):  # a second attempt finds the same
        with pytest.raises(RunError, match=rf"{re.escape(path.name)} is .*fit again"):
            resume(stopped)
    assert not (stopped / "model").exists()


def test_files_that_no_commit_refers_to_are_ignored(stopped: Path, expected: dict[str, bytes]) -> None:
    """Weights in use, an incomplete commit, half a file of duals, metrics that were not committed."""
    for name in ("weights.bin", "commit.json.tmp", "committed-999.bin", "duals-2-90-0.bin"):
        (stopped / name).write_bytes(b"half a file")
    with (stopped / "metrics.jsonl").open("ab") as file:
        file.write(b'{"half a line')
    assert resume(stopped).warnings == []
    assert model_bytes(stopped) == expected
    assert [line["event"] for line in metrics_of(stopped)].count("pass") == 3


@pytest.mark.parametrize("left", [0.6, 0.0, None])
def test_lost_metrics_are_reported_and_the_rest_follows(
    stopped: Path, expected: dict[str, bytes], left: float | None
) -> None:
    path = stopped / "metrics.jsonl"
    content = path.read_bytes()
    if left is None:
        path.unlink()
    else:
        path.write_bytes(content[: int(left * len(content))])
    kept = parse_metrics(content[: content.rfind(b"\n", 0, int((left or 0) * len(content))) + 1])
    assert bool(kept) == bool(left)
    with pytest.raises(RunError, match=r"metrics\.jsonl is truncated"):
        inspect(stopped, verify=True)
    assert ["metrics.jsonl is truncated" in each for each in resume(stopped).warnings] == [True]
    assert model_bytes(stopped) == expected
    lines = metrics_of(stopped)
    assert lines[: len(kept)] == kept
    assert [(line["event"], line["pass"]) for line in lines[len(kept) :]] == [("pass", 2), ("pass", 3)]
    inspect(stopped, verify=True)


def reseal(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(format.sealed({**json.loads(path.read_bytes()), **changes})))


def test_other_format_versions_are_refused(stopped: Path) -> None:
    settings = (stopped / "run.json").read_bytes()
    reseal(stopped / "run.json", version=99)
    with pytest.raises(RunError, match=f"run format 99, but .* reads format {format.RUN_VERSION};"):
        resume(stopped)
    (stopped / "run.json").write_bytes(settings)
    reseal(stopped / "commit.json", version=99)
    with pytest.raises(RunError, match=f"has format 99, not {format.RUN_VERSION}; .* fit again"):
        resume(stopped)


def test_a_changed_store_is_refused_and_a_moved_one_is_accepted(
    tmp_path: Path, stopped: Path, store: Path, problem, expected: dict[str, bytes]
) -> None:
    X, labels = problem[0].copy(), problem[1]
    X.data[7] += 1
    changed = make_store(tmp_path / "changed.zarr", X, labels)
    with pytest.raises(RunError, match="has changed since"):
        resume(stopped, store=changed)
    with pytest.raises(StoreError, match=r"absent\.zarr"):
        resume(stopped, store=tmp_path / "absent.zarr")
    moved = shutil.copy(store, tmp_path / "moved.h5")
    resume(stopped, store=moved)
    assert model_bytes(stopped) == expected
    assert json.loads((stopped / "run.json").read_text())["store"]["path"] == [str(moved)]


def test_resuming_where_there_is_no_run_creates_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for name, message in {
        "nothing": "nothing does not exist; check the path",
        "folder": "is not a run: it has no run.json",
        "file": "is not a run: it is not a folder",
    }.items():
        with pytest.raises(RunError, match=message):
            resume(tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder"]


def test_a_run_in_use_is_refused(store: Path, stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (stopped / "lock").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
        with pytest.raises(RunError, match="in use by another process"):
            resume(stopped)
        with pytest.raises(RunError, match="in use by another process"):
            fit(store, out=stopped, force=True)
        assert {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()} == before

    def refused(*words: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refused)
        with pytest.raises(RunError, match=r"No locks available.*use a file system that supports locks"):
            resume(stopped)
    resume(stopped)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, store: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create"):
        fit(store, out=tmp_path / "file/run")
    with pytest.raises(RunError, match=r"the folder .*absent/too does not exist; create it first"):
        fit(store, out=tmp_path / "absent/too/run")
    assert not (tmp_path / "absent").exists()
