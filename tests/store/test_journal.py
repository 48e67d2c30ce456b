"""Changing an HDF5 file through an overlay and a journal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import open_store
from streamsvm.base import format
from streamsvm.errors import StoreError
from streamsvm.store import journal
from streamsvm.store.journal import Overlay, editing, journal_of, recover

SIZE = 3 * 4096 + 100
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 2 * SIZE), st.binary(max_size=6000)),
        st.tuples(st.just("read"), st.integers(0, 2 * SIZE), st.integers(0, 9000)),
        st.tuples(st.just("grow"), st.integers(0, 3 * SIZE), st.none()),
    ),
    max_size=12,
)


@given(STEPS)
@settings(max_examples=60)
def test_an_overlay_reads_as_a_file_does_and_leaves_it_alone(tmp_path_factory, steps) -> None:
    folder = tmp_path_factory.mktemp("overlay")
    path, plain = folder / "a", folder / "plain"
    content = np.random.default_rng(0).bytes(SIZE)
    path.write_bytes(content)
    plain.write_bytes(content)
    handle = os.open(path, os.O_RDWR)
    overlay = Overlay(path, handle)
    with plain.open("r+b") as file:
        for what, at, more in steps:
            if what == "grow":
                at = max(at, file.seek(0, os.SEEK_END))
                file.truncate(at)
                overlay.truncate(at)
                continue
            file.seek(at)
            overlay.seek(at)
            if what == "write":
                file.write(more)
                overlay.write(more)
            else:
                assert overlay.read(more) == file.read(more)
        assert overlay.seek(0, os.SEEK_END) == file.seek(0, os.SEEK_END)
    assert path.read_bytes() == content
    overlay.commit()
    os.close(handle)
    # What only grew may be missing at the end: HDF5 does not read it.
    assert plain.read_bytes().rstrip(b"\0") == path.read_bytes().rstrip(b"\0")
    assert not journal_of(path).exists()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.h5ad"
    with h5py.File(path, "w") as opened:
        opened["x"] = np.arange(5000)
    return path


def change(path: Path) -> None:
    with editing(path) as overlay, h5py.File(overlay, "r+") as opened:
        opened["x"][:10] = -1
        opened["y"] = np.arange(3000)


def died(path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Change a file in a process that writes so many pieces and then ends."""
    child = os.fork()
    if child == 0:
        real = journal._write
        left = after

        def write(handle: int, content: bytes, at: int) -> None:
            nonlocal left
            if left == 0:
                os._exit(7)
            left -= 1
            real(handle, content, at)

        journal._write = write
        try:
            change(path)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_what_a_dead_process_left_is_undone(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    for after in (0, 1, 3, 6):
        died(file, monkeypatch, after)
        assert journal_of(file).exists()
        assert (file.read_bytes() != before) == (after > 0)
        with pytest.warns(UserWarning, match="another process died while it added columns"):
            recover(file)
        assert file.read_bytes() == before
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            recover(file)  # there is nothing to undo
        died(file, monkeypatch, after)
        change(file)  # undoes it first
        with h5py.File(file) as opened:
            assert opened["x"][:11].tolist() == [-1] * 10 + [10]
            np.testing.assert_array_equal(opened["y"], np.arange(3000))
        file.write_bytes(before)


def test_opening_a_store_undoes_it_and_says_so(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    died(file, monkeypatch, 1)
    with (
        pytest.warns(UserWarning, match="another process died while it added columns"),
        pytest.raises(StoreError),
    ):
        open_store(file)  # no AnnData
    assert file.read_bytes() == before


def test_a_journal_of_another_file_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    died(file, monkeypatch, 0)
    with h5py.File(file, "w") as opened:
        opened["other"] = np.arange(50_000)[::-1]
    now = file.read_bytes()
    with pytest.raises(StoreError, match="belongs to another file"):
        recover(file)
    assert file.read_bytes() == now


def test_a_damaged_journal_is_not_used(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()
    died(file, monkeypatch, 0)
    whole = journal_of(file).read_bytes()
    rng = np.random.default_rng(0)
    for at in rng.integers(len(whole), size=30).tolist():
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << rng.integers(8)
        for content in (spoilt, whole[:at]):
            journal_of(file).write_bytes(content)
            with pytest.raises(StoreError, match="is damaged"):
                recover(file)
            assert file.read_bytes() == before


HUGE = 2**70


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 0, "ranges": [], "file": "other.h5ad"},
        {"size": 0},
        {"size": -1},
        {"size": HUGE},
        {"size": 10**9},
        {"size": 5},
        {"size": 4096.0},
        {"size": True},
        {"ranges": []},
        {"ranges": [["0", 4096]]},
        {"ranges": [[0.0, 4096]]},
        {"ranges": [[-4096, 4096]]},
        {"ranges": [[HUGE, 4096]]},
        {"ranges": [[0, HUGE]]},
        {"ranges": [[0, 4096], [0, 0]]},
        {"ranges": [4096]},
        {"ranges": {}},
        {"file": "other.h5ad"},
        {"journal_version": 2},
        {"sha256": None},
    ],
)
def test_a_forged_journal_changes_nothing(
    file: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = file.read_bytes()
    died(file, monkeypatch, 0)
    line, _, payload = journal_of(file).read_bytes().partition(b"\n")
    header = json.loads(line)
    del header["checksum"]
    if changes.get("ranges") == []:
        payload = b""
    changes = {"sha256": hashlib.sha256(payload).hexdigest(), **changes}
    forged = json.dumps(format.sealed({**header, **changes})).encode() + b"\n" + payload
    journal_of(file).write_bytes(forged)
    with pytest.raises(StoreError, match=r"is damaged|belongs to another file") as raised:
        open_store(file)
    assert "\n" not in str(raised.value)
    assert file.read_bytes() == before
    assert journal_of(file).read_bytes() == forged


def test_a_process_at_work_is_not_disturbed(file: Path) -> None:
    with editing(file) as overlay:
        shutil.copyfile(file, journal_of(file))  # as it is there for a moment
        with pytest.raises(StoreError, match="is open elsewhere"):
            recover(file)
        journal_of(file).unlink()
        assert overlay.seekable()
