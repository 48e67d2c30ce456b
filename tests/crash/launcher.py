"""Run a streamsvm command that is struck down at a chosen instant.

An instant is a moment before, in the middle of, or after a call that changes a file or a block of the
weights; they are counted, so that "the 123rd" is the same moment each time. Two ways to use it:

    python launcher.py AT -- fit STORE --out RUN ...     one command in this process
    python launcher.py --serve                           JSON requests on stdin, a warm fork for each
"""

from __future__ import annotations

import builtins
import functools
import io
import json
import os
import pickle
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import syscalls
from tracer import Plan, Tracer

PATIENCE = 60  # seconds after which a command hangs

CALLS = ("fsync", "rename", "replace", "mkdir", "unlink", "remove", "rmdir", "truncate")


class Instants:
    """Counts the instants of this process, and strikes at one of them.

    Parameters
    ----------
    at : int or None
        Instant at which to strike.
    sent : int
        Signal to strike with.
    lose : bool
        Also lose what a power cut would: all bytes of files that were never synced.
    report : Path
        Where to write what was struck, or how many instants there were.
    """

    def __init__(self, at: int | None, sent: int, lose: bool, report: Path) -> None:
        self.at, self.sent, self.lose, self.report = at, sent, lose, report
        self.count = 0
        self.lock = threading.RLock()
        self.safe: dict[tuple[int, int], list[int]] = {}  # inode -> handle, bytes that are durable

    def reach(self, what: str, half: Callable[[], object] | None = None) -> None:
        """Count an instant; if it is the one, do `half` of the call and strike."""
        with self.lock:
            self.count += 1
            if self.count - 1 != self.at:
                return
            if self.sent == signal.SIGKILL:  # other signals are survived: the call is yet to be made
                if half is not None:
                    half()
                for handle, size in list(self.safe.values()):
                    os.ftruncate(handle, min(size, os.fstat(handle).st_size))
            self.write_report(what)
            os.kill(os.getpid(), self.sent)

    def write_report(self, what: str | None) -> None:
        # By file descriptor: the functions below count.
        record = {"count": self.count, "what": what, "stack": stack() if what else []}
        handle = os.open(self.report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(handle, json.dumps(record).encode())
        os.close(handle)

    def around(self, owner: Any, name: str) -> None:
        """Make a function of `owner` two instants: before and after."""
        real = getattr(owner, name)

        @functools.wraps(real)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.reach(f"before {name}")
            result = real(*args, **kwargs)
            if name == "fsync":
                self.synced(args[0])
            self.reach(f"after {name}")
            return result

        setattr(owner, name, call)

    def opened(self, file: Any) -> None:
        """Make each write to `file` three instants."""
        if self.lose:
            status = os.fstat(file.fileno())
            key = status.st_dev, status.st_ino
            if key not in self.safe:
                self.safe[key] = [os.dup(file.fileno()), status.st_size]
        real = file.write

        def write(content: Any) -> Any:
            text = isinstance(content, str)
            whole = content if text or memoryview(content).nbytes == 0 else memoryview(content).cast("B")

            def half() -> None:
                real(whole[: len(whole) // 2])
                file.flush()

            self.reach("before write")
            self.reach("half of write", half)
            result = real(content)
            self.reach("after write")
            return result

        file.write = write

    def synced(self, handle: int) -> None:
        status = os.fstat(handle)
        entry = self.safe.get((status.st_dev, status.st_ino))
        if entry is not None:
            entry[1] = status.st_size

    def install(self) -> None:
        for name in CALLS:
            self.around(os, name)
        real_open = builtins.open

        @functools.wraps(real_open)
        def counting_open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            opened = real_open(file, mode, *args, **kwargs)
            if set(mode) & set("wax+") and not isinstance(file, int):
                self.reach("after open")
                self.opened(opened)
            return opened

        builtins.open = io.open = counting_open

        real_sendfile = os.sendfile

        @functools.wraps(real_sendfile)
        def sendfile(to: int, source: int, offset: int, count: int, *args: Any) -> int:
            self.reach("before sendfile")
            half = min(count, os.fstat(source).st_size) // 2
            self.reach("half of sendfile", lambda: real_sendfile(to, source, offset, half))
            return real_sendfile(to, source, offset, count, *args)

        os.sendfile = sendfile

        import h5py

        self.around(h5py.Dataset, "__setitem__")
        self.around(h5py.File, "flush")
        self.around(h5py.File, "close")

        from streamsvm.training.plain_visits import PlainVisits

        self.around_visit(PlainVisits)

    def around_visit(self, owner: Any) -> None:
        """Make each call of a kernel that moves weights three instants."""
        real_visit = owner._visit

        @functools.wraps(real_visit)
        def visit(training: Any, rows: Any, order: Any, begin: int, end: int, *args: Any) -> Any:
            self.reach("before visit")
            middle = (begin + end) // 2
            self.reach("half of visit", lambda: real_visit(training, rows, order, begin, middle, *args))
            reached = real_visit(training, rows, order, begin, end, *args)
            self.reach("after visit")
            return reached

        owner._visit = visit


def stack() -> list[str]:
    """The functions of streamsvm that some thread is in, as "file.function"."""
    names = set()
    for frame in sys._current_frames().values():
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.startswith("streamsvm"):
                names.add(f"{name.rpartition('.')[2]}.{frame.f_code.co_name}")
            frame = frame.f_back
    return sorted(names)


def run(argv: list[str]) -> int:
    """The command line, as its entry point runs it; returns the exit code."""
    from streamsvm_cli import main

    sys.argv = ["streamsvm", *argv]
    try:
        main.run()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    return code if isinstance(code, int) else int(code is not None)


# -- a warm parent, and a fork for each command ----------------------------------------------------


def serve(folder: Path) -> None:
    """Answer each request line with a line: how the command ended."""
    warm(folder)
    # Threads do not survive a fork.
    assert threading.active_count() == 1, threading.enumerate()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), folder)), flush=True)


