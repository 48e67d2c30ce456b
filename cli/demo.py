"""`streamsvm demo`: run the main commands on real data, with a training run that is killed and resumed."""

from __future__ import annotations

import filecmp
import lzma
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

from streamsvm.settings import checks

_MARKER_FILE = ".streamsvm-demo"  # a folder is replaced only if it contains this file
_ATTEMPTS = 10


@command({"dir": Option(checks.PATH, Path("streamsvm-demo"), "Folder to work in.")})
def demo(console: Console, *, dir: Path) -> None:
    """Run all steps on real data, in under a minute.

    The demo converts data, kills and resumes a training run, compares its model with that of an uninterrupted
    run, predicts labels and evaluates the model.
    """
    console.leave()  # the commands show their own progress
    begin = time.perf_counter()
    _prepare(dir)
    console.say("Handwritten digits, 1,797 images of 8 x 8 pixels in 10 classes (UCI, CC BY 4.0).")
    console.say(f"All files are written to {dir}; you can repeat the commands there.")
    console.say()
    _run(console, dir, "convert digits.train --out train.zarr")
    _run(console, dir, "convert digits.test --out test.zarr --like train.zarr --no-shuffle")
    fit = "--passes 5 --block-rows 64 --valid test.zarr --checkpoint-every 1"
    _run(console, dir, f"fit train.zarr --out uninterrupted {fit}")
    _kill(console, dir, f"fit train.zarr --out killed {fit}")
    _run(console, dir, "resume killed")
    same = all(
        filecmp.cmp(path, dir / "killed/model" / path.name, shallow=False)
        for path in (dir / "uninterrupted/model").iterdir()
    )
    console.say(f"The two models are {'byte-identical' if same else 'DIFFERENT'}.")
    console.say()
    _run(console, dir, "predict killed digits.test --out predictions.txt --top-k 3 --scores")
    _run(console, dir, "evaluate killed test.zarr --top-k 3")
    _run(console, dir, "info train.zarr --verify")
    seconds = time.perf_counter() - begin
    console.say(f"Done in {seconds:.1f} s. With your own data:")
    console.say("$ streamsvm fit TRAIN --valid TEST --out RUN")
    console.result({"identical": same, "seconds": seconds})
    if not same:
        raise typer.Exit(1)


def _prepare(folder: Path) -> None:
    from streamsvm.errors import RunError

    if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER_FILE).exists():
        raise RunError(f"{folder} contains other files; choose a new folder with --dir")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARKER_FILE).touch()
    for name in ("digits.train", "digits.test"):
        packed = resources.files("streamsvm_cli").joinpath("digits", name + ".xz").read_bytes()
        (folder / name).write_bytes(lzma.decompress(packed))


def _start(console: Console, folder: Path, command: str) -> subprocess.Popen[str]:
    console.say(f"$ streamsvm {command}")
    words = [sys.executable, "-m", "streamsvm_cli.main", *shlex.split(command)]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)


def _run(console: Console, folder: Path, command: str) -> None:
    with _start(console, folder, command) as process:
        for line in process.stdout or ():
            console.say(f"  {line}".rstrip(), indent=4)
    console.say()
    if process.returncode:
        raise typer.Exit(process.returncode)


def _kill(console: Console, folder: Path, command: str) -> None:
    """Start a training run, and kill it by SIGKILL in its third pass."""
    from streamsvm.info import inspect

    for _ in range(_ATTEMPTS):
        with _start(console, folder, command) as process:
            for line in process.stdout or ():
                if line.split()[:1] == ["2"]:
                    time.sleep(0.05)
                    process.kill()
                    break
        if process.returncode == -signal.SIGKILL:
            console.say(f"  ... killed (SIGKILL): {inspect(folder / 'killed')['commits'][0]}")
            console.say()
            return
        console.say("  ... the run ended before it could be killed; trying again")
        shutil.rmtree(folder / "killed")
    raise typer.Exit(1)
