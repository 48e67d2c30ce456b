"""A disk that cannot be read, at every call that could find it so: one clear line, and nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from cases import few
from tracer import Plan
from trials import RESUME, Case, Trial, convert, fit, one_line, parts, spread

KINDS = ["open", "read"]
SHORT = 5  # calls struck in a case of the default suite

MODEL = ("run/model",)
PREDICT = ("predict", "run", "s.h5", "--out", "p", "--force")
CASES = {
    "convert": Case(
        (), convert("t.h5", text="text"), convert("t.h5", text="text"), made=("t.h5",), inside=("text",)
    ),
    "fit-zarr": Case((), fit("s.zarr"), fit("s.zarr", "--force"), made=MODEL, inside=("s.zarr",)),
    "fit-hdf5": Case((), fit("s.h5"), fit("s.h5", "--force"), made=MODEL, inside=("s.h5",)),
    "resume": Case((fit("../s.h5", "--keep-duals"),), RESUME, RESUME, made=MODEL),
    "predict": Case((fit("s.h5"),), PREDICT, PREDICT, ("run",), ("p",), inside=("s.h5",)),
}


@pytest.mark.parametrize("every", few([False, True], False))
@pytest.mark.parametrize("name", few(CASES, "fit-zarr", "resume"))
def test_unreadable(traced, inputs, quick_path, name: str, every: bool) -> None:
    trial = Trial(traced, inputs, quick_path, CASES[name], KINDS, errno.EIO)
    rng = np.random.default_rng(list(name.encode()))
    numbers = range(len(trial.calls)) if every else spread(trial.calls, rng)[:SHORT]
    said = [line for line in map(trial.strike, numbers) if line]
    assert len(said) >= len(numbers) / 4  # the rest was only asked for ahead, or of no consequence


# -- what is refused while a run is resumed --------------------------------------------------------

CHANGES = ["create", "truncate", "grow", "write", "rename", "link", "mkdir", "unlink", "rmdir"]
BEGUN = {
    "fit": fit("../s.h5"),
    "online": ("online", "../text", "--out", "run", "--memory", "2M", "--checkpoint-every", 1),
}


def position(folder: Path) -> list[int]:
    """How far the commit has come."""
    manifest = json.loads((folder / "run/commit.json").read_bytes())
    return [manifest["passes_done"], manifest["blocks_done"]]


@pytest.mark.parametrize("step", few([4, 1, None], 4))
@pytest.mark.parametrize("error", few(["EIO", "EACCES"], "EIO"))
@pytest.mark.parametrize("begun", few(BEGUN, "fit"))
def test_a_refusal_is_no_damage(traced, inputs, quick_path, begun: str, error: str, step: int | None) -> None:
    """A commit that cannot be read now is not given up: each reading of the run's files fails in turn.

    Those before anything is changed, each or with steps between them, or all.
    """
    code = getattr(errno, error)
    before, folder = quick_path / "before", quick_path / "at"
    before.mkdir()
    for name in ("text", "s.h5"):
        (quick_path / name).symlink_to(inputs / name)
    kill = Plan(["rename"], path="run/commit.json.tmp", at=3, act=["kill", signal.SIGKILL])
    assert traced(*BEGUN[begun], cwd=before, trace=kill).code == -signal.SIGKILL
    resume = ("resume", "run", "--checkpoint-every", 1, "--json")
    shutil.copytree(before, folder)
    whole = traced(*resume, cwd=folder, trace=Plan(["open", "read", *CHANGES], path="run/*"))
    assert (whole.code, whole.err) == (0, "")
    model = parts(folder, MODEL)
    calls = [call.split()[0] in KINDS for call in whole.seen]  # True: one that reads
    untouched = sum(calls[: calls.index(False)])  # so many of them before anything is changed
    assert untouched > 10
    reached = []
    for number in range(sum(calls)) if step is None else range(0, untouched, step):
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
        ended = traced(*resume, cwd=folder, trace=Plan(KINDS, path="run/*", at=number, error=code))
        about = (number, ended)
        assert ended.what is not None, about
        assert position(folder) >= position(before), about
        if ended.code != 0:
            one_line(ended)
            assert os.strerror(code) in ended.err, about
            reached.append(number)
        if number < untouched:
            assert ended.what.split()[1] in ended.err, about
            assert parts(folder, ("run",)) == parts(before, ("run",)), about
        else:
            assert traced(*resume, cwd=folder, count=False).code == 0, about
            assert parts(folder, MODEL) == model, about
    assert [number for number in reached if number < untouched] == list(range(0, untouched, step or 1))


# -- what is lost in the middle of a fit -----------------------------------------------------------

LOSSES = {  # what is done, to what, and a word of what is said
    "store-removed": ("s.zarr", ["remove", "s.zarr"], "s.zarr"),
    "store-moved": ("s.zarr", ["rename", "s.zarr", "elsewhere"], "s.zarr"),
    "chunks-cut-short": ("s.zarr", ["truncate", "s.zarr/X/data/c/*", 10], "X/data"),
    "weights-cut-short": ("s.h5", ["truncate", "run/weights.bin", 0], ""),  # mapped
    "weights-removed": ("s.h5", ["remove", "run/weights.bin"], ""),  # its map lives on
    "run-removed": ("s.h5", ["remove", "run"], "run"),
    "commit-removed": ("s.h5", ["remove", "run/commit.json"], ""),  # the next commit makes it anew
}


@pytest.mark.parametrize("at", few([2, 5], 5))  # in the first pass, and in the second
@pytest.mark.parametrize("name", LOSSES)
def test_lost_while_training(traced, inputs, quick_path, name: str, at: int) -> None:
    """One clear line, and as soon as things are back, the run goes on from its last commit."""
    store, act, word = LOSSES[name]
    reference, folder = quick_path / "reference", quick_path / "at"
    for path in (reference, folder):
        path.mkdir()
        (shutil.copytree if store == "s.zarr" else shutil.copyfile)(inputs / store, path / store)
    command = fit(store, "--block-rows", 300, "--no-average")  # 5 blocks: none is read ahead at the end
    assert traced(*command, cwd=reference, count=False).code == 0
    model = parts(reference, MODEL)
    plan = Plan(["write"], path="run/duals-*.bin", at=at, act=act)
    ended = traced(*command, cwd=folder, trace=plan)
    if ended.code == -signal.SIGBUS:
        assert name == "weights-cut-short"
    elif ended.code != 0:
        one_line(ended)
        assert word in ended.err, ended.err
    else:
        assert name in ("weights-removed", "commit-removed")
    if store == "s.zarr":
        shutil.rmtree(folder / store, ignore_errors=True)
        shutil.copytree(inputs / store, folder / store)
    else:
        shutil.copyfile(inputs / store, folder / store)
    if (folder / "run/run.json").exists():
        again = traced("resume", "run", "--json", cwd=folder, count=False)
    else:
        again = traced(*command, cwd=folder, count=False)
    assert again.code == 0, again.err
    assert parts(folder, MODEL) == model
