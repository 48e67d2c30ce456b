"""Compiled code on disk: its keys, what a power cut leaves of it, and where nothing can be written."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cases import few

import streamsvm
from streamsvm.kernels import jit

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


def make_package(folder: Path) -> Path:
    """A package of one kernel in `folder`."""
    (folder / "small").mkdir(parents=True)
    (folder / "small/__init__.py").touch()
    (folder / "small/code.py").write_text(CODE)
    return folder


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return make_package(tmp_path / "code")


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


@pytest.mark.parametrize("second", few(["squared", "tripled"], "squared"))
def test_kernels_that_differ_in_their_free_variables_have_entries_of_their_own(
    small: Path, tmp_path: Path, second: str
) -> None:
    """Even under one name; and a second process finds them, though Numba's own keys would differ."""
    (small / "small/code.py").write_text(FAMILY.format(first="tripled", second=second))
    for hits in "01":
        done = python("-c", USE_FAMILY, cwd=small, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=tmp_path / "cache")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == ["16", "26", hits, hits]


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
    use = "from small import code; print(code.total(5), len(code.total.stats.cache_hits))"
    for hits in "01":
        done = python("-c", use, cwd=small, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=tmp_path / "cache")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.split() == ["30.0", hits]


def test_an_edit_of_a_free_variable_is_compiled_again(small: Path, tmp_path: Path) -> None:
    code = FAMILY.format(first="tripled", second="squared")
    for text, expected in ((code, "16"), (code.replace("3 * x", "4 * x"), "21")):
        (small / "small/code.py").write_text(text)
        done = python("-c", USE_FAMILY, cwd=small, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=tmp_path / "cache")
        assert done.stdout.split() == [expected, "26", "0", "0"], done.stderr


def test_an_inlined_function_is_for_compiled_code_alone() -> None:
    def triple(x):
        return 3 * x

    triple = jit.inlined(triple)

    def use(x):
        return triple(x) + 1

    assert jit.kernel(use, name="use")(2) == 7
    with pytest.raises(TypeError):
        triple(2)


def test_a_kernel_with_free_variables_needs_a_name() -> None:
    step = abs

    def run(x):
        return step(x)

    with pytest.raises(TypeError, match="run has free variables, so it needs a name"):
        jit.kernel(run)


# -- damage ----------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "noise in the middle": lambda content: (
        content[: len(content) // 2] + b"\xa5" * 64 + content[len(content) // 2 + 64 :]
    ),
}


def use(folder: Path, cache: Path) -> list[str]:
    """Run the kernel in a process of its own: its result, and the entries found in the cache."""
    done = python("-c", USE, cwd=folder, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=cache)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A package, and a cache with its kernel."""
    folder = tmp_path_factory.mktemp("compiled")
    package, cache = make_package(folder / "code"), folder / "cache"
    assert use(package, cache) == ["42", "0"]
    assert use(package, cache) == ["42", "1"]
    return package, cache


@pytest.mark.parametrize("damage", few(DAMAGES, "half"))
@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_entry_is_compiled_again(
    compiled: tuple[Path, Path], tmp_path: Path, suffix: str, damage: str
) -> None:
    package, cache = compiled[0], shutil.copytree(compiled[1], tmp_path / "cache")
    (entry,) = cache.rglob(f"*.{suffix}")
    entry.write_bytes(DAMAGES[damage](entry.read_bytes()))
    assert use(package, cache) == ["42", "0"]
    assert use(package, cache) == ["42", "1"]


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
    for source, name in (
        ("streamsvm", "streamsvm"),
        ("cli", "streamsvm_cli"),
        ("converters", "streamsvm_converters"),
    ):
        package = Path(sys.modules["streamsvm"].__file__ or "").parents[1] / source
        shutil.copytree(package, small / name, ignore=shutil.ignore_patterns("__pycache__"))
    (small / "home").mkdir()
    folders = [small, *(path for path in small.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    yield small
    for folder in folders:
        folder.chmod(0o755)


def run_sealed(sealed: Path, *words: object, cwd: Path, **env: object):
    env = {"HOME": sealed / "home", "PYTHONPATH": sealed, **env}
    return python(*words, cwd=cwd, before=bound_by_permissions, **env)


def test_without_a_place_of_its_own_compiled_code_goes_to_a_private_temporary_folder(
    sealed: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    for hits in "01":
        done = run_sealed(sealed, "-c", USE, cwd=tmp_path, TMPDIR=temporary)
        assert (done.returncode, done.stdout.split()) == (0, ["42", hits]), done.stderr
        assert done.stderr.count("StreamsvmWarning") == 1, done.stderr
        assert "NUMBA_CACHE_DIR" in done.stderr
    (folder,) = temporary.iterdir()
    assert str(folder) in done.stderr
    assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o700, os.getuid())


@pytest.mark.parametrize("left", few(["folder open to all", "link", "file"], "link"))
def test_a_temporary_folder_that_others_can_write_to_is_not_trusted(
    sealed: Path, tmp_path: Path, left: str
) -> None:
    """Whatever is loaded from a cache is run."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    place = temporary / f"streamsvm-{os.getuid()}"
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    if left == "folder open to all":
        place.mkdir()
        place.chmod(0o777)
    elif left == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.touch()
    done = run_sealed(sealed, "-c", USE, cwd=tmp_path, TMPDIR=temporary)
    assert (done.returncode, done.stdout.split()) == (0, ["42", "0"]), done.stderr
    assert done.stderr.count("StreamsvmWarning") == 1, done.stderr
    assert "each start compiles" in done.stderr
    assert not list((tmp_path / "elsewhere").iterdir())
    assert left != "folder open to all" or not list(place.iterdir())


