"""A pass over a stream, killed at any instant, ends in the bytes of one never interrupted."""

from __future__ import annotations

import bz2
import collections
import dataclasses
import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import few
from streamsvm_converters.libsvm.blocks import BlockReader
from trials import content, stage

from streamsvm.model.serialization import save_model
from streamsvm.run.manifest import commit, recover
from streamsvm.training.trainer import Trainer


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is learned from, and how."""

    inputs: tuple[str, ...]
    options: tuple
    every: int

    def online(self) -> list:
        options = ("--checkpoint-every", self.every, "--memory", "2M", "--C", 0.0003, "--json", "--force")
        return ["online", *self.inputs, "--out", "run", *options, *self.options]

    def resume(self) -> list:
        return ["resume", "run", "--checkpoint-every", self.every, "--json"]


VARIANTS = {
    "growing": Variant(("train",), (), 1),
    # Ten classes are more than a line of float64: the weights are laid out anew on the way.
    "compressed": Variant(("first.bz2", "second"), ("--dtype", "float64", "--loss", "cs"), 2),
    "hashed": Variant(("first.bz2", "second"), ("--transform", "hash=5,bias"), 3),
}
STAGES = [stage(function) for function in (commit, recover, save_model, Trainer.learn, BlockReader._skip)]
TRIALS = [1, 2, 3]  # kills of a trial
ROUNDS = few([None, *range(12)], None)


@pytest.fixture(scope="module")
def text(digits) -> Callable[[Path], None]:
    """Puts the inputs of all variants into a folder."""
    lines = (digits / "train").read_bytes().splitlines(keepends=True)

    def write(folder: Path) -> None:
        (folder / "train").write_bytes(b"".join(lines))
        (folder / "first.bz2").write_bytes(bz2.compress(b"".join(lines[:700])))
        (folder / "second").write_bytes(b"".join(lines[700:]))

    return write


@pytest.fixture(scope="module")
def reference(launcher, text, quick_folders) -> Callable[[str], tuple[dict[str, bytes], dict, int]]:
    """The model of a pass never interrupted, what it says, and how many instants it has."""
    known: dict[str, tuple] = {}

    def make(name: str) -> tuple[dict[str, bytes], dict, int]:
        if name not in known:
            folder = quick_folders / f"online-{name}"
            folder.mkdir()
            text(folder)
            ended = launcher(*VARIANTS[name].online(), cwd=folder)
            assert (ended.code, ended.err) == (0, "")
            known[name] = content(folder / "run/model"), json.loads(ended.out), ended.count
        return known[name]

    return make


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("name", few(VARIANTS, "growing", "compressed"))
def test_killed_and_resumed(launcher, text, reference, quick_path, name: str, number: int | None) -> None:
    model, said, count = reference(name)
    variant = VARIANTS[name]
    rng = np.random.default_rng([number or 0, sorted(VARIANTS).index(name)])
    struck = []
    for kills in TRIALS if number is not None else [2]:
        folder = quick_path / str(kills)
        folder.mkdir()
        text(folder)
        for kill in range(kills):
            begun = (folder / "run/run.json").exists()
            command = variant.resume() if begun else variant.online()
            at = int(rng.integers(count // (1 + kill)))
            ended = launcher(*command, cwd=folder, at=at, lose=bool(rng.integers(2)))
            assert ended.code in (-signal.SIGKILL, 0), ended
            struck.append(next((stage for stage in STAGES if stage in ended.stack), "elsewhere"))
        command = variant.resume() if (folder / "run/run.json").exists() else variant.online()
        ended = launcher(*command, cwd=folder, count=False)
        assert ended.code == 0, ended
        result = json.loads(ended.out)
        assert content(folder / "run/model") == model
        for key in ("rows", "classes", "features", "progressive_accuracy", "empty_rows", "input"):
            assert result[key] == said[key], key
        left = {path.name for path in (folder / "run").iterdir() if not path.name.startswith("committed-")}
        assert left == {"run.json", "lock", "commit.json", "metrics.jsonl", "model"}
        lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        assert [line["rows"] for line in lines] == [*(2**i for i in range(11)), said["rows"]]
    print(name, number, collections.Counter(struck))


def test_a_signal_commits_and_resumes(launcher, text, reference, quick_path) -> None:
    model, _, count = reference("growing")
    variant = VARIANTS["growing"]
    text(quick_path)
    ended = launcher(*variant.online(), cwd=quick_path, at=count // 2, sent=signal.SIGTERM)
    assert ended.code == 130
    assert "streamsvm resume run" in ended.err
    assert launcher(*variant.resume(), cwd=quick_path, count=False).code == 0
    assert content(quick_path / "run/model") == model
