"""A command whose calls fail, one after another, and what must be true each time."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from disk import tree
from tracer import Plan

FIT = ("--block-rows", 500, "--C", 0.0003, "--passes", 2, "--checkpoint-every", 1, "--json")
RESUME = ("resume", "run", "--passes", 3, "--checkpoint-every", 1, "--json")


@dataclasses.dataclass(frozen=True)
class Case:
    """Commands that prepare a folder, the one that fails, and how it is repeated."""

    before: tuple[tuple, ...]
    command: tuple
    again: tuple
    kept: tuple[str, ...] = ()  # what must be as it was, as long as the command has not succeeded
    made: tuple[str, ...] = ()  # what it must make, to the byte
    inside: tuple[str, ...] = ()  # inputs that lie in the folder whose calls fail


def convert(store: str, *options: object, text: str = "../text") -> tuple:
    return ("convert", text, "--out", store, "--json", *options)


def fit(store: str, *options: object) -> tuple:
    return ("fit", store, "--out", "run", *FIT, *options)


def stage(function: Callable) -> str:
    """The name of a function in `conftest.Ended.stack`."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


def one_line(ended) -> None:
    """How a failure has to look."""
    assert ended.code == 1, ended
    assert ended.err.startswith("streamsvm: "), ended.err
    assert ended.err.count("\n") == 1, ended.err


def result(ended) -> dict:
    """What a command that must succeed has to say."""
    assert (ended.code, ended.err) == (0, ""), ended
    return json.loads(ended.out)


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def parts(folder: Path, names: tuple[str, ...]) -> dict:
    """The content of files and folders."""
    return {
        name: (folder / name).read_bytes() if (folder / name).is_file() else tree(folder / name)
        for name in names
    }


class Trial:
    """One case, repeated with another call failing each time.

    Parameters
    ----------
    inputs : Path
        A folder with the text and the stores ``s.zarr`` and ``s.h5``.
    folder : Path
        An empty one.
    kinds : list of str
        The events that fail.
    error : int
        With this number.
    """

    def __init__(self, traced, inputs: Path, folder: Path, case: Case, kinds: list[str], error: int) -> None:
        self.run = lambda *words, **more: traced(*words, cwd=self.at, count=False, **more)
        self.case, self.kinds, self.error = case, kinds, error
        self.at, self.before = folder / "at", folder / "before"
        self.at.mkdir()
        for name in ("text", "s.zarr", "s.h5"):
            if name not in case.inside:
                (folder / name).symlink_to(inputs / name)
            elif (inputs / name).is_dir():
                shutil.copytree(inputs / name, self.at / name)
            else:
                shutil.copyfile(inputs / name, self.at / name)
        for command in case.before:
            assert self.run(*command).code == 0
        shutil.copytree(self.at, self.before)
        whole = self.run(*case.command, trace=Plan(kinds))
        assert (whole.code, whole.err) == (0, "")
        self.calls = whole.seen
        self.made = parts(self.at, case.made)
        self.kept = parts(self.before, case.kept)

    def strike(self, number: int, **how: object) -> str | None:
        """Fail at one call; check everything; return what the command said, None if it succeeded."""
        shutil.rmtree(self.at)
        shutil.copytree(self.before, self.at)
        ended = self.run(*self.case.command, trace=Plan(self.kinds, at=number, error=self.error, **how))
        about = (number, ended.what, how)
        assert ended.what is not None, about
        if ended.code == 0:  # what failed was of no consequence, such as tidying up
            assert parts(self.at, self.case.made) == self.made, about
            return None
        assert ended.code == 1, (about, ended)
        one_line(ended)
        assert os.strerror(self.error) in ended.err, (about, ended.err)
        if parts(self.at, self.case.kept) != self.kept:  # then all was done but to tidy up
            assert parts(self.at, self.case.made) == self.made, (about, ended.err)
        if (self.at / "run/run.json").exists():
            info = self.run("info", "run", "--verify")
            assert (info.code, info.err) == (0, ""), about
        again = self.case.again
        if again[0] == "fit" and (self.at / "run/run.json").exists():
            again = ("resume", "run", "--json")
        done = self.run(*again)
        if again[0] == "convert" and "already exists" in done.err:  # failed after it was in its place
            done = self.run(*again, "--force")
        assert (done.code, done.err) == (0, ""), about
        assert parts(self.at, self.case.made) == self.made, about
        left = {path.name for path in self.at.iterdir()}
        expected = (*self.case.made, *self.case.kept, *self.case.inside)
        assert left == {path.split("/")[0] for path in expected}, about
        return ended.err


def spread(calls: list[str], rng: np.random.Generator) -> list[int]:
    """Some calls, of different kinds and on different files rather than one like the other."""
    alike: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        alike.setdefault("".join("*" if c.isdigit() or c in "abcdef" else c for c in call), []).append(number)
    groups = rng.permutation(len(alike))
    return [int(rng.choice(list(alike.values())[group])) for group in groups]
