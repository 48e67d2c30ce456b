"""Weights of a commit: what is written of arrays in memory and in files, and what is read back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from streamsvm.base import durable
from streamsvm.errors import RunError
from streamsvm.run.directory import RunDir
from streamsvm.run.manifest import RunPosition, commit, read_commit
from streamsvm.run.segments import HEADER, PAGE_BYTES
from streamsvm.run.sums import write_summed
from streamsvm.run.weights import DenseWeights

SHAPE = (50_000, 16)  # 3.2 MB in float32


def storage_in(path: Path | None, *, average: bool) -> DenseWeights:
    paths = () if path is None else (path,)
    return DenseWeights(SHAPE, np.dtype(np.float32), 1.0, paths, average=average)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("form", ["memory", "files", "files without holes"])
def test_weights_come_back_and_pages_of_zeros_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, average: bool
) -> None:
    if form == "files without holes":
        monkeypatch.setattr(os, "lseek", Mock(side_effect=OSError(errno.EINVAL, "no SEEK_DATA")))
    first, again = (None if form == "memory" else tmp_path / name for name in ("a", "b"))
    storage, run = storage_in(first, average=average), RunDir(tmp_path)
    arrays = [storage.weights.current, *([storage.weights.average_delta] if average else [])]
    rng, expected, position = np.random.default_rng(0), 0, RunPosition()
    for rows, n_bytes in (
        (slice(0, 1), PAGE_BYTES),
        (slice(49_999, 50_000), 3_200_000 % PAGE_BYTES),  # the last page is not a whole one
        (slice(30_000, 30_200), 4 * PAGE_BYTES),  # successive pages
        (slice(30_100, 30_101), -8 * HEADER),  # in a segment that is there
    ):
        for array in arrays:
            array[rows] = rng.normal(size=array[rows].shape)
            expected += n_bytes + 8 * HEADER
        position = commit(run, position, storage)
        path = run.committed_weights(position.weights_number)
        assert [path] == run.state()
        assert path.stat().st_size == expected
        restored = storage_in(again, average=average)
        restored.restore(path)
        np.testing.assert_array_equal(restored.weights.current, storage.weights.current)
        np.testing.assert_array_equal(restored.weights.average_delta, storage.weights.average_delta)
    assert read_commit(run) == position


def test_a_commit_that_fails_leaves_the_one_before_and_no_part_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, run = storage_in(None, average=False), RunDir(tmp_path)
    position, full = commit(run, RunPosition(), storage), OSError(errno.ENOSPC, "full")
    monkeypatch.setattr(durable, "sync_dir", Mock(side_effect=[None, full]))  # the manifest is in its place
    with pytest.raises(OSError, match="full"):
        commit(run, position, storage)
    expected, files = read_commit(run), run.state()
    assert expected.weights_number == 2
    storage.weights.current[:] = 1
    monkeypatch.setattr("google_crc32c.extend", Mock(side_effect=full))
    with pytest.raises(OSError, match="full"):
        commit(run, position, storage)
    monkeypatch.undo()
    assert (read_commit(run), run.state()) == (expected, files)


def test_files_of_weights_are_restored_only_if_the_disk_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_in(tmp_path / "w", average=False)
    storage.weights.current[7] = 1
    n_bytes = write_summed(tmp_path / "f", storage.state()).length
    storage = storage_in(tmp_path / "w", average=False)
    monkeypatch.setattr(durable, "free_bytes", lambda path: n_bytes - 1)
    with pytest.raises(RunError, match="w: the disk has"):
        storage.restore(tmp_path / "f")
    assert not storage.weights.current.any()
    monkeypatch.setattr(durable, "free_bytes", lambda path: n_bytes)
    storage.restore(tmp_path / "f")


def test_segments_that_lead_out_of_the_weights_are_refused(tmp_path: Path) -> None:
    bad = [(1, 0, 4), (-1, 0, 4), (0, -4, 4), (0, 800_000, 4), (0, 0, -4), (0, 0, 5), (0, 0, 2**62), (0, 0)]
    for header in bad:
        values = np.ones(4, np.float32)[: 4 * (len(header) == HEADER)]
        write_summed(tmp_path / "f", (np.array(header), values))
        with pytest.raises(RunError, match="f is damaged: its numbers are not valid"):
            storage_in(None, average=False).restore(tmp_path / "f")
