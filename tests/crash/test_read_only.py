"""Folders and files that may only be read: reading works and leaves no trace, writing is refused in words."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from trials import convert, fit, one_line, parts

import streamsvm

NOBODY = 65534


def seal(folder: Path) -> None:
    """Take the right to write from a folder and all below it, as a read-only medium does."""
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        os.chmod(path, (mode | 0o444 | (0o111 if path.is_dir() else 0)) & ~0o222)


def is_open_to_all(path: Path) -> bool:
    """Whether anyone may read `path`: an environment in a private folder is closed to others."""
    return all(os.stat(each).st_mode & 0o001 for each in path.resolve().parents)


@pytest.fixture
def sealed(launcher, inputs, quick_path):
    """A function that runs a command as one who may not write; a folder with all there is to read."""
    if os.geteuid() == 0 and not all(is_open_to_all(Path(each.__file__)) for each in (pytest, streamsvm)):
        pytest.skip("root may write anywhere, and others may not read this environment")
    shutil.copytree(inputs, quick_path / "in")
    assert launcher(*fit("in/s.zarr"), cwd=quick_path, count=False).code == 0
    seal(quick_path)
    user = NOBODY if os.geteuid() == 0 else None

    def run(*words: object):
        return launcher(*words, cwd=quick_path, count=False, user=user)

    yield run
    for folder in [quick_path, *(path for path in quick_path.rglob("*") if path.is_dir())]:
        os.chmod(folder, 0o755)


def test_reading_works_and_writes_nothing(sealed, quick_path) -> None:
    everything = tuple(path.name for path in quick_path.iterdir())
    before = parts(quick_path, everything)
    for words in (
        ("info", "in/s.zarr", "--verify"), ("info", "in/s.h5", "--verify"), ("info", "run", "--verify"),
        ("evaluate", "run", "in/s.zarr"), ("evaluate", "run/model", "in/s.h5"), ("predict", "run", "in/text"),
    ):  # fmt: skip
        ended = sealed(*words, "--quiet")
        assert (ended.code, ended.err) == (0, ""), (words, ended)
    assert parts(quick_path, everything) == before


def test_writing_is_refused(sealed, quick_path) -> None:
    everything = tuple(path.name for path in quick_path.iterdir())
    before = parts(quick_path, everything)
    for words, what in (
        (convert("out.zarr", text="in/text"), "out.zarr"),
        (convert("out.h5", text="in/text"), "out.h5"),
        (convert("in/s.zarr", "--force", text="in/text"), "s.zarr"),
        (("fit", "in/s.h5", "--out", "new"), "new"),
        (fit("in/s.h5", "--force"), "run"),
        (("resume", "run", "--passes", 3), "run"),
        (("predict", "run", "in/text", "--out", "labels"), "labels"),
        (("online", "in/text", "--out", "stream"), "stream"),
    ):
        ended = sealed(*words)
        one_line(ended)
        assert what in ended.err, ended.err
        assert "ermission denied" in ended.err or "is not writable" in ended.err, ended.err
    assert parts(quick_path, everything) == before
