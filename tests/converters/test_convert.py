"""Options of a conversion, its files, and the files that a failed or killed one leaves behind."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from stored_rows import lines_of
from streamsvm_converters import convert

from streamsvm.base.durable import temporary
from streamsvm.errors import InputError, PlanError, SettingsError, StoreError
from streamsvm.store import Contents, StoreWriter, open_store

TEXT = "1 1:1 3:2\n-1 2:1\n1 1:3\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "data.svm"
    path.write_text(TEXT)
    return path


def files(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- like ------------------------------------------------------------------------------------------


def test_like(text: Path, tmp_path: Path) -> None:
    convert([text], tmp_path / "train.zarr")
    (tmp_path / "test.svm").write_text("1 3:1 4:1 1000000000000:1\n1 1:1 4:0\n")
    report = convert(tmp_path / "test.svm", tmp_path / "test.h5", like=tmp_path / "train.zarr", shuffle=False)
    assert (report.d, report.n_classes, report.index_base) == (3, 2, 1)
    assert (report.unseen_features, report.unseen_labels, report.explicit_zeros) == (3, 0, 0)
    assert lines_of(tmp_path / "test.h5") == ["1 3:1.0", "1 1:1.0"]
    with open_store(tmp_path / "test.h5") as store:
        assert list(store.classes) == ["-1", "1"]


def test_like_unseen_label(text: Path, tmp_path: Path) -> None:
    """It is not a malformed row, so on_error does not drop it."""
    convert([text], tmp_path / "train.h5")
    test = tmp_path / "test.svm"
    test.write_text("1 1:1\n 2 1:1\n")
    words = r"line 2, column 2: label '2' is not among the 2 known.*unseen_label='keep'"
    for on_error in ("raise", "skip", "fix"):
        options: dict[str, Any] = {"like": tmp_path / "train.h5", "on_error": on_error, "shuffle": False}
        with pytest.raises(InputError, match=words):
            convert([test], tmp_path / "test.h5", force=True, **options)
        report = convert([test], tmp_path / "test.h5", force=True, unseen_label="keep", **options)
        assert report.unseen_labels == 1
        with open_store(tmp_path / "test.h5") as store:
            assert store.labels(0, 2).tolist() == [1, -1]


def test_like_a_store_without_index_base(text: Path, tmp_path: Path) -> None:
    contents = Contents(n=0, d=3, nnz=0, n_classes=2, dtype="float32", index_base=None)
    with StoreWriter(tmp_path / "train.h5", contents, ["-1", "1"]) as writer:
        writer.finish()
    with pytest.raises(InputError, match="does not record an index base; set index_base="):
        convert([text], tmp_path / "test.h5", like=tmp_path / "train.h5")
    report = convert([text], tmp_path / "test.h5", like=tmp_path / "train.h5", index_base=1)
    assert (report.index_base, report.d, report.nnz) == (1, 3, 4)


# -- the place on disk -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.zarr", "a.h5"])
def test_existing_output(text: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    first = convert([text], out)
    with pytest.raises(StoreError, match=r"already exists.*force=True"):
        convert([text], out, seed=5)
    (tmp_path / "bad").write_text("1 x\n")
    with pytest.raises(InputError):  # the old one outlives a failure to replace it
        convert([tmp_path / "bad"], out, force=True)
    with open_store(out) as store:
        assert store.fingerprint == first.fingerprint
    second = convert([text], out, dtype="float64", force=True)
    with open_store(out) as store:
        assert store.fingerprint == second.fingerprint != first.fingerprint
    assert files(tmp_path) == sorted(["bad", "data.svm", name])


def test_failure_and_interrupt_leave_nothing(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert([text], tmp_path / "a.h5", progress=interrupt)
    monkeypatch.setattr(StoreWriter, "finish", full)
    for name in "a.zarr", "a.h5":
        with pytest.raises(StoreError, match=rf"{name} cannot be written: No space left on device"):
            convert([text], tmp_path / name)
    assert files(tmp_path) == ["data.svm"]


def test_killed_while_replacing(text: Path, tmp_path: Path) -> None:
    """Between setting the old store aside and renaming the new one in: the old one comes back."""
    out, work = tmp_path / "a.zarr", tmp_path / ".a.zarr.01234567.tmp"
    first = convert([text], out)
    work.mkdir()
    out.rename(work / "previous")
    with pytest.raises(StoreError, match="already exists"):
        convert([text], out, seed=1)
    with open_store(out) as store:
        assert store.fingerprint == first.fingerprint
    assert not work.exists()
    # After the renaming, but before the old store was deleted: the new one stays.
    work.mkdir()
    out.rename(work / "previous")
    second = convert([text], tmp_path / "b.zarr", dtype="float64")
    (tmp_path / "b.zarr").rename(out)
    with pytest.raises(StoreError, match="already exists"):
        convert([text], out)
    with open_store(out) as store:
        assert store.fingerprint == second.fingerprint
    assert not work.exists()


def test_what_others_have_beside_the_store_stays(text: Path, tmp_path: Path) -> None:
    """A link is not followed, and the folder of another process that lives is not deleted."""
    (tmp_path / "elsewhere/previous").mkdir(parents=True)
    (tmp_path / ".a.h5.01234567.tmp").symlink_to(tmp_path / "elsewhere")
    with temporary(tmp_path / "a.h5", folder=True) as work:
        (work / "previous").mkdir()
        convert([text], tmp_path / "a.h5")
        assert (work / "previous").exists()
    assert files(tmp_path) == [".a.h5.01234567.tmp", "a.h5", "data.svm", "elsewhere"]
    assert files(tmp_path / "elsewhere") == ["previous"]


def test_a_store_made_meanwhile_is_not_replaced(text: Path, tmp_path: Path) -> None:
    def make(stage: str, *_: object) -> None:
        if stage == "write" and not out.exists():
            convert([text], out, seed=2)

    out = tmp_path / "a.zarr"
    with pytest.raises(StoreError, match="already exists"):
        convert([text], out, seed=1, progress=make)
    with open_store(out) as store:
        assert store.meta["shuffle_seed"] == 2


# The text, the output, options, and what the error says.
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    (TEXT, "missing/a.h5", {}, "missing does not exist"),
    (TEXT, "data.svm/a.h5", {}, "both input and output|does not exist"),
    (TEXT, "data.svm", {}, "data.svm"),
    (TEXT, "a.txt", {}, "a.txt"),
    (TEXT, "folder.zarr", {}, "is a folder but not a Zarr store"),
    (TEXT, "a.h5", {"dtype": "int8"}, "int8"),
    (TEXT, "a.h5", {"dtype": "float16"}, "dtype float16 is only for dense, mostly"),
    (TEXT, "a.h5", {"on_error": "ignore"}, "ignore"),
    (TEXT, "a.h5", {"unseen_label": "drop"}, "drop"),
    (TEXT, "a.h5", {"index_base": 2}, "2"),
    (TEXT, "a.h5", {"codec": "lzo"}, "lzo"),
    ("1 0:1\n", "a.h5", {"like": "train.h5"}, "line 1, column 3: '0:1' has index 0"),
    ("1 1:1\n", "a.h5", {"like": "train.h5", "index_base": 0}, "an index base of 0 contradicts"),
    ("1 1:1\n", "a.h5", {"like": "train.h5", "n_features": 5}, "n_features=5 contradicts"),
]


def test_refusals(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.zarr").mkdir()
    convert([text], "train.h5")
    for content, out, options, message in REFUSED:
        text.write_text(content)
        with pytest.raises((InputError, StoreError, SettingsError, ValueError), match=message):
            convert(["data.svm"], out, force=True, **options)
        assert files(tmp_path) == ["data.svm", "folder.zarr", "train.h5"]
        assert text.read_text() == content


def test_memory_too_small_names_the_memory_it_needs(text: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="memory=33_554_432"):
        convert([text], tmp_path / "a.h5", memory=10**6)
    assert convert([text], tmp_path / "a.h5", memory=33554432).n == 3
