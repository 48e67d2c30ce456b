"""A fit of text that is killed: the same command, or a resume, gives the bytes of one that was not."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from trials import stage

from streamsvm.converted import converted


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(run: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in run.iterdir()}


@pytest.mark.parametrize(
    "step", [pytest.param(41, marks=pytest.mark.more), pytest.param(3, marks=pytest.mark.slow)]
)
def test_killed_at_counted_instants(launcher, digits, quick_path, step: int) -> None:
    fit = ("fit", digits / "train", "--valid", digits / "test", "--out", "run", "--block-rows", 500)
    fit = (*fit, "--passes", 2, "--checkpoint-every", 1, "--json")
    whole = launcher(*fit, cwd=quick_path)  # compiles, which counts too
    shutil.rmtree(quick_path / "run")
    whole = launcher(*fit, cwd=quick_path)
    assert (whole.code, whole.err) == (0, "")
    model, files = content(quick_path / "run/model"), names(quick_path / "run")
    resumed = 0
    for at in range(1, whole.count, step):
        shutil.rmtree(quick_path / "run", ignore_errors=True)
        ended = launcher(*fit, cwd=quick_path, at=at, lose=bool(at % 2))
        assert ended.code == -signal.SIGKILL
        has_begun = (quick_path / "run/run.json").exists()
        assert not (has_begun and stage(converted) in ended.stack)
        again = launcher(*(("resume", "run", "--json") if has_begun else fit), cwd=quick_path, count=False)
        assert (again.code, again.err) == (0, ""), (at, ended.stack)
        assert content(quick_path / "run/model") == model
        assert names(quick_path / "run") == files
        assert json.loads(again.out)["passes"] == 2
        resumed += has_begun
    print(f"{whole.count} instants, {resumed} of {whole.count // step} kills resumed")
    assert 0 < resumed < whole.count // step
