"""A store replaced by `convert --force` while a fit reads it: nothing rests on the rows of the other one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cases import few
from streamsvm_cli.commands import app
from typer.testing import CliRunner

from streamsvm import fit, resume
from streamsvm.errors import RunError, StoreError

OPTIONS = {"passes": 2, "C": 0.0003, "block_rows": 150, "checkpoint_every": "1"}  # ten blocks a pass


def convert(text: Path, store: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(text), "--out", str(store), "--force", "--quiet"])
    assert result.exit_code == 0, result.output


def model(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "model").iterdir()}


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
@pytest.mark.parametrize("at", few([1, 4, 15], 4))
def test_a_fit_whose_store_is_replaced(digits: Path, quick_path: Path, suffix: str, at: int) -> None:
    """It ends with one clear error, or goes on with the rows of the store that it opened."""
    lines = (digits / "train").read_text().splitlines(keepends=True)
    text, other, store = quick_path / "text", quick_path / "other", quick_path / f"s.{suffix}"
    text.write_text("".join(lines))
    other.write_text("".join(lines[i - 1][0] + line[1:] for i, line in enumerate(lines)))  # other labels
    convert(text, store)
    (shutil.copytree if suffix == "zarr" else shutil.copyfile)(store, kept := quick_path / f"kept.{suffix}")
    fit(store, out=quick_path / "whole", **OPTIONS)
    asked = 0

    def replace() -> bool:
        nonlocal asked
        asked += 1
        if asked == at:
            convert(other, store)
        return False

    run = quick_path / "run"
    if suffix == "h5":
        fit(store, out=run, stop=replace, **OPTIONS)
    else:
        with pytest.raises(
            StoreError, match=rf"s\.{suffix}: the store was replaced by another while it was in use"
        ):
            fit(store, out=run, stop=replace, **OPTIONS)
        assert not (run / "model").exists()
        with pytest.raises(RunError, match=r"has changed since .* was begun"):
            resume(run)
        resume(run, store=kept)
    assert model(run) == model(quick_path / "whole")


def test_the_command_says_it_in_one_line(digits: Path, quick_path: Path) -> None:
    """In a process of its own, whose store another process replaces."""
    text, store = digits / "train", quick_path / "s.zarr"
    convert(text, store)
    command = [sys.executable, "-m", "streamsvm_cli.main", "fit", store, "--out", "run", "--passes", "2000"]
    command += ["--block-rows", "150", "--checkpoint-every", "5", "--gap", "none"]
    with subprocess.Popen(
        command, cwd=quick_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while not any(quick_path.glob("run/checkpoint/0*")):
            assert process.poll() is None, process.communicate()
        convert(digits / "test", store)
        _, said = process.communicate()
    assert process.returncode == 1
    assert said.count("\n") == 1
    assert f"{os.path.basename(store)}: the store was" in said
    assert "while it was in use" in said
