"""A run that is to be replaced is there until the new one has a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_files import stop_after
from streamsvm_converters import TextSource

import streamsvm
from streamsvm.errors import InputError, Interrupted, RunError, StreamsvmError
from streamsvm.training.learner import Learner

LINES = [f"{1 + i % 3} {1 + i % 3}:1 {4 + i % 5}:{i % 7 + 1}\n" for i in range(600)]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(LINES))
    return tmp_path / "a.txt"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fit(text: Path, run: Path, **options: Any) -> Any:
    return streamsvm.fit(text, out=run, passes=2, block_rows=100, checkpoint_every="1", **options)


def failing(*arguments: Any) -> Any:
    raise InputError("it fails")


@pytest.mark.parametrize("where", ["conversion", "data", "training"])
def test_an_error_leaves_the_older_run_as_it_was(
    text: Path, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    fit(text, run, seed=1)
    before = content(run)
    if where == "conversion":
        text.write_text("".join([*LINES, "1 no:text\n"]))
    elif where == "data":
        monkeypatch.setattr("streamsvm.training.fit_store.fit_to_store", failing)
    else:
        monkeypatch.setattr(Learner, "learn", failing)
    with pytest.raises(StreamsvmError):
        fit(text, run, force=True)
    assert content(run) == before
    monkeypatch.undo()
    assert streamsvm.resume(run, passes=3).passes == 3


def test_a_run_that_can_be_resumed_stands_beside_the_older_one(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(text, run, seed=1)
    before = content(run)
    with pytest.raises(Interrupted) as stopped:
        fit(text, run, force=True, stop=stop_after(15))
    assert stopped.value.__notes__ == [
        f"the older run is in {run / 'replaced'} until the new one has a model"
    ]
    assert content(run / "replaced") == {name: each for name, each in before.items() if name != "lock"}
    assert streamsvm.evaluate(run / "replaced", text).accuracy > 0.9
    with pytest.raises(StreamsvmError, match=r"the run that it replaces is in .*replaced"):
        streamsvm.load_model(run)
    streamsvm.resume(run)
    fit(text, tmp_path / "other")
    assert content(run / "model") == content(tmp_path / "other/model")
    names = [{path.name.partition("-")[0] for path in each.iterdir()} for each in (run, tmp_path / "other")]
    assert names[0] == names[1]


def test_without_force_the_older_run_is_not_forgotten(text: Path, tmp_path: Path) -> None:
    """After a kill, when neither it nor the new one is in the folder."""
    run = tmp_path / "run"
    fit(text, run, seed=1)
    kept = content(run)
    (run / "replaced").mkdir()
    for path in list(run.iterdir()):
        if path.name not in ("lock", "replaced"):
            path.rename(run / "replaced" / path.name)
    with pytest.raises(RunError, match="is a run that was being replaced"):
        fit(text, run)
    text.write_text("".join([*LINES, "1 no:text\n"]))
    with pytest.raises(InputError):
        fit(text, run, force=True)
    assert content(run / "replaced") == {name: each for name, each in kept.items() if name != "lock"}
    text.write_text("".join(LINES))
    fit(text, run, force=True)
    assert not (run / "replaced").exists()


def test_a_run_is_replaced_by_one_of_its_own_store(text: Path, tmp_path: Path) -> None:
    """The store stays where it is read, and belongs to the older run again if that fails."""
    run = tmp_path / "run"
    fit(text, run, seed=1)
    before = content(run)
    with pytest.raises(InputError, match=r"a\.txt"):
        fit(run / "data.zarr", run, force=True, class_weight=str(tmp_path / "a.txt"))
    assert content(run) == before
    fit(run / "data.zarr", run, force=True)
    assert streamsvm.evaluate(run, run / "data.zarr").accuracy > 0.9
    assert not (run / "replaced").exists()


def test_online_and_tune_leave_it_as_well(text: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    fit(text, run, seed=1)
    before = content(run)
    bad = tmp_path / "bad.txt"
    bad.write_text("1 1:1\n2 a:b\n")
    with pytest.raises(InputError):
        streamsvm.online(TextSource([bad], dtype="float32"), out=run, force=True)
    assert content(run) == before
    with pytest.raises(InputError):
        streamsvm.tune(bad, out=run, force=True)
    assert content(run) == before
    streamsvm.tune(text, out=run, force=True, C="0.1,1")
    assert not (run / "replaced").exists()


def test_a_store_of_the_older_run_is_not_overwritten(text: Path, tmp_path: Path) -> None:
    """It stays in its place while the new run reads it; another run that replaces both leaves it whole."""
    run, other = tmp_path / "run", tmp_path / "b.txt"
    fit(text, run, seed=1)
    kept = content(run)
    with pytest.raises(Interrupted):
        fit(run / "data.zarr", run, force=True, stop=stop_after(15))
    other.write_text("".join([*LINES[:300], "1 no:text\n"]))
    with pytest.raises(InputError):
        fit(other, run, force=True)
    assert content(run / "replaced") == {name: each for name, each in kept.items() if name != "lock"}
    with pytest.raises(RunError, match="is of the run that is to be replaced"):
        fit(run / "replaced/data.zarr", run, force=True)


def test_links_are_not_followed_and_no_other_lock_takes_the_place_of_the_held_one(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, aside = tmp_path / "run", tmp_path / "aside"
    fit(text, run, seed=1)
    aside.mkdir()
    (aside / "thesis").write_text("long")
    for name in (".replaced.partial", "replaced"):
        (run / name).symlink_to(aside)
        with pytest.raises(RunError, match="is a symbolic link"):
            streamsvm.resume(run)
        (run / name).unlink()
    assert (aside / "thesis").exists()
    inode = (run / "lock").stat().st_ino

    def use(*arguments: Any, **more: Any) -> Any:
        streamsvm.resume(run / "replaced")
        raise InputError("it fails")

    monkeypatch.setattr("streamsvm.training.fit_store.fit_to_store", use)
    with pytest.raises(InputError):
        fit(text, run, force=True)
    assert (run / "lock").stat().st_ino == inode
