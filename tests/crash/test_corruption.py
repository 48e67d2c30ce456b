"""A flipped byte or a lost tail in any file of a run: refused by name, or without effect."""

from __future__ import annotations

import collections
import dataclasses
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import few
from trials import content, stage

from streamsvm.base import durable
from streamsvm.training.trainer import Trainer

FIT = ("--passes", 2, "--C", 0.0003, "--block-rows", 300, "--no-average", "--json")
COMMITS = ("--checkpoint-every", 1, "--keep-duals", "--force")

# Damaged files: a pattern in the folder of originals, and how many times.
INTERRUPTED = {
    "interrupted/run.json": 8,
    "interrupted/duals-*.bin": 16,
    "interrupted/committed-*.bin": 10,
    "interrupted/commit.json": 10,
    "interrupted/metrics.jsonl": 5,
    "interrupted/weights*.bin": 3,
}
FINISHED = {
    "finished/run.json": 4,
    "finished/duals-*.bin": 8,
    "finished/committed-*.bin": 5,
    "finished/commit.json": 5,
    "finished/metrics.jsonl": 3,
    "finished/model/*": 3,
}
QUICK = ["interrupted/run.json", "interrupted/duals-*.bin", "interrupted/commit.json"]
# Of each kind, tests without `more` damage a quarter of the files of round 0.
ROUNDS = few([None, *range(5)], None)


def turns_of(turns: int, number: int | None) -> int:
    return turns if number is not None else max(4, turns // 4)


@dataclasses.dataclass(frozen=True)
class Originals:
    """A folder of undamaged files, and what the commands make of them."""

    folder: Path
    models: dict[int, dict[str, bytes]]  # by the number of passes


@pytest.fixture(scope="module")
def originals(launcher, digits, quick_folders) -> Originals:
    folder = quick_folders / "originals"
    folder.mkdir()

    def run(*words: object) -> None:
        ended = launcher(*words, cwd=folder, count=False)
        assert (ended.code, ended.err) == (0, ""), (words, ended)

    run("convert", digits / "train", "--out", "s.h5", "--chunk-nnz", 5000)
    models = {}
    for passes in (3, 2):
        run("fit", "s.h5", "--out", "finished", *FIT, *COMMITS, "--passes", passes)
        models[passes] = content(folder / "finished/model")
    # Stopped in the second pass, with a commit in it, and files that it does not name.
    fit = ("fit", "s.h5", "--out", "interrupted", *FIT, "--checkpoint-every", 1)
    count, at = launcher(*fit, cwd=folder).count, 0
    for at in range(int(count * 0.7), count):
        shutil.rmtree(folder / "interrupted", ignore_errors=True)
        ended = launcher(*fit, cwd=folder, at=at)
        if (
            ended.what == "after fsync"
            and {stage(Trainer.commit), stage(durable.sync_tree)} <= set(ended.stack)
            and {path.name[:7] for path in (folder / "interrupted").glob("duals-*.bin")}
            == {"duals-1", "duals-2"}
        ):
            break
    assert ended.code == -signal.SIGKILL
    assert not (folder / "interrupted/model").exists()
    assert (folder / "interrupted/commit.json").exists()
    return Originals(folder, models)


def damage(path: Path, rng: np.random.Generator) -> str:
    """Flip a byte of a file or cut off its tail; says what was done."""
    size = path.stat().st_size
    if rng.integers(2):
        at = int(rng.integers(size))
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ int(rng.integers(1, 256))]))
        return f"{path.name}: byte {at} of {size} flipped"
    left = int(rng.integers(size)) if rng.integers(2) else size - int(rng.integers(1, min(size, 16) + 1))
    os.truncate(path, left)
    return f"{path.name}: cut to {left} of {size} bytes"


class Case:
    """A damaged copy of some of the originals, and the judge of what commands make of it."""

    def __init__(self, launcher, originals: Originals, folder: Path, copied: str) -> None:
        self.launcher = launcher
        self.originals = originals
        self.folder = folder
        for path in originals.folder.iterdir():
            if path.name != copied:
                os.symlink(path, folder / path.name)
            else:
                shutil.copytree(path, folder / copied)

    def judge(self, words: tuple, same: Callable[[str], bool], names: tuple[str, ...]) -> str:
        """Run a command, which may fail in one line with one of `names`, or must do the `same` as ever."""
        ended = self.launcher(*words, cwd=self.folder, count=False)
        lines = ended.err.splitlines()
        told = (self.what, words, ended)
        assert all(line.startswith("streamsvm: ") for line in lines), told
        if ended.code == 1:
            assert len(lines) == 1, told
            assert any(name in ended.err for name in names), (names, told)
            return "refused"
        assert ended.code == 0, told
        assert same(ended.out), ("another result", told)
        if lines:
            assert any(name in ended.err for name in names), (names, told)
        return "another commit served" if lines else "no effect"

    def trains(self, words: tuple, run: str, passes: int, names: tuple[str, ...]) -> str:
        """Judge a command that trains a model."""
        expected = self.originals.models[passes]
        return self.judge(words, lambda out: content(self.folder / run / "model") == expected, names)


@pytest.fixture
def new_case(launcher, originals, quick_path) -> Callable[[str], Case]:
    made: list[Path] = []

    def make(copied: str) -> Case:
        folder = quick_path / str(len(made))
        folder.mkdir()
        for old in made[-1:]:
            shutil.rmtree(old)
        made.append(folder)
        return Case(launcher, originals, folder, copied)

    return make


def damaged_run(new_case, pattern: str, rng: np.random.Generator) -> tuple[Case, str, str]:
    """A case with one file of a run damaged, the run, and how messages must call the file."""
    run, _, below = pattern.partition("/")
    case = new_case(run)
    path = rng.choice(sorted((case.folder / run).glob(below)))
    case.what = damage(path, rng)
    return case, run, path.relative_to(case.folder).as_posix()


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("pattern", [*few(INTERRUPTED, *QUICK), *few(FINISHED)])
def test_runs(new_case, pattern: str, number: int | None) -> None:
    """Resume and extend; the weights in use, the metrics and the old model rule nothing."""
    rng = np.random.default_rng([number or 0, *pattern.encode()])
    tally: collections.Counter = collections.Counter()
    for turn in range(turns_of({**INTERRUPTED, **FINISHED}[pattern], number)):
        case, run, name = damaged_run(new_case, pattern, rng)
        verified = case.judge(("info", run, "--verify", "--json"), lambda out: True, (name,))
        if run == "interrupted" and turn % 3:
            resumed = case.trains(("resume", run, "--json"), run, 2, (name,))
        else:
            resumed = case.trains(("resume", run, "--passes", 3, "--json"), run, 3, (name,))
        tally[f"resume: {resumed}"] += 1
        tally[f"verify: {verified}"] += 1
        if resumed != "no effect":
            assert verified == "refused", (case.what, name)
    print(pattern, dict(tally))
    if pattern.endswith(("metrics.jsonl", "weights*.bin")) or "/model/" in pattern:
        assert tally["resume: refused"] == 0
