"""`streamsvm demo`: all commands on real data, with a training that is killed and resumed."""

from __future__ import annotations

import filecmp
import json as json_module
import lzma
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import typer
from streamsvm_cli.console import Console
from streamsvm_cli.options import Option, command
from streamsvm_cli.wording import count

_MARKER_FILE = ".streamsvm-demo"  # only a folder that holds it is ever replaced
_ATTEMPTS = 10


@command({"dir": Option(os.PathLike, Path("streamsvm-demo"), "Folder to work in.")})
def demo(console: Console, *, dir: Path) -> None:
    """Run all steps on real data, in under a minute.

    Converts, trains, kills the training, resumes, compares, predicts and evaluates.
    """
    console.leave()  # the commands show themselves that they are alive
    begin = time.perf_counter()
    _prepare(dir)
    console.say("Handwritten digits, 1,797 images of 8 x 8 pixels in 10 classes (UCI, CC BY 4.0).")
    console.say(f"All files go to {dir}; the commands can be repeated there.")
    console.say()
    steps = _Steps(dir, console)
    steps.run("convert digits.train --out train.zarr")
    steps.run("convert digits.test --out test.zarr --like train.zarr --no-shuffle")
    fit = "--passes 5 --block-rows 64 --valid test.zarr --checkpoint-every 1"
    steps.run(f"fit train.zarr --out uninterrupted {fit}")
    killed_in = steps.kill(f"fit train.zarr --out killed {fit}")
    steps.run("resume killed")
    same = all(
        filecmp.cmp(path, dir / "killed/model" / path.name, shallow=False)
        for path in (dir / "uninterrupted/model").iterdir()
    )
    console.say(f"The two models are {'byte-identical' if same else 'DIFFERENT'}.")
    console.say()
    steps.run("predict killed digits.test --out predictions.txt --top-k 3 --scores")
    measured = steps.run("evaluate killed test.zarr --top-k 3")
    steps.run("info train.zarr --verify")
    seconds = time.perf_counter() - begin
    console.say(f"Done in {seconds:.1f} s. With your own data:")
    console.say("$ streamsvm fit TRAIN --valid TEST --out RUN")
    accuracy = float(measured.partition("accuracy")[2].split()[0])
    console.result({"identical": same, "killed_in": killed_in, "accuracy": accuracy, "seconds": seconds})
    if not same:
        raise typer.Exit(1)


def _prepare(folder: Path) -> None:
    from streamsvm.errors import RunError

    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER_FILE).exists():
        raise RunError(f"{folder} holds other files; choose a new folder with --dir")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER_FILE).touch()
    for name in ("digits.train", "digits.test"):
        packed = resources.files("streamsvm_cli").joinpath("digits", name + ".xz").read_bytes()
        (folder / name).write_bytes(lzma.decompress(packed))


class _Steps:
    """Commands that are run in the demo's folder, and shown as a user would type them."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._console = console

    def _start(self, command: str) -> subprocess.Popen[str]:
        self._console.say(f"$ streamsvm {command}")
        return subprocess.Popen(
            [sys.executable, "-m", "streamsvm_cli.main", *shlex.split(command)],
            cwd=self._folder, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, command: str) -> str:
        """Run a command to its end, show its output and return it; a failure ends the demo."""
        lines = []
        with self._start(command) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._console.say(f"  {line}".rstrip(), indent=4)
                lines.append(line)
        self._console.say()
        if process.returncode:
            raise typer.Exit(process.returncode)
        return "".join(lines)

    def kill(self, command: str) -> int:
        """Start a command, kill it by SIGKILL in the middle of a pass, and return the number of the pass."""
        for _ in range(_ATTEMPTS):
            with self._start(command) as process:
                while process.poll() is None and self._position("killed") < (2, 5):
                    time.sleep(0.001)
                process.send_signal(signal.SIGKILL)
                process.communicate()
            if process.returncode == -signal.SIGKILL:
                passes, blocks = self._position("killed")
                done = count(blocks, "block")
                self._console.say(f"  ... killed (SIGKILL) in pass {passes + 1}, after {done}")
                self._console.say()
                return passes + 1
            self._console.say("  ... it ended before it could be killed; trying again")
            shutil.rmtree(self._folder / "killed")
        raise typer.Exit(1)

    def _position(self, run: str) -> tuple[int, int]:
        """Return the passes and blocks done, according to the newest commit of a run."""
        for manifest in sorted(
            (self._folder / run / "checkpoint").glob("[0-9]*/manifest.json"), reverse=True
        ):
            try:
                commit = json_module.loads(manifest.read_bytes())
            except FileNotFoundError:  # the run has deleted it meanwhile
                continue
            return commit["passes_done"], commit["blocks_done"]
        return 0, 0