def answer(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    report, out, err = (folder / name for name in ("report", "out", "err"))
    report.unlink(missing_ok=True)
    for path in (out, err):
        path.write_bytes(b"")
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        serve_one(request, report, out, err, theirs)
    theirs.close()
    tracer = None
    if request["trace"] is None:
        deadline = time.monotonic() + PATIENCE
        ended = 0
        while not ended and (left := deadline - time.monotonic()) > 0:
            signal.sigtimedwait([signal.SIGCHLD], left)
            ended, status = os.waitpid(child, os.WNOHANG)
    else:
        tracer = Tracer(request["cwd"], Plan(**request["trace"]))
        _, (listener,), _, _ = socket.recv_fds(ours, 1, 1)
        ended = tracer.serve(listener, child, PATIENCE)
        os.close(listener)
        if ended:
            _, status = os.waitpid(child, 0)
        if tracer.plan.record:
            Path(tracer.plan.record).write_bytes(pickle.dumps(list(map(tuple, tracer.events))))
    ours.close()
    if not ended:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    reported = json.loads(report.read_text()) if report.exists() else {}
    if tracer is not None:
        reported = {"count": tracer.count, "what": tracer.what, "seen": tracer.seen}
    return {
        "code": code if ended else "hangs",
        "out": out.read_text(errors="replace"),
        "err": err.read_text(errors="replace"),
        **reported,
    }


def serve_one(request: dict[str, Any], report: Path, out: Path, err: Path, supervisor: socket.socket) -> None:
    code = 99
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.chdir(request["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for path, number in ((out, 1), (err, 2)):
            os.dup2(os.open(path, os.O_WRONLY), number)
        if request["user"] is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        instants = Instants(request["at"], request["signal"], request["lose"], report)
        if request["trace"] is not None:
            tracer = Tracer(request["cwd"], Plan(**request["trace"]))
            socket.send_fds(supervisor, [b"."], [syscalls.listen(tracer.names)])
        elif request["count"]:
            instants.install()
        code = run(request["argv"])
        if request["trace"] is None and request["user"] is None:
            instants.write_report(None)
    finally:
        os._exit(code)


def warm(folder: Path) -> None:
    """Load modules and kernels; with HDF5, whose library keeps no threads of its own."""
    import streamsvm_converters
    import typer.main
    import zarr

    from streamsvm.data import memory_plan
    from streamsvm.training import fit_plan

    memory_plan.FIRST_BYTES = 2000  # rows that fit are several blocks in the first pass
    typer.main.get_command = functools.cache(typer.main.get_command)  # which every command would make anew

    # Without an average, as if too large for memory: in files, which a crash may leave in any state.
    choices = fit_plan.choices

    def in_files_first(store: Any, spec: Any, *args: Any, **options: Any) -> list[Any]:
        plans = choices(store, spec, *args, **options)
        in_files = [plan for plan in plans if not (plan.weights_in_memory or spec.settings.average)]
        return [*in_files, *plans, *in_files[-1:]]  # the last one is taken whatever the budget

    fit_plan.choices = in_files_first

    assert zarr
    assert streamsvm_converters
    text, store, model = (str(folder / name) for name in ("warm.txt", "warm.h5", "warm"))
    Path(text).write_text("1 1:1 2:1\n2 1:1 3:1\n" * 8)
    commands = [["convert", text, "--out", store, "--force"]]
    for more in (["--loss", "ww"], ["--loss", "cs", "--dtype", "float64"]):
        commands.append(["fit", store, "--out", model, "--force", "--passes", "2", *more])
        commands += [
            ["evaluate", model, store],
            ["predict", model, text, "--out", text + ".labels.txt", "--force"],
        ]
        commands.append(["online", text, "--out", model, "--force", "--transform", "hash=4", *more])
    for command in commands:
        assert run([*command, "--quiet"]) == 0, command


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        scratch = Path(tempfile.mkdtemp())
        try:
            serve(scratch)
        finally:
            shutil.rmtree(scratch)
    else:
        at, _, *command = sys.argv[1:]
        sole = Instants(int(at), signal.SIGKILL, False, Path(os.devnull))
        sole.install()
        sys.exit(run(command))
