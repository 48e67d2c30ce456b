"""Compiled code stays inside its arrays: seen by Numba's check, and by pages that cannot be touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(*words: object, **environment: object) -> None:
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("what", "side"),
    [
        ("parser", "after"), ("parser", "before"), ("engine", "after"),
        *(pytest.param(what, side, marks=pytest.mark.more)
          for what in ("chains", "everything") for side in ("after", "before")),
    ],
)  # fmt: skip
def test_nothing_beyond_an_array_is_touched(what: str, side: str) -> None:
    run(HERE / "guarded.py", what, side)


@pytest.mark.more
@pytest.mark.parametrize("what", ["parser", "chains", "everything"])
def test_every_index_is_checked(what: str, tmp_path: Path) -> None:
    run(HERE / "guarded.py", what, "after", NUMBA_BOUNDSCHECK=1, NUMBA_CACHE_DIR=tmp_path)


@pytest.mark.more
@pytest.mark.parametrize("name", ["text", "run"])
def test_every_index_is_checked_on_what_fuzzing_found(name: str, tmp_path: Path) -> None:
    files = sorted((HERE / "corpus" / name).iterdir())
    run(HERE / "replay.py", name, *files, NUMBA_BOUNDSCHECK=1, NUMBA_CACHE_DIR=tmp_path)


@pytest.mark.more
def test_the_parsers_own_tests_with_every_index_checked(tmp_path: Path) -> None:
    files = [HERE.parent / "converters" / f"test_{name}.py" for name in ("text", "numbers", "malformed")]
    words = ("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
    run(*words, *files, NUMBA_BOUNDSCHECK=1, NUMBA_CACHE_DIR=tmp_path)
