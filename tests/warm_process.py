"""Processes for tests, forked from two servers, so that NumPy, Numba and kernels are loaded once.

A server starts when a test first needs it. The warm server has run some commands. The bare server has
imported a part of the standard library alone, for tests of imports, of variables that an import reads, and of
memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path
from typing import Any, NamedTuple

COMMAND_LINE = "from streamsvm_cli.main import run; run()"
WARMING = (
    "fit text --out run", "fit text --out run --dtype float64", "predict run text --out labels",
    "online text --out run",
)  # fmt: skip
HERE = Path(__file__).parent
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ENVIRONMENT = {**os.environ, **ONE_THREAD}  # of servers, whatever the first test to need one has changed
spent = 0.0  # processor seconds of the forks that have ended, which the system counts for their server alone
kept: dict[str, Any] = {}  # modules of a server


class Ended(NamedTuple):
    """How a process ended: its exit code, which is negative if a signal ended it, and what it printed."""

    code: int
    out: str
    err: str


class Process:
    """A process that runs the command line or other `code`; it is killed if a ``with`` leaves it.

    Its standard streams are the descriptors `files`; a terminal as input is all three, and sends it Ctrl-C.
    Until it has ended, its server starts no other.
    """

    def __init__(
        self, *words: object, files: tuple[int, int, int], cwd: Path = Path(), code: str = COMMAND_LINE,
        bare: bool = False, **env: object,
    ) -> None:  # fmt: skip
        request = {"argv": ["streamsvm", *map(str, words)], "code": code, "cwd": str(cwd.absolute())}
        request["env"] = {**os.environ, **{name: str(value) for name, value in env.items()}}
        self._server, self.code = server(bare), None
        socket.send_fds(self._server, [json.dumps(request).encode()], files)
        answer = self._server.recv(99)
        assert answer, "the server has ended: see what it wrote to standard error"
        self.pid = int(answer)

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        global spent
        self.code, seconds = json.loads(self._server.recv(99))
        spent += seconds
        return self.code

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()


def run(*words: object, input: bytes = b"", stdout: int | None = None, **more: Any) -> Ended:
    """Run a process to its end; it reads `input` from a pipe."""
    source, sink = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = source, out.fileno() if stdout is None else stdout, err.fileno()
        with Process(*words, files=files, **more) as process:
            os.close(source)
            with contextlib.suppress(BrokenPipeError), os.fdopen(sink, "wb") as file:
                file.write(input)
            code = process.wait()
        return Ended(code, *(os.pread(file.fileno(), 2**24, 0).decode() for file in (out, err)))


@functools.cache
def server(bare: bool) -> socket.socket:
    """Start a server, and return the socket for requests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, __file__, "bare" if bare else "warm"]
    with theirs:
        started = subprocess.Popen(command, stdin=theirs, env=ENVIRONMENT, cwd=HERE, start_new_session=True)
    atexit.register(lambda: (ours.close(), started.wait()))
    return ours


def serve(requests: socket.socket) -> dict[str, Any]:
    """Fork for each request; answer with the fork's number, and with how it ended. In forks, return."""
    for _ in range(1000):  # the system may list a thread for a moment after it was joined
        if len(os.listdir("/proc/self/task")) == 1:
            break
        time.sleep(0.001)
    else:
        raise RuntimeError("threads run, which would not be in the forks")
    while True:
        message, files, _, _ = socket.recv_fds(requests, 2**20, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        for number, file in enumerate(files):
            if child == 0:
                os.dup2(file, number)
            os.close(file)
        if child == 0:
            requests.close()
            return json.loads(message)
        requests.send(str(child).encode())
        _, status, usage = os.wait4(child, 0)
        answer = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime
        requests.send(json.dumps(answer).encode())


def become(argv: list[str], code: str, cwd: str, env: dict[str, str]) -> None:
    """Give a fork the arguments, environment and streams of a new process."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if os.isatty(0):
        os.login_tty(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background jobs ignore it
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, buffering, errors = "w" if number else "r", 1 if number == 2 else -1, getattr(sys, name).errors
        stream = os.fdopen(number, mode, buffering, errors=errors, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = argv
    del sys.path[0]  # this folder; as for an installed command, the current folder does not take its place


@atexit.register  # before all others, so that it is called last
def spare_modules() -> None:
    """Let a fork end without taking the modules of its server apart, which would copy most of the memory."""
    for name in kept:
        sys.modules.pop(name, None)


if __name__ == "__main__":
    if sys.argv[1] == "warm":
        from streamsvm_cli.commands import app

        with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
            Path("text").write_text("a 1:1 2:1\nb 1:1 3:1\n" * 8)
            with warnings.catch_warnings(action="ignore"):
                for command in WARMING:
                    app([*command.split(), "--quiet", "--force"], standalone_mode=False)
    kept |= sys.modules
    del kept["__main__"]  # which is another one in a fork
    gc.freeze()
    request = serve(socket.socket(fileno=os.dup(0)))
    become(**request)
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(request["code"], "<string>", "exec"), vars(program))
