"""The log of changed weights: it holds what changed, costs no more, and gives the weights back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from streamsvm.format import LOG_HEADER
from streamsvm.kernels.weights import Weights, sum_of_squares
from streamsvm.run.append_log import AppendLog, LogEnd, check, padded
from streamsvm.run.checkpoint import Position, commit, prune
from streamsvm.run.directory import RunDir
from streamsvm.run.hybrid_weights import HybridWeights
from streamsvm.run.weight_log import MAGICS, append_weights, restore
from streamsvm.run.weights import DenseWeights

HEADER = LOG_HEADER.size
IN_MEMORY = (None, None, None)


@pytest.fixture
def new_weights(tmp_path: Path) -> Callable[..., DenseWeights]:
    """A function that returns weights that are zero, in files, with dirty bits; or in memory, without."""
    numbers = itertools.count()

    def new(
        n_features: int, columns: int, dtype: str, average: bool, *, in_files: bool = True
    ) -> DenseWeights:
        number = next(numbers)
        w, d, b = (tmp_path / f"{name}-{number}" for name in ("weights", "average", "dirty"))
        storage = DenseWeights(
            (n_features, columns), np.dtype(dtype), 1.0, (w, d, b) if in_files else IN_MEMORY, average=average
        )
        assert len(storage.weights.dirty) == in_files * n_features
        return storage

    return new


def change(weights: Weights, rng: np.random.Generator, n: int) -> set[tuple[int, int]]:
    """Change `n` weights, and set their dirty bits; return the features and groups of columns."""
    features, columns = (rng.integers(size, size=n) for size in weights.current.shape)
    touched = set()
    for f, c in zip(features.tolist(), columns.tolist(), strict=True):
        for array in (weights.current, weights.average_delta):
            if len(array):
                array[f, c] = rng.normal()
        if len(weights.dirty):
            weights.dirty[f, 0] |= np.uint64(1 << (c >> weights.group_bits))
        touched.add((f, c >> weights.group_bits))
    return touched


@pytest.mark.parametrize("columns", [16, 64, 1024, 1040, 17008])
@pytest.mark.parametrize(("dtype", "average"), [("float32", False), ("float64", True)])
def test_weights_come_back_and_only_changes_are_written(
    tmp_path: Path, new_weights: Callable[..., DenseWeights], columns: int, dtype: str, average: bool
) -> None:
    rng = np.random.default_rng(columns)
    weights = new_weights(50, columns, dtype, average).weights
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
    assert check(path, log.end.length, MAGICS) == log.end
    restore(path, log.end.length, found)
    np.testing.assert_array_equal(found.weights.current, weights.current)
    np.testing.assert_array_equal(found.weights.average_delta, weights.average_delta)
    np.testing.assert_array_equal(found.weights.dirty, weights.dirty)


def test_only_the_committed_part_is_restored(
    tmp_path: Path, new_weights: Callable[..., DenseWeights]
) -> None:
    rng = np.random.default_rng(0)
    weights, path = new_weights(50, 64, "float32", True).weights, tmp_path / "log"
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
    restore(path, end.length, first)
    restore(path, log.end.length, both)
    np.testing.assert_array_equal(first.weights.current, expected)
    np.testing.assert_array_equal(both.weights.current, weights.current)


def test_commits_cost_what_changed_and_keep_the_log_short(
    tmp_path: Path, new_weights: Callable[..., DenseWeights]
) -> None:
    rng = np.random.default_rng(0)
    storage, run = new_weights(2000, 64, "float32", False), RunDir(tmp_path)
    position = Position()
    whole = storage.weights.current.nbytes
    change(storage.weights, rng, 10**6)
    position, size = commit(run, position, storage)
    assert size > whole
    written, numbers = [], []
    for _ in range(400):
        change(storage.weights, rng, 20)
        position, size = commit(run, position, storage)
        written.append(size)
        numbers.append(position.weights_number)
        assert position.weights.length < 2.6 * whole
        assert len(list(tmp_path.glob("changes-*.bin"))) <= 2
    assert np.median(written) <= 20 * (64 + 16) + HEADER
    assert sum(written) < 400 * (20 * (64 + 16) + HEADER) + whole * 1.3 * numbers[-1]
    found = new_weights(2000, 64, "float32", False)
    restore(run.weight_log(position.weights_number), position.weights.length, found)
    np.testing.assert_array_equal(found.weights.current, storage.weights.current)
    prune(run, ())
    assert run.weight_log(position.weights_number).exists()


@pytest.mark.parametrize("average", [False, True])
def test_commits_of_sparse_rows_cost_what_changed(tmp_path: Path, average: bool) -> None:
    """An entry is more than its weight: a log of entries alone must not seem to be full of old ones."""
    n_rows, n_classes = 200, 40
    storage = HybridWeights(
        np.ones(n_rows, bool), 48, n_classes, np.dtype(np.float32), 1.0, IN_MEMORY, tmp_path / "sparse",
        average=average,
    )  # fmt: skip
    storage.reserve(n_rows * n_classes)
    sparse_rows = storage.sparse_rows
    sparse_rows.extents[:] = [(f * n_classes, n_classes, n_classes) for f in range(n_rows)]
    sparse_rows.used[0] = n_rows * n_classes
    sparse_rows.entries[: sparse_rows.used[0], 0] = np.tile(np.arange(n_classes), n_rows)
    sparse_rows.dirty[:] = 1
    run, position = RunDir(tmp_path), Position()
    position, whole = commit(run, position, storage)
    one = HEADER + 16 + padded(n_classes * (2 + average) * 4)
    for number in range(100):
        sparse_rows.dirty[number] = 1
        position, size = commit(run, position, storage)
        assert size == one
    assert position.weights_number == 1
    assert position.weights.length == whole + 100 * one


def test_a_new_log_begins_when_most_changed(tmp_path: Path, new_weights: Callable[..., DenseWeights]) -> None:
    """So that two commits of a small model do not depend on each other."""
    rng = np.random.default_rng(0)
    storage, run = new_weights(20, 16, "float32", False), RunDir(tmp_path)
    position = Position()
    for number in (1, 2, 3):
        change(storage.weights, rng, 1000)
        position, _ = commit(run, position, storage)
        assert position.weights_number == number
    assert sorted(path.name for path in tmp_path.glob("changes-*.bin")) == ["changes-2.bin", "changes-3.bin"]


@pytest.mark.parametrize("average", [False, True])
def test_weights_without_dirty_bits_are_written_whole(
    tmp_path: Path, new_weights: Callable[..., DenseWeights], average: bool
) -> None:
    rng = np.random.default_rng(0)
    storage, run = new_weights(50, 64, "float32", average, in_files=False), RunDir(tmp_path)
    weights = storage.weights
    position = Position()
    for number in (1, 2, 3):
        change(weights, rng, 7)
        position, _ = commit(run, position, storage)
        assert position.weights_number == number
        found = new_weights(50, 64, "float32", average, in_files=False)
        restore(run.weight_log(number), position.weights.length, found)
        np.testing.assert_array_equal(found.weights.current, weights.current)
        np.testing.assert_array_equal(found.weights.average_delta, weights.average_delta)
        expected = (weights.current.astype(float) ** 2).sum()
        assert sum_of_squares(found.weights, 0.0, None) == pytest.approx(expected)


@pytest.mark.parametrize("in_files", [True, False])
def test_after_a_commit_that_failed_the_next_begins_a_new_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_weights: Callable[..., DenseWeights],
    in_files: bool,
) -> None:
    """Wherever it fails: the commit before is unharmed, and the next holds all weights."""
    rng = np.random.default_rng(0)
    storage, run = new_weights(200, 64, "float32", True, in_files=in_files), RunDir(tmp_path)
    weights = storage.weights

    def restored(position: Position) -> np.ndarray:
        found = new_weights(200, 64, "float32", True)
        log = run.weight_log(position.weights_number)
        assert check(log, position.weights.length, MAGICS) == position.weights
        restore(log, position.weights.length, found)
        return found.weights.current

    change(weights, rng, 1000)
    position, _ = commit(run, Position(), storage)
    for step in ("streamsvm.run.checkpoint.AppendLog.sync", "os.rename", "streamsvm.run.checkpoint.prune"):
        before, expected = position, weights.current.copy()
        change(weights, rng, 5)

        def fail(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(step, fail)
            with pytest.raises(OSError, match="No space"):
                commit(run, position, storage)
        np.testing.assert_array_equal(restored(before), expected)
        change(weights, rng, 5)
        position, _ = commit(run, position, storage)
        assert position.weights_number > before.weights_number
        np.testing.assert_array_equal(restored(position), weights.current)
