"""What a commit stands on: its own files, its own run, and files that lie in the run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from run_files import model_bytes, stop_after

from streamsvm import resume
from streamsvm.errors import Interrupted, RunError, StreamsvmError
from streamsvm.info import inspect
from streamsvm.run.manifest import finite_json

K = 4
OPTIONS = {"passes": 2, "C": 0.01, "block_rows": 20, "keep_duals": True, "checkpoint_every": "1"}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    X, labels = make_problem(100, 8, K, density=1.0)
    return make_store(tmp_path_factory.mktemp("data") / "s.h5", X, labels)


def stopped(store: Path, path: Path, blocks: int = 12, **options) -> Path:
    """A run that was stopped after so many blocks were trained or scored, five a pass: in its second pass."""
    with pytest.raises(Interrupted):
        fit(store, out=path, stop=stop_after(blocks), **{**OPTIONS, **options})
    return path


# -- weights and settings of another run --------------------------------------------------------------


def test_weights_of_another_run_are_refused(store: Path, tmp_path: Path) -> None:
    run, other = stopped(store, tmp_path / "a"), stopped(store, tmp_path / "b", C=0.02)
    (path,) = run.glob("committed-*.bin")
    kept = path.read_bytes()
    shutil.copy(other / path.name, path)
    for use in (lambda: inspect(run, verify=True), lambda: resume(run)):
        with pytest.raises(RunError, match=rf"{path.name} is damaged: its checksum does not match"):
            use()
    path.write_bytes(kept)
    resume(run)
    fit(store, out=tmp_path / "whole", **OPTIONS)
    assert model_bytes(run) == model_bytes(tmp_path / "whole")


def test_settings_of_another_run_are_refused(store: Path, tmp_path: Path) -> None:
    run, other = stopped(store, tmp_path / "a"), stopped(store, tmp_path / "b", C=0.02)
    before = (run / "run.json").read_bytes()
    shutil.copy(other / "run.json", run / "run.json")
    for use in (lambda: inspect(run, verify=True), lambda: resume(run)):
        with pytest.raises(RunError, match=r"run\.json and .*commit\.json belong to different runs"):
            use()
    (run / "run.json").write_bytes(before)
    assert resume(run).warnings == []


def test_what_resume_changes_in_the_settings_does_not_part_a_run_from_its_commits(
    store: Path, tmp_path: Path
) -> None:
    run = stopped(store, tmp_path / "run")
    moved = shutil.copy(store, tmp_path / "moved.h5")
    for _ in range(2):
        with pytest.raises(Interrupted):
            resume(run, passes=3, tol=1e-9, store=moved, valid=store, stop=lambda: True)
    assert not any("damaged" in text for text in resume(run).warnings)
    inspect(run, verify=True)


def test_numbers_that_are_not_finite_name_the_options_of_the_run(tmp_path: Path) -> None:
    """A fit and a run over a stream have the same remedy; a training of arrays has no run to replace."""
    with pytest.raises(RunError, match=r"run: the objective is no longer finite; .* with force=True"):
        finite_json(tmp_path / "run", {"primal": np.inf})
    with pytest.raises(RunError, match=r"^the objective is no longer finite; [^;]* or lower C$"):
        finite_json(None, [np.nan])
    finite_json(None, {"primal": 1.0})


# -- the validation store --------------------------------------------------------------------------


def test_another_validation_store_in_the_place_of_the_first_is_refused(store: Path, tmp_path: Path) -> None:
    valid = shutil.copy(store, tmp_path / "valid.h5")
    X, labels = make_problem(60, 8, K, seed=1, density=1.0)
    other = make_store(tmp_path / "other.h5", X, labels)
    blocks = 0

    def replace() -> bool:
        nonlocal blocks
        blocks += 1
        if blocks == 12:
            os.replace(shutil.copy(other, tmp_path / "copy.h5"), valid)
        return False

    with pytest.raises(StreamsvmError, match=r"validation store .*valid\.h5 has changed since"):
        fit(store, out=tmp_path / "run", valid=valid, stop=replace, **OPTIONS)
    with pytest.raises(RunError, match=r"validation store .*valid\.h5 has changed since"):
        resume(tmp_path / "run")
    result = resume(tmp_path / "run", valid=valid)
    W = np.load(tmp_path / "run/model/coef.npy")
    assert result.valid_accuracy == pytest.approx(((X @ W).argmax(axis=1) == labels).mean())


# -- links and pipes in a run ----------------------------------------------------------------------


def test_a_link_or_a_pipe_in_a_run_is_refused_at_once(store: Path, tmp_path: Path, soon) -> None:
    run, outside = stopped(store, tmp_path / "run"), tmp_path / "outside"
    for pattern in (
        "run.json", "commit.json", "committed-*.bin", "duals-1-0-0.bin", "duals-2-*.bin",
        "metrics.jsonl", "lock",
    ):  # fmt: skip
        path = max(run.glob(pattern))
        whole = path.read_bytes()
        path.rename(outside)
        path.symlink_to(outside)
        with pytest.raises(RunError, match=f"{path.name}.*links are not followed"):
            resume(run)
        assert outside.read_bytes() == whole
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(RunError, match=f"{path.name}.*not a regular file"):
            resume(run)
        path.unlink()
        outside.rename(path)
    assert resume(run).warnings == []


def test_a_run_reached_by_a_link_is_resumed(store: Path, tmp_path: Path) -> None:
    run = stopped(store, tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    assert resume(tmp_path / "link").passes == 2
    inspect(tmp_path / "link", verify=True)


def test_a_manifest_too_large_to_be_read_again_is_not_committed(
    store: Path, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("streamsvm.base.durable.MAX_RECORD_BYTES", 5000)
    with pytest.raises(RunError, match=r"take [0-9,]* bytes, more than the maximum of 5,000 bytes"):
        fit(store, out=tmp_path / "run", **{**OPTIONS, "passes": 20, "checkpoint_every": "60s"})
