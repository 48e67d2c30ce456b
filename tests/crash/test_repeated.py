"""A scheduler runs the same line again and again: killed anywhere, it ends as one that was never killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
from cases import few
from disk import tree

LINE = ("fit", "s.zarr", "--out", "run", "--resume-or-start", "--block-rows", 500, "--passes", 2,
        "--checkpoint-every", 1, "--json")  # fmt: skip


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.more)])
@pytest.mark.parametrize("seed", few(range(3), 1))
def test_killed_and_repeated(launcher, inputs: Path, quick_path: Path, seed: int, kills: int) -> None:
    def run(folder: str, **more: object):
        at = quick_path / folder
        at.mkdir(exist_ok=True)
        if not (at / "s.zarr").exists():
            (at / "s.zarr").symlink_to(inputs / "s.zarr")
        return launcher(*LINE, cwd=at, **more)

    whole = run("whole")
    assert (whole.code, whole.err) == (0, "")
    rng = np.random.default_rng(seed)
    for _ in range(kills):
        ended = run("killed", at=int(rng.integers(whole.count)))
        assert ended.code in (-signal.SIGKILL, 0), ended  # 0: less was left to do
    last = run("killed")
    assert (last.code, last.err) == (0, ""), last
    assert tree(quick_path / "killed/run/model") == tree(quick_path / "whole/run/model")
    finished = run("killed")
    assert (finished.code, finished.err) == (0, "")
    assert json.loads(finished.out)["checkpoints"] == 0
    assert tree(quick_path / "killed/run/model") == tree(quick_path / "whole/run/model")
