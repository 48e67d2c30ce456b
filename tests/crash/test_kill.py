"""Killed at any instant, as often as you like, a run ends in the bytes of one never interrupted."""

from __future__ import annotations

import collections
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import few
from helpers import FEATURES
from run_files import metrics_of, without_times
from streamsvm_converters.external_shuffle import ExternalShuffle
from trials import content, result, stage

from streamsvm.base import durable
from streamsvm.model.serialization import save_model
from streamsvm.run import manifest
from streamsvm.store.writer import StoreWriter
from streamsvm.training.passes import Fit
from streamsvm.training.trainer import Trainer

BLOCKS = ("--block-rows", 200)  # 8 blocks a pass


@dataclasses.dataclass(frozen=True)
class Variant:
    """What is trained; with `first` below `passes`, a finished run is extended."""

    store: str
    options: tuple
    first: int = 3
    passes: int = 3
    every: int = 1  # blocks between commits

    def fit(self, passes: int) -> list:
        every = ("--checkpoint-every", self.every)
        options = ("--passes", passes, *BLOCKS, *every, *self.options, "--json")
        return ["fit", self.store, "--out", "run", *options]

    def resume(self, run: str = "run") -> list:
        return ["resume", run, "--passes", self.passes, "--checkpoint-every", self.every, "--json"]


VARIANTS = {
    "zarr": Variant("s.zarr", ("--C", 0.0003, "--valid", "valid.zarr", "--no-average")),
    "hdf5-cs": Variant("s.h5", ("--loss", "cs", "--dtype", "float64", "--gap", "end", "--no-average")),
    "extended": Variant("s.h5", ("--margin", 0.5, "--C", 0.0005, "--keep-duals", "--gap", "pass"), first=1),
    "rare-commits": Variant("s.h5", ("--C", 0.0003), every=11),  # passes end without one
    "one-block": Variant("s.h5", ("--C", 0.0003, "--gap", "pass", "--block-rows", 1600), every=2),
    "transforms": Variant("s.h5", ("--transform", f"idf,l2,select={FEATURES},bias", "--valid", "valid.zarr")),
    "beyond-memory": Variant("s.h5", ("--transform", "hash=19", "--memory", "20M", "--no-average")),
    "from": Variant("s.zarr", ("--C", 0.0003, "--from", "base", "--gap", "pass")),
    "no-duals": Variant("s.zarr", ("--solver", "sorted", "--no-keep-duals"), first=1, passes=1),
}
# Where a kill can fall, for the tally: the first of these that the process was in.
TRAIN_PASS = stage(Trainer.learn)
STAGES = (
    *map(stage, (manifest.commit, manifest.recover, save_model)),
    *(TRAIN_PASS, stage(Fit._end_pass)),
    *map(stage, (StoreWriter.finish, durable.move_into_place, StoreWriter.append, ExternalShuffle.append)),
    stage(StoreWriter.__init__),
)
# The trials of a variant: kills during convert, and during fit and resume.
TRIALS = [(2, 1), (1, 2), (0, 3), (0, 2), (0, 1)]
QUICK = [(1, 2), (0, 1)]
ROUNDS = few([None, *range(8)], None)


@dataclasses.dataclass(frozen=True)
class Reference:
    """An uninterrupted conversion and training: what comes of them, and how many instants they have."""

    folder: Path
    fingerprint: str
    model: dict[str, bytes]
    metrics: list[dict]
    convert_count: int
    fit_count: int


@pytest.fixture(scope="module")
def reference(launcher, digits, quick_folders) -> Callable[[str], Reference]:
    known: dict[str, Reference] = {}

    def make(name: str) -> Reference:
        if name in known:
            return known[name]
        variant, folder = VARIANTS[name], quick_folders / f"reference-{name}"
        folder.mkdir()
        converted = launcher("convert", digits / "train", "--out", variant.store, "--json", cwd=folder)
        fingerprint = result(converted)["fingerprint"]
        like = ("--like", variant.store, "--json")
        result(launcher("convert", digits / "test", "--out", "valid.zarr", *like, cwd=folder))
        if "--from" in variant.options:
            result(launcher("fit", variant.store, "--out", "base", "--passes", 1, "--json", cwd=folder))
        result(launcher(*variant.fit(variant.first), cwd=folder))  # compiles, which counts too
        shutil.rmtree(folder / "run")
        fitted = launcher(*variant.fit(variant.first), cwd=folder)
        result(fitted)
        if variant.first != variant.passes:
            result(launcher(*variant.fit(variant.passes), "--force", cwd=folder))
        known[name] = Reference(
            folder, fingerprint, content(folder / "run/model"), without_times(metrics_of(folder / "run")),
            converted.count, fitted.count,
        )  # fmt: skip
        return known[name]

    return make


