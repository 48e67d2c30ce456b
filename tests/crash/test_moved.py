"""A run that was moved, with its store, goes on where it is now; from any working directory."""

from __future__ import annotations

import os
import shutil

from trials import fit, one_line, parts

MODEL = ("run/model",)
RESUME = ("--passes", 3, "--checkpoint-every", 1, "--json")


def struck(launcher, inputs, folder) -> None:
    """Leave a run that was killed, and its store, in `folder`."""
    shutil.copyfile(inputs / "s.h5", folder / "s.h5")
    whole = launcher(*fit("s.h5"), cwd=folder)
    assert whole.code == 0
    shutil.rmtree(folder / "run")
    assert launcher(*fit("s.h5"), cwd=folder, at=2 * whole.count // 3).code < 0
    assert any((folder / "run/checkpoint").iterdir())


def test_a_run_moved_with_its_store(launcher, inputs, quick_path) -> None:
    old, new, other = (quick_path / name for name in ("old", "new/place", "elsewhere"))
    for folder in (old, new.parent, other):
        folder.mkdir()
    struck(launcher, inputs, old)
    expected = launcher(*fit(inputs / "s.h5"), "--passes", 3, cwd=other)
    assert expected.code == 0
    os.rename(old, new)
    before = parts(new, ("run/run.json", "run/checkpoint"))
    lost = launcher("resume", new / "run", *RESUME, cwd=other, count=False)
    one_line(lost)  # the store is not where it was
    assert "s.h5" in lost.err
    assert parts(new, ("run/run.json", "run/checkpoint")) == before
    words = ("resume", os.path.relpath(new / "run", other), "--store", os.path.relpath(new / "s.h5", other))
    assert launcher(*words, *RESUME, cwd=other, count=False).code == 0
    assert parts(new, MODEL)["run/model"] == parts(other, MODEL)["run/model"]
    # The new place of the store is remembered, as an absolute path.
    assert launcher("resume", new / "run", "--passes", 4, "--json", cwd=quick_path, count=False).code == 0


def test_a_moved_model_predicts(launcher, inputs, quick_path) -> None:
    assert launcher(*fit(inputs / "s.h5"), cwd=quick_path, count=False).code == 0
    before = launcher("evaluate", "run", inputs / "s.h5", "--json", cwd=quick_path, count=False)
    (quick_path / "deep").mkdir()
    os.rename(quick_path / "run/model", quick_path / "deep/model")
    shutil.rmtree(quick_path / "run")
    words = ("evaluate", "../deep/model", inputs / "s.h5", "--json")
    (quick_path / "here").mkdir()
    after = launcher(*words, cwd=quick_path / "here", count=False)
    assert before.code == after.code == 0
    assert before.out == after.out
