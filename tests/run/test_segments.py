"""Weights of a commit: what is written of arrays in memory and in files, and what is read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.errors import RunError
from streamsvm.run import segments
from streamsvm.run.directory import RunDir
from streamsvm.run.manifest import RunPosition, commit, read_commit
from streamsvm.run.segments import HEADER
from streamsvm.run.sums import write_summed
from streamsvm.run.weights import DenseWeights

SHAPE = (50_000, 16)  # 3.2 MB in float32


def storage_in(folder: Path | None, *, average: bool) -> DenseWeights:
    paths = () if folder is None else (folder / "w",)
    return DenseWeights(SHAPE, np.dtype(np.float32), 1.0, paths, average=average)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("in_files", [False, True])
def test_weights_come_back_and_zeros_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_files: bool, average: bool
) -> None:
    step = 2**16
    monkeypatch.setattr(segments, "SEGMENT_BYTES", step)
    folder, again = ((tmp_path / name if in_files else None) for name in ("a", "b"))
    for each in filter(None, (folder, again)):
        each.mkdir()
    storage, run = storage_in(folder, average=average), RunDir(tmp_path)
    arrays = [storage.weights.current, *([storage.weights.average_delta] if average else [])]
    rng = np.random.default_rng(0)
    position, touched = RunPosition(), 0
    for at in (0, 49_999, 30_000):
        for array in arrays:
            array[at] = rng.normal(size=16)
            touched += 1
        position = commit(run, position, storage)
        path = run.committed_weights(position.weights_number)
        assert [path] == run.state()
        last = SHAPE[0] * SHAPE[1] * 4 % step
        assert path.stat().st_size <= touched * (step + 8 * HEADER)
        assert path.stat().st_size >= touched * (last + 8 * HEADER)
        restored = storage_in(again, average=average)
        restored.restore(path)
        np.testing.assert_array_equal(restored.weights.current, storage.weights.current)
        np.testing.assert_array_equal(restored.weights.average_delta, storage.weights.average_delta)
    assert read_commit(run) == position


def test_segments_that_lead_out_of_the_weights_are_refused(tmp_path: Path) -> None:
    size = SHAPE[0] * SHAPE[1]
    for number, begin, n in (
        (1, 0, 4),
        (-1, 0, 4),
        (0, -4, 4),
        (0, size, 4),
        (0, 0, -4),
        (0, 0, 5),
        (0, 0, 2**62),
    ):
        write_summed(tmp_path / "f", (np.array([number, begin, n]), np.ones(4, np.float32)))
        with pytest.raises(RunError, match="f is damaged: impossible numbers"):
            storage_in(None, average=False).restore(tmp_path / "f")
    write_summed(tmp_path / "f", (np.array([0, 0]),))
    with pytest.raises(RunError, match="f is damaged: impossible numbers"):
        storage_in(None, average=False).restore(tmp_path / "f")