class Trial:
    """One conversion and one training, killed over and over, in a folder of their own."""

    def __init__(self, launcher, digits: Path, folder: Path, variant: Variant, reference: Reference) -> None:
        self.launcher = launcher
        self.text = digits / "train"
        self.folder = folder
        self.variant = variant
        self.reference = reference
        self.struck: list[str] = []

    def strike(self, rng: np.random.Generator, command: list, count: int) -> None:
        """Kill a command at one of its `count` instants; half the time, unsynced bytes are lost too."""
        ended = self.launcher(
            *command, cwd=self.folder, at=int(rng.integers(count)), lose=bool(rng.integers(2))
        )
        assert ended.code == -signal.SIGKILL, (command, ended)
        place = next((stage for stage in STAGES if stage in ended.stack), "elsewhere")
        self.struck.append(f"{command[0]}: {place}")

    # -- convert -----------------------------------------------------------------------------------

    def convert(self, rng: np.random.Generator, kills: int) -> None:
        """Convert, killed `kills` times; where an older store stands, it or the new one is there after."""
        command = ["convert", self.text, "--out", self.variant.store, "--json"]
        allowed = {self.reference.fingerprint}
        if rng.integers(2):
            older = self.launcher(*command, "--seed", 1, cwd=self.folder)
            allowed.add(result(older)["fingerprint"])
            command.append("--force")
        for _ in range(kills):
            self.strike(rng, command, self.reference.convert_count)
            for path in self.folder.iterdir():
                if not path.name.startswith("."):
                    assert path.name == self.variant.store
                    assert self.fingerprint() in allowed
            if (self.folder / self.variant.store).exists() and "--force" not in command:
                # Killed after the new store took its place: it is whole, and the next run says so.
                ended = self.launcher(*command, cwd=self.folder)
                assert ended.code == 1
                assert "already exists" in ended.err
                assert [path.name for path in self.folder.iterdir()] == [self.variant.store]
                command.append("--force")
        assert result(self.launcher(*command, cwd=self.folder))["fingerprint"] == self.reference.fingerprint
        assert [path.name for path in self.folder.iterdir()] == [self.variant.store]
        assert self.fingerprint() == self.reference.fingerprint

    def fingerprint(self) -> str:
        info = self.launcher("info", self.variant.store, "--verify", "--json", cwd=self.folder)
        return result(info)["fingerprint"]

    # -- fit and resume ----------------------------------------------------------------------------

    def train(self, rng: np.random.Generator, kills: int) -> None:
        """Fit and resume, killed `kills` times, each at an instant of what is left to do."""
        for name in (self.variant.store, "valid.zarr", "base"):
            if not (self.folder / name).exists():
                os.symlink(self.reference.folder / name, self.folder / name)
        run = self.folder / "run"
        for _ in range(kills):
            if (run / "run.json").exists():
                command = self.variant.resume()
                # The same on a copy, to its end: counts the instants, and is one more check.
                shutil.copytree(run, self.folder / "probe")
                probe = self.launcher(*self.variant.resume("probe"), cwd=self.folder)
                result(probe)
                assert content(self.folder / "probe/model") == self.reference.model
                shutil.rmtree(self.folder / "probe")
                count = probe.count
            else:
                command, count = self.variant.fit(self.variant.first), self.reference.fit_count
            self.strike(rng, command, count)
            self.spoil(rng)
            if (run / "run.json").exists():
                result(self.launcher("info", "run", "--verify", "--json", cwd=self.folder))

    def spoil(self, rng: np.random.Generator) -> None:
        """Overwrite the weights in use, as a power cut may: they are never the checkpoint."""
        for weights in (self.folder / "run").glob("weights*.bin"):
            weights.write_bytes(rng.bytes(weights.stat().st_size))

    def finish(self) -> None:
        """Train to the end; everything must be as if nothing had happened."""
        run = self.folder / "run"
        if not (run / "run.json").exists():
            result(self.launcher(*self.variant.fit(self.variant.first), cwd=self.folder))
        record = result(self.launcher(*self.variant.resume(), cwd=self.folder))
        assert content(run / "model") == self.reference.model
        assert without_times(metrics_of(run)) == self.reference.metrics
        assert record["passes"] == self.variant.passes
        assert len(list(run.glob("committed-*.bin"))) == 1
        left = {path.name for path in run.iterdir()}
        left = {name for name in left if not name.startswith(("duals-", "committed-", "transform-", "from"))}
        assert left == {"run.json", "commit.json", "metrics.jsonl", "model", "lock"}
        result(self.launcher("info", "run", "--verify", "--json", cwd=self.folder))


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("name", few(VARIANTS, "extended"))
def test_killed_at_counted_instants(
    launcher, digits, reference, quick_path, name: str, number: int | None
) -> None:
    expected, trials = reference(name), QUICK if number is None else TRIALS
    rng = np.random.default_rng([number or 0, *name.encode()])
    struck: list[list[str]] = []
    for index, (in_convert, in_training) in enumerate(trials):
        folder = quick_path / str(index)
        folder.mkdir()
        trial = Trial(launcher, digits, folder, VARIANTS[name], expected)
        if in_convert:
            trial.convert(rng, in_convert)
        trial.train(rng, in_training)
        trial.finish()
        struck.append(trial.struck)
        shutil.rmtree(folder)
    tally = collections.Counter(place for trial in struck for place in trial)
    print(f"{name} {number}: {dict(tally)}")
    # What the promise says of the tests themselves.
    assert tally.total() == sum(map(sum, trials))
    assert sum(len(trial) >= 2 for trial in struck) >= len(struck) / 2
    if VARIANTS[name].every == 1 and number is not None:
        assert sum(count for place, count in tally.items() if stage(manifest.commit) in place) >= 1
    assert sum(count for place, count in tally.items() if place.startswith("resume")) >= 1


