"""The same fit again goes on with the run that it began, and with no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import FEATURES, make_problem, make_store
from run_files import model_bytes, stop_after

import streamsvm
from streamsvm.errors import Interrupted, RunError, SettingsError

X, LABELS = make_problem(300, 12, 4, noise=2.0)
SETTINGS: dict[str, Any] = {"passes": 3, "block_rows": 40}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_store(tmp_path / "s.h5", X, LABELS)
    make_store(tmp_path / "valid.zarr", X[:50], LABELS[:50], n_classes=4)
    return tmp_path


def fit(folder: Path, **more: Any) -> Any:
    options = {"out": folder / "run", "resume_or_start": True, "checkpoint_every": "1", **SETTINGS, **more}
    return streamsvm.fit(folder / "s.h5", **options)


def interrupted(folder: Path, blocks: int, **more: Any) -> None:
    """The fit, up to a number of blocks."""
    with pytest.raises(Interrupted):
        fit(folder, stop=stop_after(blocks), **more)


SAME: list[dict[str, Any]] = [
    {}, {"C": 0.1, "tol": 1e-3, "passes": 20}, {"valid": "valid.zarr"},
    {"transform": f"scale=std,select={FEATURES},l2"},
]  # fmt: skip


@pytest.mark.parametrize("more", SAME, ids=str)
def test_the_same_call_ends_as_an_uninterrupted_one(folder: Path, more: dict) -> None:
    more = {name: folder / value if name == "valid" else value for name, value in more.items()}
    whole = fit(folder, out=folder / "whole", resume_or_start=False, **more)
    for blocks in (3, 7, 4):
        interrupted(folder, blocks, **more)
    result = fit(folder, **more)
    assert model_bytes(folder / "run") == model_bytes(folder / "whole")
    assert (result.passes, result.dual) == (whole.passes, whole.dual)
    again = fit(folder, **more)
    assert (again.checkpoints, again.passes, again.dual) == (0, whole.passes, whole.dual)
    assert model_bytes(folder / "run") == model_bytes(folder / "whole")


def test_the_store_may_have_moved(folder: Path) -> None:
    interrupted(folder, 3)
    (folder / "moved").mkdir()
    shutil.move(folder / "s.h5", folder / "moved/s.h5")
    assert fit(folder / "moved", out=folder / "run").passes == 3


OTHER: list[tuple[dict[str, Any], str, dict[str, Any]]] = [  # settings, what is said of them, and the remedy
    ({"C": 0.5}, "was started with C ", {}),
    ({"passes": 5}, "was started with passes 3, not 5", {}),
    ({"tol": 0.1}, "was started with tol None, not 0.1", {}),
    ({"loss": "cs"}, "was started with loss ww, not cs", {"loss": "ww"}),
    ({"seed": 1}, "was started with seed 0, not 1", {"seed": 0}),
    ({"memory": "1G"}, "was started with memory ", {"memory": 2**31}),
    ({"block_rows": None}, "was started with block_rows 40, not None", {"block_rows": 40}),
    ({"valid": "valid.zarr"}, "was started with valid None, not .*valid.zarr", {}),
    ({"class_weight": {"0": 2.0}}, "was started with class_weight None, not", {}),
]


def test_other_settings_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    interrupted(folder, 3)
    before = (folder / "run/run.json").read_bytes()
    for other, message, remedy in OTHER:
        with pytest.raises(RunError, match=message) as caught:
            fit(folder, **other)
        assert remedy.items() <= caught.value.remedy.options.items()
        assert (folder / "run/run.json").read_bytes() == before
    chosen = fit(folder, out=folder / "other").C
    with pytest.raises(RunError, match="was started with C chosen from the data"):
        fit(folder, C=chosen)
    assert fit(folder).passes == 3


def test_other_contents_of_the_same_name_are_refused(folder: Path) -> None:
    weights, chosen = folder / "weights", folder / "features"
    weights.write_text("0 2\n")
    chosen.write_text("1\n2\n3\n")
    more = {"valid": folder / "valid.zarr", "class_weight": weights, "transform": f"select={chosen}", "C": 1}
    interrupted(folder, 3, **more)

    def changed_data() -> None:
        shutil.rmtree(folder / "valid.zarr")
        make_store(folder / "valid.zarr", X[50:90], LABELS[50:90], n_classes=4)

    def other_rows() -> None:
        (folder / "s.h5").unlink()
        make_store(folder / "s.h5", X * np.float32(2), LABELS)

    for change, message in (
        (lambda: chosen.write_text("2\n3\n4\n"), "was started with other transforms"),
        (changed_data, "has changed since the run was started"),
        (lambda: weights.write_text("0 3\n"), "was started with other contents of class_weight"),
        (other_rows, r"was started on different data from that in .*s\.h5 \(the fingerprints differ"),
    ):
        kept = shutil.copytree(folder, folder.with_name("kept"))
        change()
        with pytest.raises(RunError, match=message):
            fit(folder, **more)
        shutil.rmtree(folder)
        kept.rename(folder)
    assert fit(folder, **more).passes == 3


def test_what_died_before_it_began_is_started(folder: Path) -> None:
    (folder / "run").mkdir()
    assert fit(folder).passes == 3
    (folder / "run/run.json").unlink()
    assert fit(folder).passes == 3


def test_other_folders_and_contradictions_are_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match="set only one of them"):
        fit(folder, force=True)
    (folder / "notes").mkdir()
    (folder / "notes/important").write_text("x")
    with pytest.raises(RunError, match="contains other files"):
        fit(folder, out=folder / "notes")
    with pytest.raises(SettingsError, match="resume_or_start does not apply to a matrix"):
        streamsvm.fit(np.eye(4), LABELS[:4], resume_or_start=True)
