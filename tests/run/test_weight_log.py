"""The log of changed weights: it holds what changed, costs no more, and gives the weights back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.base.format import LOG_HEADER, WEIGHTS_MAGIC
from streamsvm.errors import RunError
from streamsvm.kernels.frame import Problem
from streamsvm.kernels.weights import Weights, sum_of_squares
from streamsvm.run.append_log import AppendLog, LogEnd, check, padded
from streamsvm.run.checkpoint import RunPosition, commit, prune
from streamsvm.run.directory import RunDir
from streamsvm.run.sparse_weights import SparseWeights
from streamsvm.run.weight_log import append_weights, restore

HEADER = LOG_HEADER.size


class Held:
    """A storage that only holds weights."""

    sparse_rows = None

    def __init__(self, weights: Weights) -> None:
        self.weights = self.in_use = weights


def new_weights(n_features: int, columns: int, dtype: str, average: bool) -> Weights:
    now = np.zeros((n_features, columns), dtype)
    return Weights.create(now, np.zeros_like(now) if average else now[:0], 1.0)


def change(weights: Weights, rng: np.random.Generator, n: int) -> set[tuple[int, int]]:
    """Change `n` weights, and mark them; returns the features and groups concerned."""
    features, columns = (rng.integers(size, size=n) for size in weights.current.shape)
    touched = set()
    for f, c in zip(features.tolist(), columns.tolist(), strict=True):
        for array in (weights.current, weights.average_delta):
            if len(array):
                array[f, c] = rng.normal()
        weights.dirty[f, 0] |= np.uint64(1 << (c >> weights.group_bits))
        touched.add((f, c >> weights.group_bits))
    return touched


@pytest.mark.parametrize("columns", [16, 64, 1024, 1040, 17008])
@pytest.mark.parametrize(("dtype", "average"), [("float32", False), ("float64", True)])
def test_weights_come_back_and_only_changes_are_written(
    tmp_path: Path, columns: int, dtype: str, average: bool
) -> None:
    rng = np.random.default_rng(columns)
    weights = new_weights(50, columns, dtype, average)
    log, path = AppendLog(tmp_path / "log", LogEnd()), tmp_path / "log"
    group = 1 << weights.group_bits
    assert columns <= 64 * group
    for n in (40, 3, 0, 200):
        before = log.end.length
        touched = change(weights, rng, n)
        append_weights(log, weights, None)
        values = sum(min(columns, (g + 1) * group) - g * group for _, g in touched)
        cost = values * weights.current.itemsize * (1 + average) + 16 * len({f for f, _ in touched})
        parts = (log.end.length - before - cost) / HEADER
        assert parts == round(parts)
        assert (n > 0) <= parts <= -(-values // 2**18) + 1
        assert not weights.dirty[:, 0].any()
        log.flush()
        assert path.stat().st_size == log.end.length
    log.close()
    found = new_weights(50, columns, dtype, average)
    assert check(path, log.end.length) == log.end
    restore(path, log.end.length, Held(found))
    np.testing.assert_array_equal(found.current, weights.current)
    np.testing.assert_array_equal(found.average_delta, weights.average_delta)
    np.testing.assert_array_equal(found.dirty, weights.dirty)


def test_only_the_committed_part_is_restored(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, path = new_weights(50, 64, "float32", True), tmp_path / "log"
    change(weights, rng, 30)
    with AppendLog(path, LogEnd()) as log:
        append_weights(log, weights, None)
    end, expected = log.end, weights.current.copy()
    with path.open("ab") as file:
        file.write(b"half a part")
    change(weights, rng, 5)
    with AppendLog(path, end) as log:
        append_weights(log, weights, None)
    first, both = (new_weights(50, 64, "float32", True) for _ in range(2))
    restore(path, end.length, Held(first))
    restore(path, log.end.length, Held(both))
    np.testing.assert_array_equal(first.current, expected)
    np.testing.assert_array_equal(both.current, weights.current)


def test_groups_that_lead_out_of_the_weights_are_refused(tmp_path: Path) -> None:
    for feature, group, n in ((50, 1, 16), (-1, 1, 16), (3, 1, 15), (3, 3, 16), (3, 16, 0)):
        with AppendLog(tmp_path / "log", LogEnd()) as log:
            log.append(WEIGHTS_MAGIC, (1, n, 0), [np.array([feature]), np.array([group]), np.ones(n, "f4")])
        with pytest.raises(RunError, match="log is damaged: impossible numbers in the part"):
            restore(log.path, log.end.length, Held(new_weights(50, 64, "float32", False)))


def test_commits_cost_what_changed_and_keep_the_log_short(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, run = new_weights(600, 64, "float32", False), RunDir(tmp_path)
    position = RunPosition()
    whole = weights.current.nbytes
    change(weights, rng, 50_000)  # all groups of columns
    position, size = commit(run, position, Held(weights))
    assert size > whole
    written, numbers = [], []
    for _ in range(200):
        change(weights, rng, 20)
        position, size = commit(run, position, Held(weights))
        written.append(size)
        numbers.append(position.weights_number)
        assert position.weights.length < 2.6 * whole
        assert len(list(tmp_path.glob("changes-*.bin"))) <= 2
    assert np.median(written) <= 20 * (64 + 16) + HEADER
    assert sum(written) < 200 * (20 * (64 + 16) + HEADER) + whole * 1.3 * numbers[-1]
    found = new_weights(600, 64, "float32", False)
    restore(run.weight_log(position.weights_number), position.weights.length, Held(found))
    np.testing.assert_array_equal(found.current, weights.current)
    prune(run, ())
    assert run.weight_log(position.weights_number).exists()


@pytest.mark.parametrize("average", [False, True])
def test_commits_of_lists_cost_what_changed(tmp_path: Path, average: bool) -> None:
    """An entry is more than its weight: a log of nothing but entries must not look full of old ones."""
    n_lists, n_classes = 200, 40
    storage = SparseWeights(n_lists, 256, np.dtype(np.float32), 1.0, average=average)
    width = 2 + average
    storage.reserve(n_lists * 48 * width)
    rows = storage.sparse_rows
    rows.extents[:] = [(f * 48 * width, n_classes, 48) for f in range(n_lists)]
    rows.used[0] = n_lists * 48 * width
    rows.classes[: rows.used[0]] = np.tile(np.arange(48 * width), n_lists)
    rows.dirty[:] = 1
    run, position = RunDir(tmp_path), RunPosition()
    position, whole = commit(run, position, storage)
    one = HEADER + 16 + padded(n_classes * (2 + average) * 4)
    for number in range(100):
        rows.dirty[number] = 1
        position, size = commit(run, position, storage)
        assert size == one
    assert position.weights_number == 1
    assert position.weights.length == whole + 100 * one


@pytest.mark.parametrize("average", [False, True])
def test_unmarked_weights_are_written_whole(tmp_path: Path, average: bool) -> None:
    rng = np.random.default_rng(0)
    marked, run = new_weights(50, 64, "float32", average), RunDir(tmp_path)
    weights = marked._replace(dirty=np.zeros((0, 2), np.uint64))
    position = RunPosition()
    for number in (1, 2, 3):
        change(marked, rng, 7)  # the same arrays
        position, _ = commit(run, position, Held(weights))
        assert position.weights_number == number
        found = new_weights(50, 64, "float32", average)._replace(dirty=weights.dirty)
        restore(run.weight_log(number), position.weights.length, Held(found))
        np.testing.assert_array_equal(found.current, marked.current)
        np.testing.assert_array_equal(found.average_delta, marked.average_delta)
        sum_of_squares(found, 0.0, None, Problem(found.current.shape[1], 1.0), norm2 := np.zeros(1))
        assert norm2[0] == pytest.approx((marked.current.astype(float) ** 2).sum())


@pytest.mark.parametrize("marked", [True, False])
def test_after_a_commit_that_failed_the_next_begins_a_new_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    """Wherever it fails: the commit before is unharmed, and the next holds all weights."""
    rng = np.random.default_rng(0)
    weights, run = new_weights(200, 64, "float32", True), RunDir(tmp_path)
    if not marked:
        weights = weights._replace(dirty=np.zeros((0, 2), np.uint64))
    marks = weights if marked else new_weights(200, 64, "float32", True)

    def move(n: int) -> None:
        weights.current[rng.integers(200, size=n), rng.integers(64, size=n)] = rng.normal(size=n)
        if marked:
            marks.dirty[weights.current.any(axis=1), 0] |= np.uint64(15)

    def restored(position: RunPosition) -> np.ndarray:
        found = new_weights(200, 64, "float32", True)
        log = run.weight_log(position.weights_number)
        assert check(log, position.weights.length) == position.weights
        restore(log, position.weights.length, Held(found))
        return found.current

    move(1000)
    position, _ = commit(run, RunPosition(), Held(weights))
    for step in ("streamsvm.run.checkpoint.AppendLog.sync", "os.rename", "streamsvm.run.checkpoint.prune"):
        before, expected = position, weights.current.copy()
        move(5)

        def fail(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(step, fail)
            with pytest.raises(OSError, match="No space"):
                commit(run, position, Held(weights))
        np.testing.assert_array_equal(restored(before), expected)
        move(5)
        position, _ = commit(run, position, Held(weights))
        assert position.weights_number > before.weights_number
        np.testing.assert_array_equal(restored(position), weights.current)