@pytest.mark.parametrize("step", few([1, 4], 4))
def test_recovery_killed_at_every_instant(launcher, digits, reference, quick_path, step: int) -> None:
    """One interrupted run, and a resume of it that is killed before it trains, wherever that may be."""
    name = "extended"
    trial = Trial(launcher, digits, quick_path, VARIANTS[name], reference(name))
    trial.train(np.random.default_rng(0), 2)
    for at in range(0, 1000, step):
        ended = launcher(*trial.variant.resume(), cwd=quick_path, at=at, lose=bool(at % 2))
        assert ended.code == -signal.SIGKILL
        if TRAIN_PASS in ended.stack:
            break
        trial.spoil(np.random.default_rng(at))
    assert at > 10
    trial.finish()


@pytest.mark.more
def test_killed_at_every_instant(launcher, digits, reference, quick_path) -> None:
    """Each instant of a small fit in turn, and a resume."""
    name = "hdf5-cs"
    trial = Trial(launcher, digits, quick_path, VARIANTS[name], reference(name))
    trial.train(np.random.default_rng(0), 0)
    fit = ("fit", trial.variant.store, "--out", "run", "--passes", 2, "--block-rows", 500)
    fit = (*fit, "--checkpoint-every", 1, "--json")
    whole = launcher(*fit, cwd=quick_path)
    model = content(quick_path / "run/model")
    for at in range(whole.count):
        shutil.rmtree(quick_path / "run")
        assert launcher(*fit, cwd=quick_path, at=at, lose=bool(at % 2)).code == -signal.SIGKILL
        again = ("resume", "run", "--json") if (quick_path / "run/run.json").exists() else fit
        result(launcher(*again, cwd=quick_path, count=False))
        assert content(quick_path / "run/model") == model


# -- through the real command line -----------------------------------------------------------------


def start(
    *words: object, cwd: Path, program: tuple = ("-m", "streamsvm_cli.main"), **more
) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, *map(str, program), *map(str, words)],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip


