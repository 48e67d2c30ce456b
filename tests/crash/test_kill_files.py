"""A fit of text that is killed: the same command, or a resume, gives the bytes of one that was not."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from trials import content, stage

from streamsvm.converted import converted


def names(run: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in run.iterdir()}


@pytest.mark.more
@pytest.mark.parametrize("step", [41, 3])
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


REPLACES = {
    "fit": ("--block-rows", 500, "--passes", 1),
    "online": ("--checkpoint-every", 2, "--transform", "hash=10"),
    "tune": ("--C", "0.001,0.01", "--passes", 1, "--passes-each", 1),
}


@pytest.mark.more
@pytest.mark.parametrize("step", [37, 3])
@pytest.mark.parametrize("name", REPLACES)
def test_a_command_that_replaces_a_run_is_killed(launcher, digits, quick_path, name: str, step: int) -> None:
    """The older run is whole, in its place or beside it, until the new one has a model."""
    fit = ("fit", digits / "train", "--out", "run", *REPLACES["fit"], "--json")
    command = (name, digits / "train", "--out", "run", *REPLACES[name], "--force", "--json")
    run, old, aside = (quick_path / each for each in ("run", "old", "run.old"))
    assert launcher(*fit, "--seed", 1, cwd=quick_path, count=False).code == 0
    shutil.copytree(run, old)
    first = content(old / "model")
    for _ in range(2):  # the first compiles, which counts too
        shutil.rmtree(run)
        shutil.copytree(old, run)
        whole = launcher(*command, cwd=quick_path)
    model, files = content(run / "model"), names(run)
    assert model != first
    found = {"in place": 0, "aside": 0, "replaced": 0}
    for at in range(1, whole.count, step):
        for folder in (run, aside):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, run)
        ended = launcher(*command, cwd=quick_path, at=at, lose=bool(at % 2))
        assert ended.code == -signal.SIGKILL
        again = command
        if not (run / "model").exists():
            found["aside"] += 1
            assert content(aside / "model") == first
            launcher("predict", aside, digits / "test", "--out", "p", "--force", cwd=quick_path)
            if (run / "run.json").exists() and name != "tune":
                again = ("resume", "run", "--json")
        elif content(run / "model") == first:
            found["in place"] += 1
        else:
            found["replaced"] += 1
            again = ("resume", "run", "--json")
        done = launcher(*again, cwd=quick_path, count=False)
        assert done.code == 0, (at, ended.stack)
        assert done.err in ("", whole.err)  # a warning of tune
        assert content(run / "model") == model
        assert names(run) == files
        assert not aside.exists()
    print(f"{whole.count} instants: {found}")
    assert min(found.values()) > 0 or step > 3
