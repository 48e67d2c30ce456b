"""A disk that is full, at every call that could find it so: one clear line, nothing lost, and it goes on."""

from __future__ import annotations

import dataclasses
import errno
import shutil
from pathlib import Path

import numpy as np
import pytest
from disk import tree
from tracer import Plan

# The calls that fail on a full disk. fsync does where blocks are given out late, or over a network.
KINDS = ["create", "write", "grow", "mkdir", "link", "rename", "fsync"]
FIT = ("--block-rows", 500, "--C", 0.01, "--passes", 2, "--checkpoint-every", 1, "--json")
SHORT = 8  # calls struck in a case of the default suite


@dataclasses.dataclass(frozen=True)
class Case:
    """Commands that prepare a folder, the one that finds the disk full, and how it is repeated."""

    before: tuple[tuple, ...]
    command: tuple
    again: tuple
    kept: tuple[str, ...] = ()  # what must be as it was, as long as the command has not succeeded
    made: tuple[str, ...] = ()  # what it must make, to the byte


def convert(store: str, *options: object) -> tuple:
    return ("convert", "../text", "--out", store, "--json", *options)


def fit(store: str, *options: object) -> tuple:
    return ("fit", f"../{store}", "--out", "run", *FIT, *options)


RESUME = ("resume", "run", "--passes", 3, "--checkpoint-every", 1, "--json")
MODEL = ("run/model",)
CASES = {
    "convert-zarr": Case((), convert("s.zarr"), convert("s.zarr"), made=("s.zarr",)),
    "convert-hdf5": Case((), convert("s.h5"), convert("s.h5"), made=("s.h5",)),
    "convert-zarr-again": Case(
        (convert("s.zarr", "--no-shuffle"),), convert("s.zarr", "--force"),
        convert("s.zarr", "--force"), ("s.zarr",), ("s.zarr",),
    ),
    "convert-hdf5-again": Case(
        (convert("s.h5", "--no-shuffle"),), convert("s.h5", "--force"),
        convert("s.h5", "--force"), ("s.h5",), ("s.h5",),
    ),
    "fit": Case((), fit("s.zarr"), fit("s.zarr", "--force"), made=MODEL),
    "resume": Case((fit("s.h5", "--keep-duals"),), RESUME, RESUME, made=MODEL),
    "predict": Case(
        (fit("s.h5"), ("predict", "run", "../s.h5", "--out", "p", "--top-k", 2)),
        ("predict", "run", "../text", "--out", "p"), ("predict", "run", "../text", "--out", "p"),
        ("run", "p"), ("p",),
    ),
}  # fmt: skip


def one_line(ended) -> None:
    """How a failure has to look."""
    assert ended.code == 1, ended
    assert ended.err.startswith("streamsvm: "), ended.err
    assert ended.err.count("\n") == 1, ended.err


def parts(folder: Path, names: tuple[str, ...]) -> dict:
    return {name: (folder / name).read_bytes() if (folder / name).is_file() else tree(folder / name)
            for name in names}  # fmt: skip


@pytest.fixture(scope="module")
def stores(digits, launcher, tmp_path_factory) -> Path:
    """A folder with text and stores of it."""
    folder = tmp_path_factory.mktemp("stores")
    shutil.copyfile(digits / "train", folder / "text")
    for name in ("s.zarr", "s.h5"):
        assert launcher("convert", "text", "--out", name, cwd=folder, count=False).code == 0
    return folder


class Trial:
    """One case, repeated with the disk full at another call each time."""

    def __init__(self, traced, stores: Path, folder: Path, case: Case) -> None:
        self.run = lambda *words, **more: traced(*words, cwd=self.at, count=False, **more)
        self.case = case
        for name in ("text", "s.zarr", "s.h5"):
            (folder / name).symlink_to(stores / name)
        self.at, self.before = folder / "at", folder / "before"
        self.at.mkdir()
        for command in case.before:
            assert self.run(*command).code == 0
        shutil.copytree(self.at, self.before)
        whole = self.run(*case.command, trace=Plan(KINDS))
        assert (whole.code, whole.err) == (0, "")
        self.calls = whole.seen
        self.made = parts(self.at, case.made)
        self.kept = parts(self.before, case.kept)

    def strike(self, number: int, **how: object) -> str | None:
        """The disk is full at one call; check everything; return what the command said."""
        shutil.rmtree(self.at)
        shutil.copytree(self.before, self.at)
        ended = self.run(*self.case.command, trace=Plan(KINDS, at=number, error=errno.ENOSPC, **how))
        about = (number, ended.what, how)
        assert ended.what is not None, about
        if ended.code == 0:  # what failed was of no consequence, such as tidying up
            assert parts(self.at, self.case.made) == self.made, about
            return None
        assert ended.code == 1, (about, ended)
        one_line(ended)
        assert "No space left" in ended.err, about
        if parts(self.at, self.case.kept) != self.kept:  # then all was done but to tidy up
            assert parts(self.at, self.case.made) == self.made, (about, ended.err)
        if (self.at / "run/run.json").exists():
            info = self.run("info", "run", "--verify")
            assert (info.code, info.err) == (0, ""), about
        again = self.case.again
        if again[0] == "fit" and (self.at / "run/run.json").exists():
            again = ("resume", "run", "--json")
        done = self.run(*again)
        if again[0] == "convert" and "exists already" in done.err:  # failed after it was in its place
            done = self.run(*again, "--force")
        assert (done.code, done.err) == (0, ""), about
        assert parts(self.at, self.case.made) == self.made, about
        left = {path.name for path in self.at.iterdir()}
        assert left == {path.split("/")[0] for path in (*self.case.made, *self.case.kept)}, about
        return ended.err


def spread(calls: list[str], rng: np.random.Generator) -> list[int]:
    """Some calls, of different kinds and on different files rather than one like the other."""
    alike: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        alike.setdefault("".join("*" if c.isdigit() or c in "abcdef" else c for c in call), []).append(number)
    groups = rng.permutation(len(alike))
    return [int(rng.choice(list(alike.values())[group])) for group in groups]


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_full(traced, stores, tmp_path, name: str, every: bool) -> None:
    trial = Trial(traced, stores, tmp_path, CASES[name])
    rng = np.random.default_rng(list(name.encode()))
    numbers = list(range(len(trial.calls))) if every else spread(trial.calls, rng)[:SHORT]
    said = []
    for number in numbers:
        # Full from here on; full for one call, as when others free and fill it; full within a write.
        ways = [{"stays": True}, {}, *([{"half": True}] if trial.calls[number].startswith("write") else [])]
        for how in ways if every else [ways[int(rng.integers(len(ways)))]]:
            said.append(trial.strike(number, **how))
    failed = [line for line in said if line]
    assert len(failed) >= len(said) / 2
    for line in failed:  # where, and what to do
        assert any(word in line for word in ("s.zarr", "s.h5", "run", "p:")), line
        assert "space" in line.split("No space left on device")[1], line