def until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Wait for something that `process` brings about; it must not end before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def passes_done(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count('"event": "pass"') if path.exists() else 0


LONG = Variant("s.h5", ("--C", 0.0003), first=20, passes=20)


@pytest.fixture(scope="module")
def long_run(launcher, digits, quick_folders) -> tuple[Path, dict[str, bytes]]:
    """A store in a folder, and the model of many passes on it."""
    folder = quick_folders / "long"
    folder.mkdir()
    result(launcher("convert", digits / "train", "--out", LONG.store, "--json", cwd=folder))
    result(launcher(*LONG.fit(LONG.passes), cwd=folder, count=False))
    model = content(folder / "run/model")
    shutil.rmtree(folder / "run")
    return folder, model


def test_the_command_line_killed_twice(long_run, quick_path) -> None:
    folder, model = long_run
    os.symlink(folder / LONG.store, quick_path / LONG.store)
    run = quick_path / "run"
    for command, passes in ((LONG.fit(LONG.passes), 2), (LONG.resume(), 4)):
        with start(*command, cwd=quick_path) as process:
            until(lambda passes=passes: passes_done(run) >= passes, process)
            process.kill()
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert not (run / "model").exists()
    with start(*LONG.resume(), cwd=quick_path) as process:
        assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert content(run / "model") == model


# -- Ctrl-C and SIGTERM ----------------------------------------------------------------------------

SIGNALS = pytest.mark.parametrize("sent", few([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))


def interrupted(code: int, message: str) -> None:
    assert code == 130, (code, message)
    assert message.startswith("streamsvm: ")
    assert message.count("\n") == 1, message


@SIGNALS
def test_interrupted_at_counted_instants(launcher, digits, reference, quick_path, sent: int) -> None:
    """A signal ends the command after a commit; only one that comes when all is trained is too late."""
    name = "hdf5-cs"
    expected = reference(name)
    trial = Trial(launcher, digits, quick_path, VARIANTS[name], expected)
    trial.train(np.random.default_rng(), 0)
    rng = np.random.default_rng(sent)
    codes = []
    for _ in range(4):
        at = int(rng.integers(expected.fit_count))
        ended = launcher(*trial.variant.fit(trial.variant.first), cwd=quick_path, at=at, sent=sent)
        codes.append(ended.code)
        if ended.code != 0:
            interrupted(ended.code, ended.err)
            assert "resume" in ended.err
            assert (quick_path / "run/commit.json").exists()
        trial.finish()
        shutil.rmtree(quick_path / "run")
    assert codes.count(130) >= 3


@pytest.mark.parametrize(
    "sent", few([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], signal.SIGTERM, signal.SIGKILL)
)
def test_convert_stopped_at_counted_instants(launcher, digits, quick_path, sent: int) -> None:
    """Interrupted with sparse rows, and killed with dense ones."""
    rng, dense = np.random.default_rng(sent), sent == signal.SIGKILL
    np.savez(quick_path / "x.npz", X=rng.normal(size=(2000, 30)), y=rng.integers(0, 4, 2000))
    data = ("x.npz", "--label", "y", "--dtype", "float16", "--chunk-nnz", 5000, "--memory", "1M")
    command = ("convert", *(data if dense else (digits / "train",)), "--out", "s.zarr", "--json")
    whole = launcher(*command, cwd=quick_path)
    fingerprint = result(whole)["fingerprint"]
    for _ in range(4):
        shutil.rmtree(quick_path / "s.zarr")
        at = int(rng.integers(whole.count))
        ended = launcher(*command, cwd=quick_path, at=at, sent=sent, lose=dense)
        if dense:
            assert ended.code == -signal.SIGKILL
        else:
            interrupted(ended.code, ended.err)
        assert {path.name for path in quick_path.iterdir() if path.name[0] != "."} <= {"x.npz", "s.zarr"}
        again = launcher(*command, "--force", cwd=quick_path)
        assert result(again)["fingerprint"] == fingerprint
        assert {path.name for path in quick_path.iterdir()} == {"x.npz", "s.zarr"}
        info = result(launcher("info", "s.zarr", "--verify", "--json", cwd=quick_path))
        assert (bool(info["dense"]), info["fingerprint"]) == (dense, fingerprint)
        assert info["dtype"] == ("float16" if dense else "float32")


@SIGNALS
def test_convert_from_a_pipe_interrupted(digits, quick_path, sent: int) -> None:
    """Half of the input is there when the signal comes; nothing stays."""
    with start("convert", "-", "--out", "s.zarr", cwd=quick_path, stdin=subprocess.PIPE) as process:
        text = (digits / "train").read_text()
        process.stdin.write(text[: len(text) // 2])
        process.stdin.flush()
        until(lambda: list(quick_path.glob(".s.zarr.*.tmp")), process)
        process.send_signal(sent)
        interrupted(process.wait(), process.stderr.read())
    assert list(quick_path.iterdir()) == []