def test_a_command_without_a_home_says_so_in_one_line_and_makes_no_folder(
    sealed: Path, tmp_path: Path
) -> None:
    """A user whom the system does not know has the home folder "~"."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    done = run_sealed(
        sealed, "-m", "streamsvm_cli.main", "convert", "missing", "--out", "a.zarr",
        cwd=tmp_path / "work", HOME="~", TMPDIR=tmp_path / "tmp",
    )  # fmt: skip
    assert done.returncode == 1
    warning, error = done.stderr.splitlines()
    assert warning.startswith("streamsvm: neither the package's folder nor a home folder")
    assert error.startswith("streamsvm: missing cannot be read")
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize("variable", few(["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"], "NUMBA_CACHE_DIR"))
def test_a_cache_folder_that_is_named_is_used_without_a_word(
    sealed: Path, tmp_path: Path, variable: str
) -> None:
    (tmp_path / "tmp").mkdir()
    cache = tmp_path / "cache"
    for hits in "01":
        done = run_sealed(sealed, "-c", USE, cwd=tmp_path, TMPDIR=tmp_path / "tmp", **{variable: cache})
        assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["42", hits], "")
    assert list(cache.rglob("*.nbc"))
    assert not list((tmp_path / "tmp").iterdir())


def test_where_nothing_can_be_written_each_start_compiles_with_one_warning(
    sealed: Path, tmp_path: Path
) -> None:
    """As on a read-only file system, without a folder for temporary files."""
    program = (
        "import tempfile\n"
        "def none():\n"
        "    raise FileNotFoundError('no usable temporary directory')\n"
        "tempfile.gettempdir = none\n"
    )
    for hits in "00":
        done = run_sealed(sealed, "-c", program + USE, cwd=sealed)
        assert (done.returncode, done.stdout.split()) == (0, ["42", hits]), done.stderr
        assert done.stderr.count("StreamsvmWarning") == 1, done.stderr
        assert "compiled code cannot be kept" in done.stderr
        assert "NUMBA_CACHE_DIR" in done.stderr
        assert "locator" not in done.stderr


def test_a_disk_that_takes_no_more_ends_nothing(small: Path, tmp_path: Path) -> None:
    done = python(
        "-c", USE, cwd=small, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=tmp_path / "cache",
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["42", "0"]), done.stderr
    assert done.stderr.count("StreamsvmWarning: compiled code cannot be kept") == 1


# -- another Numba ---------------------------------------------------------------------------------


def test_with_other_private_names_of_numba_nothing_stale_is_loaded(small: Path, tmp_path: Path) -> None:
    program = f"import numba\nfrom numba.core import caching\ndel caching.Cache._index_key\n{USE}"
    for hits in "00":
        done = python("-c", program, cwd=small, PYTHONPATH=ROOT, NUMBA_CACHE_DIR=tmp_path / "cache")
        assert (done.returncode, done.stdout.split()) == (0, ["42", hits]), done.stderr
        assert done.stderr.count("StreamsvmWarning: compiled code cannot be kept") == 1
