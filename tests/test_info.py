"""Looking at a run or a model that another process changes meanwhile: what is pruned is no damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem, make_store, save_weights
from run_files import flip, stop_after

from streamsvm import fit, load_model, resume
from streamsvm.base import format
from streamsvm.errors import Interrupted, ModelError, RunError
from streamsvm.info import inspect
from streamsvm.run.sums import FileSum

OPTIONS = {"passes": 5, "block_rows": 10, "checkpoint_every": "1"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    X, labels = make_problem(200, 8, 4)
    return make_store(tmp_path_factory.mktemp("data") / "s.h5", X, labels)


def train(run: Path, blocks: int, begin=resume) -> None:
    """Go on for so many blocks, with a commit after each."""
    with pytest.raises(Interrupted):
        begin(run, stop=stop_after(blocks), checkpoint_every="1")


@pytest.fixture
def run(store: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run"
    train(path, 5, lambda run, **more: fit(store, out=run, **{**OPTIONS, **more}))
    return path


def while_checking(monkeypatch, act, times: int) -> None:
    """Let `act` happen before a file is checked, so many times."""
    check, left, acting = FileSum.check, times, False

    def checking(*arguments):
        nonlocal left, acting
        if left > 0 and not acting:  # what acts checks files, too
            left, acting = left - 1, True
            act()
            acting = False
        return check(*arguments)

    monkeypatch.setattr(FileSum, "check", checking)


@pytest.mark.parametrize("times", [1, 5])
def test_a_commit_pruned_while_it_is_verified_is_no_damage(run: Path, monkeypatch, times: int) -> None:
    while_checking(monkeypatch, lambda: train(run, 3), times)
    found = inspect(run, verify=True)
    assert found["damage"] == []
    assert len(found["commits"]) == 1


def test_a_run_that_never_stays_is_said_to_be_in_training(run: Path, monkeypatch) -> None:
    from streamsvm import info

    monkeypatch.setattr(info, "_READ_ATTEMPTS", 3)
    while_checking(monkeypatch, lambda: train(run, 3), 10**9)
    with pytest.raises(RunError, match="another process is training this run"):
        inspect(run, verify=True)


def test_damage_is_reported_although_the_run_goes_on(run: Path, monkeypatch) -> None:
    path = max(run.glob("committed-*.bin"))
    flip(path)
    with pytest.raises(RunError, match=f"{path.name} is damaged"):
        inspect(run, verify=True)


def other_model(folder: Path, value: float) -> None:
    record = {"classes": ["a", "b"], "n_features": 3, "index_base": 1, "dtype": "float32"}
    save_weights(folder, np.full((3, 16), value, np.float32), record)


@pytest.mark.parametrize("inside", ["", "run/"])
def test_a_model_exchanged_while_it_is_read_is_the_new_one(tmp_path: Path, monkeypatch, inside: str) -> None:
    folder = tmp_path / inside / "model"
    folder.parent.mkdir(exist_ok=True)
    path = folder.parent if inside else folder
    other_model(folder, 1)
    sealed, exchanged = format.is_sealed, []

    def exchanging(record) -> bool:  # called after model.json was read, and before coef.npy
        if not exchanged:
            exchanged.append(other_model(folder, 2))
        return sealed(record)

    with monkeypatch.context() as patch:
        patch.setattr(format, "is_sealed", exchanging)
        assert (load_model(path).coef_ == 2).all()

    # A model whose folder was just renamed is waited for.
    if inside:
        (folder.parent / "run.json").touch()
    os.rename(folder, folder.with_name("model.old"))
    other_model(tmp_path / "new", 3)
    rename = lambda seconds: os.rename(tmp_path / "new", folder)  # noqa: E731
    monkeypatch.setattr("streamsvm.model.serialization.time.sleep", rename, raising=False)
    assert (load_model(path).coef_ == 3).all()


def test_a_model_that_is_a_link_is_read_and_a_pipe_in_it_is_refused_at_once(tmp_path: Path, soon) -> None:
    other_model(tmp_path / "model", 1)
    (tmp_path / "link").symlink_to(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "linked")
    (tmp_path / "linked/coef.npy").unlink()
    (tmp_path / "linked/coef.npy").symlink_to(tmp_path / "model/coef.npy")
    for name in ("link", "linked"):
        assert (load_model(tmp_path / name).coef_ == 1).all()
    for name in ("coef.npy", "model.json"):
        (tmp_path / "linked" / name).unlink()
        os.mkfifo(tmp_path / "linked" / name)
        with pytest.raises(ModelError, match=f"{name} cannot be read: not a regular file"):
            load_model(tmp_path / "linked")
