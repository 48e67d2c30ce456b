"""Compiled code on disk: its keys, what a power cut leaves of it, and where nothing can be written."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import streamsvm

pytestmark = pytest.mark.engine

ROOT = Path(streamsvm.__file__).parents[1]
CODE = """
from streamsvm.kernels.jit import kernel

@kernel
def triple(x):
    return 3 * x
"""
USE = """
from small import code
print(code.triple(14), len(code.triple.stats.cache_hits))
"""
NOT_CACHED = "compiled code cannot be cached"
DROP_FROM_BOUNDING_SET, CAP_DAC_OVERRIDE = 24, 1


def bound_by_permissions() -> None:
    """Make permission bits apply to root too: in a child process, before the program begins."""
    ctypes.CDLL(None).prctl(DROP_FROM_BOUNDING_SET, CAP_DAC_OVERRIDE)


def python(*words: object, cwd: Path, before: Callable[[], None] | None = None, **env: object):
    """Run Python on a copy of our packages, without the cache folders of the environment."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, preexec_fn=before,
        env=kept | {"PYTHONDONTWRITEBYTECODE": "1", **{name: str(text) for name, text in env.items()}},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def use(folder: Path, cache: Path, program: str = USE, warning: str = "", **more: Any) -> list[str]:
    """Run the kernel in a process of its own: its result, and the entries found in the cache."""
    done = python("-c", program, cwd=folder, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=cache, **more)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("StreamsvmWarning") == bool(warning), done.stderr
    assert warning in done.stderr
    return done.stdout.split()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with a package of one kernel."""
    (tmp_path / "code/small").mkdir(parents=True)
    (tmp_path / "code/small/__init__.py").touch()
    (tmp_path / "code/small/code.py").write_text(CODE)
    return tmp_path / "code"


# -- free variables --------------------------------------------------------------------------------

FAMILY = """
from streamsvm.kernels.jit import inlined, kernel

def make(name, step):
    def run(x):
        return step(x) + 1
    return kernel(run, name=name)

@inlined
def triple(x):
    return 3 * x

@inlined
def square(x):
    return x * x

tripled, squared = make({first!r}, triple), make({second!r}, square)
"""
USE_FAMILY = """
from small import code
print(code.tripled(5), code.squared(5), *(len(f.stats.cache_hits) for f in (code.tripled, code.squared)))
"""


def test_kernels_that_differ_in_their_free_variables_have_entries_of_their_own(
    small: Path, tmp_path: Path
) -> None:
    """Even under one name; a second process finds them, and an edit of one compiles them again."""
    code = FAMILY.format(first="tripled", second="tripled")
    edited = code.replace("3 * x", "4 * x")
    for text, found in ((code, "16 26 0 0"), (code, "16 26 1 1"), (edited, "21 26 0 0")):
        (small / "small/code.py").write_text(text)
        assert use(small, tmp_path / "cache", USE_FAMILY) == found.split()


ALLOCATING = """
import numpy as np
from streamsvm.kernels.jit import allocating, kernel

@allocating
def squares(n):
    found = np.empty(n)
    for i in range(n):
        found[i] = i * i
    return found

@kernel
def total(n):
    found, numbers = 0.0, squares(n)
    for i in range(n):
        found += numbers[i]
    return found
"""


def test_a_kernel_that_allocates_by_another_is_loaded_alone(small: Path, tmp_path: Path) -> None:
    """Machine code that calls what is not there would end the process."""
    (small / "small/code.py").write_text(ALLOCATING)
    program = "from small import code; print(code.total(5), len(code.total.stats.cache_hits))"
    for hits in "01":
        assert use(small, tmp_path / "cache", program) == ["30.0", hits]


# -- damage ----------------------------------------------------------------------------------------


def test_a_damaged_entry_is_compiled_again(small: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert use(small, cache) == ["42", "0"]
    for suffix in ("nbi", "nbc"):
        (entry,) = cache.rglob(f"*.{suffix}")
        whole = entry.read_bytes()
        half = len(whole) // 2
        for damaged in (whole[:half], whole[:half] + b"\xa5" * 64 + whole[half + 64 :]):
            entry.write_bytes(damaged)
            assert use(small, cache) == ["42", "0"]
            assert use(small, cache) == ["42", "1"]


def test_an_entry_of_other_code_is_not_taken(small: Path, tmp_path: Path) -> None:
    """As left by processes that compile two functions, or two versions of one, under one name at once."""
    (small / "small/code.py").write_text(CODE.replace("3 * x", "5 * x"))
    assert use(small, tmp_path / "five") == ["70", "0"]
    (small / "small/code.py").write_text(CODE)
    assert use(small, tmp_path / "three") == ["42", "0"]
    (five,), (three,) = ((tmp_path / cache).rglob("*.nbc") for cache in ("five", "three"))
    shutil.copy(five, three)
    assert use(small, tmp_path / "three") == ["42", "0"]


# -- nowhere to write ------------------------------------------------------------------------------


@pytest.fixture
def sealed(small: Path) -> Iterator[Path]:
    """All our packages beside the small one, and an empty home folder; none of them can be written to."""
    names = {"streamsvm": "streamsvm", "cli": "streamsvm_cli", "converters": "streamsvm_converters"}
    for source, name in names.items():
        shutil.copytree(ROOT / source, small / name, ignore=shutil.ignore_patterns("__pycache__"))
    (small / "home").mkdir()
    folders = [small, *(path for path in small.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield small
    for folder in folders:
        folder.chmod(0o755)


def run_sealed(sealed: Path, hits: str, *, cwd: Path) -> str:
    """Run the kernel with these hits of the cache and one warning, which is returned."""
    env = {"HOME": sealed / "home", "PYTHONPATH": sealed}
    done = python("-c", USE, cwd=cwd, before=bound_by_permissions, **env)
    assert (done.returncode, done.stdout.split()) == (0, ["42", hits]), done.stderr
    assert done.stderr.count("StreamsvmWarning") == 1, done.stderr
    return done.stderr


def test_where_nothing_can_be_written_each_start_compiles_with_one_warning(
    sealed: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        said = run_sealed(sealed, "0", cwd=tmp_path)
        assert NOT_CACHED in said
        assert "NUMBA_CACHE_DIR" in said
        assert "locator" not in said


def test_a_disk_that_takes_no_more_ends_nothing(small: Path, tmp_path: Path) -> None:
    full = {"before": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))}
    assert use(small, tmp_path / "cache", warning=NOT_CACHED, **full) == ["42", "0"]


# -- another Numba ---------------------------------------------------------------------------------


def test_with_other_private_names_of_numba_nothing_stale_is_loaded(small: Path, tmp_path: Path) -> None:
    program = f"import numba\nfrom numba.core import caching\ndel caching.Cache._index_key\n{USE}"
    for _ in range(2):
        assert use(small, tmp_path / "cache", program, NOT_CACHED) == ["42", "0"]
