"""What all tests share: kernels compiled once, data that the repository does not carry, a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import signal
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer.main
import zarr.storage._local

pytest_plugins = ["costs", "kinds"]

# A first call may compile, and others may need the processor, so the time of an example says nothing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# Typer makes all commands anew whenever one is run, for half of the time that a small one takes.
typer.main.get_command = functools.cache(typer.main.get_command)

# A commit waits for the disk ten times or so. Whether what it promises is there is for tests/crash, whose
# commands run in processes of their own.
os.fsync = lambda handle: None


async def _here(function: Callable, *args: Any, **options: Any) -> Any:
    return function(*args, **options)


# Zarr hands each access to a small file to another thread, which takes longer than the access.
zarr.storage._local.asyncio = types.SimpleNamespace(**{**vars(asyncio), "to_thread": _here})

# Tests write 100,000 small files, whose removal alone takes longer on a disk than the tests in memory.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2**32:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

MANY_FILES = 50  # of tests: a run of fewer may need none of the shared kernels
# Losses and types whose kernels many files need, those first that take longest to compile.
SHARED = [("ww", "float32"), ("cs", "float64"), ("ww", "float64"), ("ovr2", "float64")]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Compile the kernels that many files need, each worker of xdist some of them.

    Otherwise all workers begin with compiling the same ones at once. If they are compiled already, this loads
    them, which takes a moment.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or len({item.path for item in session.items}) < MANY_FILES:
        return
    first = int(worker["workerid"].removeprefix("gw"))
    for loss, dtype in SHARED[first :: worker["workercount"]]:
        # What fails here fails in the tests, too, which say more.
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):
            compile_kernels(loss, dtype)


def compile_kernels(loss: str, dtype: str) -> None:
    """Compile what a training with a loss needs, and for float32 what converting a text needs."""
    from helpers import make_problem, make_store
    from streamsvm_converters import convert

    from streamsvm import fit

    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        if dtype == "float32":
            (folder / "text").write_text("a 1:1\nb 2:1\n")
            store = folder / "a.zarr"
            convert(folder / "text", store)
        else:
            store = make_store(folder / "a.zarr", *make_problem(8, 4, 2))
        # With one block the duals are a matrix, with several they are lists.
        for name, options in (("matrix", {}), ("lists", {"block_rows": 4})):
            fit(store, out=folder / name, passes=2, loss=loss, dtype=dtype, **options)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their length: packed ones hold the time, and processes that share tests must agree."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of LIBSVM files named by STREAMSVM_DATA; tests that need it skip without."""
    folder = os.environ.get("STREAMSVM_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("STREAMSVM_DATA names no folder of data sets")
    return Path(folder)


@pytest.fixture
def disk_path() -> Iterator[Path]:
    """A folder on a disk, where files take space only once they are written, and no memory."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def soon() -> Iterator[None]:
    """Fail instead of waiting for ever, as for a pipe that nobody writes to."""

    def fail(number: int, frame: object) -> None:
        raise AssertionError("it waits for ever")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
