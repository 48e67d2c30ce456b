"""A warm process that forks for each command, and the data that the commands work on."""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import syscalls
from tracer import Plan

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell has what it starts in the background ignore Ctrl-C, and the commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    code : int or str
        Exit code; negative: the signal that ended it; "hangs".
    out, err : str
    count : int or None
        Instants counted, up to the one struck.
    what : str or None
        The instant that was struck.
    stack : list of str
        The functions that it was in, as "file.function".
    seen : list of str
        When system calls were watched, those that were counted: kind and path.
    """

    code: int | str
    out: str
    err: str
    count: int | None = None
    what: str | None = None
    stack: list[str] = dataclasses.field(default_factory=list)
    seen: list[str] = dataclasses.field(default_factory=list)


class Launcher:
    """Runs commands in forks of one warm process; see launcher.py."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("launcher.py")), "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._server.stdout.readline() == "ready\n"

    def __call__(
        self,
        *argv: object,
        cwd: Path,
        at: int | None = None,
        sent: int = signal.SIGKILL,
        lose: bool = False,
        count: bool = True,
        trace: Plan | None = None,
        user: int | None = None,
    ) -> Ended:
        """Run a command; strike with the signal `sent` at instant `at`.

        With `trace`, its system calls are watched instead, as the plan says; with `user`, it runs as the
        user of that number.
        """
        request: dict[str, Any] = {
            "argv": list(map(str, argv)), "cwd": str(cwd), "at": at,
            "signal": int(sent), "lose": lose, "count": count, "user": user,
            "trace": None if trace is None else dataclasses.asdict(trace),
        }  # fmt: skip
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return Ended(**json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        self._server.communicate()


@pytest.fixture
def tmp_path(disk_path: Path) -> Path:
    """On the disk, since files in memory count for limits of memory, and cannot be lost."""
    return disk_path


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    launched = Launcher()
    yield launched
    launched.close()


@pytest.fixture(scope="session")
def quick_folders() -> Iterator[Path]:
    """Where folders in memory can be made, on which fsync costs nothing; on the disk if there is no such."""
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="streamsvm-test-", dir=where) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def quick_path(quick_folders: Path) -> Iterator[Path]:
    """Like tmp_path, but quick, and gone after the test."""
    folder = Path(tempfile.mkdtemp(dir=quick_folders))
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def traced(launcher: Launcher) -> Launcher:
    """The launcher, where system calls can be watched."""
    if not syscalls.available():
        pytest.skip("needs seccomp's user notification, on Linux x86-64")
    return launcher


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packaged digits as LIBSVM text: train and test."""
    folder = tmp_path_factory.mktemp("digits")
    for name in ("train", "test"):
        packed = resources.files("streamsvm_cli").joinpath("digits", f"digits.{name}.xz").read_bytes()
        (folder / name).write_bytes(lzma.decompress(packed))
    return folder


@pytest.fixture(scope="session")
def inputs(digits: Path, launcher: Launcher, quick_folders: Path) -> Path:
    """A folder with text and stores of it: text, s.zarr and s.h5."""
    folder = quick_folders / "inputs"
    folder.mkdir()
    shutil.copyfile(digits / "train", folder / "text")
    for name in ("s.zarr", "s.h5"):
        assert launcher("convert", "text", "--out", name, cwd=folder, count=False).code == 0
    return folder
