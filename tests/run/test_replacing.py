"""A run that is to be replaced is moved to NAME.old, and stays there until the new one has a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from run_files import stop_after
from streamsvm_converters import TextSource

import streamsvm
from streamsvm.base import durable
from streamsvm.errors import InputError, Interrupted, RunError, StreamsvmError
from streamsvm.run.directory import RunDir, locked
from streamsvm.training.trainer import Trainer

LINES = [f"{1 + i % 3} {1 + i % 3}:1 {4 + i % 5}:{i % 7 + 1}\n" for i in range(600)]
ASIDE = "the older run remains in {} until the new run has a model"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("".join(LINES))
    (tmp_path / "bad.txt").write_text("".join([*LINES[:300], "1 no:text\n"]))
    return tmp_path / "a.txt"


@pytest.fixture
def run(text: Path, tmp_path: Path) -> Path:
    fit(text, tmp_path / "run", seed=1)
    return tmp_path / "run"


@pytest.fixture
def old(run: Path) -> Path:
    return run.with_name("run.old")


def content(folder: Path) -> dict[str, bytes]:
    """But for the mark of a run that was moved."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "replaced"}


def fit(text: Path, run: Path, **options: Any) -> Any:
    return streamsvm.fit(text, out=run, passes=2, block_rows=100, checkpoint_every="1", **options)


def failing(*arguments: Any, **options: Any) -> Any:
    raise InputError("it fails")


def test_input_that_cannot_be_converted_leaves_the_older_run(text: Path, run: Path, old: Path) -> None:
    before = content(run)
    for begin in (fit, streamsvm.tune):
        with pytest.raises(InputError):
            begin(text.with_name("bad.txt"), **{"run" if begin is fit else "out": run}, force=True)
        assert content(run) == before
        assert not old.exists()


def test_an_error_names_the_older_run(
    text: Path, run: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(run)
    monkeypatch.setattr(Trainer, "learn", failing)
    with pytest.raises(StreamsvmError) as error:
        fit(text, run, force=True)
    assert ASIDE.format(old) in error.value.__notes__
    assert content(old) == before
    assert not (run / "model").exists()
    monkeypatch.undo()
    run.rename(run.with_name("failed"))
    old.rename(run)
    assert streamsvm.resume(run, passes=3).passes == 3
    assert not (run / "replaced").exists()  # so that no run deletes it once it is elsewhere


def test_a_run_that_can_be_resumed_stands_beside_the_older_one(text: Path, run: Path, old: Path) -> None:
    before, other = content(run), run.with_name("other")
    with pytest.raises(Interrupted) as stopped:
        fit(text, run, force=True, stop=stop_after(15))
    assert stopped.value.__notes__ == [ASIDE.format(old)]
    assert content(old) == before
    assert streamsvm.evaluate(old, text).accuracy > 0.9
    with pytest.raises(StreamsvmError, match=r"the run that it replaces is in .*run\.old"):
        streamsvm.load_model(run)
    streamsvm.resume(run)
    assert not old.exists()
    fit(text, other)
    assert content(run / "model") == content(other / "model")
    names = [{path.name.partition("-")[0] for path in each.iterdir()} for each in (run, other)]
    assert names[0] == names[1]


def test_an_older_run_with_a_model_is_never_overwritten_by_one_without(
    text: Path, run: Path, old: Path
) -> None:
    before = content(run)
    for options in ({"seed": 2}, {"seed": 3}):
        with pytest.raises(Interrupted):
            fit(text, run, force=True, stop=stop_after(15), **options)
        assert content(old) == before
    run.rename(run.with_name("gone"))  # as after a kill between two renames
    for begin, given in ((fit, {"run": run}), (streamsvm.tune, {"out": run, "C": "0.1,1", "folds": 2})):
        with pytest.raises(RunError, match="is a run that was being replaced"):
            begin(text, **given)
    assert content(old) == before
    fit(text, run, force=True)
    assert not old.exists()


def test_online_and_tune_leave_it_as_well(text: Path, run: Path, old: Path) -> None:
    before, bad = content(run), text.with_name("bad.txt")
    with pytest.raises(InputError):
        streamsvm.online(TextSource([bad], dtype="float32"), out=run, force=True)
    assert content(old) == before
    asked = {"C": "0.1,1", "transform": ["none", "l2", "bias"], "folds": 2}
    tried: list[Any] = []

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "tried":
            tried.append({name: each for name, each in event.items() if name != "event"})

    with pytest.raises(Interrupted):
        streamsvm.tune(text, out=run, force=True, stop=lambda: len(tried) >= 4, report=report, **asked)
    assert content(old) == before
    assert streamsvm.tune(text, out=run, **asked).tried[:4] == tried
    assert not old.exists()


def keep_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.with_name("run.old").mkdir()
    for name in ("thesis", "replaced"):  # the second is the name of the mark
        (run.parent / "run.old" / name).write_text("long")


def link(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run.rename(run.with_name("elsewhere"))
    run.symlink_to(run.with_name("elsewhere"))


def mount(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path == run)


REFUSED: list[tuple[Any, str, str]] = [
    (keep_own, "a.txt", r"run cannot be moved to .*run\.old: Directory not empty; empty that folder"),
    (link, "a.txt", "run is a link or a mount point, which cannot be moved"),
    (mount, "a.txt", "run is a link or a mount point, which cannot be moved"),
    (None, "run/data.zarr", "data.zarr is part of the run that would be replaced"),
]


def test_what_cannot_be_moved_is_refused(text: Path, run: Path, old: Path) -> None:
    before = content(run)
    for change, data, words in REFUSED:
        with pytest.MonkeyPatch.context() as patch:
            if change is not None:
                change(run, patch)
            with pytest.raises(RunError, match=words):
                fit(text.parent / data, run, force=True)
        assert content(run) == before
        assert not (run / "replaced").exists()
        if change is link:
            run.unlink()
            run.with_name("elsewhere").rename(run)
        durable.remove(old)
    with locked(RunDir(run)), pytest.raises(RunError, match="another process"):
        fit(text, run, force=True)
    assert content(run) == before
    assert not old.exists()


def test_an_empty_folder_of_the_user_stays(text: Path, run: Path, old: Path) -> None:
    old.mkdir()
    streamsvm.resume(run, passes=3)
    assert old.exists()
