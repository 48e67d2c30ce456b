"""Two processes on one run or one output: the second is refused, and a dead one's lock is nobody's."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cases import few
from tracer import Plan
from trials import convert, fit, one_line, parts

MODEL = ("run/model",)
LONG = ("--passes", 40)  # only the first of them are made before the process is stopped


def start(*words: object, cwd: Path, **more) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "streamsvm_cli.main", *map(str, words)],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,
    )  # fmt: skip


def until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    """Wait for something that `process` brings about; it must not end before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def refused(ended, what: str) -> None:
    one_line(ended)
    assert f"{what} is in use by another process" in ended.err


def test_a_run_in_use(launcher, inputs, quick_path) -> None:
    command = fit(inputs / "s.h5", *LONG)
    commits = quick_path / "run/checkpoint"
    with start(*command, cwd=quick_path) as process:
        until(lambda: commits.exists() and any(p.name.isdecimal() for p in commits.iterdir()), process)
        process.send_signal(signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            before = parts(quick_path, ("run",))
            for other in (("resume", "run"), (*command, "--force"), command):
                refused(launcher(*other, cwd=quick_path, count=False), "the run run")
            assert parts(quick_path, ("run",)) == before
            # Reading is no use in this sense.
            assert launcher("info", "run", cwd=quick_path, count=False).code == 0
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert launcher("resume", "run", cwd=quick_path, count=False).code == 0
    model = parts(quick_path, MODEL)
    assert launcher(*command, "--force", cwd=quick_path, count=False).code == 0
    assert parts(quick_path, MODEL) == model


@pytest.mark.parametrize("store", few(["s.zarr", "s.h5"], "s.zarr"))
def test_an_output_in_use(launcher, inputs, quick_path, store: str) -> None:
    text = (inputs / "text").read_bytes()
    with start(*convert(store, text="-"), cwd=quick_path, stdin=subprocess.PIPE) as process:
        process.stdin.write(text[: len(text) // 2])
        process.stdin.flush()
        until(lambda: (quick_path / f".{store}.partial/lock").exists(), process)
        command = convert(store, text=inputs / "text")
        for other in (command, (*command, "--force")):
            refused(launcher(*other, cwd=quick_path, count=False), store)
        process.kill()
        process.communicate()
    assert launcher(*command, cwd=quick_path, count=False).code == 0
    assert parts(quick_path, (store,)) == parts(inputs, (store,))
    assert [path.name for path in quick_path.iterdir()] == [store]


@pytest.mark.parametrize("error", few([errno.ENOLCK, errno.EOPNOTSUPP], errno.ENOLCK))
def test_a_file_system_without_locks(traced, inputs, quick_path, error: int) -> None:
    """A clear line: without a lock, a second process could not be refused."""
    fitted = fit(inputs / "s.h5")
    assert traced(*fitted, "--out", "done", cwd=quick_path, count=False).code == 0
    for command in (fitted, convert("s.zarr", text=inputs / "text"), ("resume", "done", "--passes", 3)):
        ended = traced(*command, cwd=quick_path, trace=Plan(["lock"], "*lock", at=0, error=error))
        assert ended.what
        one_line(ended)
        assert os.strerror(error) in ended.err
        assert "use a file system with locks" in ended.err
    assert traced(*fitted, cwd=quick_path, count=False).code == 0  # what the refused one left is no obstacle
