"""The log of changed weights: it holds what changed, costs no more, and gives the weights back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.errors import RunError
from streamsvm.kernels.tally import N_TALLIES
from streamsvm.kernels.weights import Weights, sum_of_squares
from streamsvm.run.checkpoint import Position, commit, prune
from streamsvm.run.directory import RunDir
from streamsvm.run.hybrid_weights import RareFeatures
from streamsvm.run.weight_log import ChangeLog, check_changes, restore

HEADER = 32


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
    log, path = ChangeLog(tmp_path / "log"), tmp_path / "log"
    group = 1 << weights.group_bits
    assert columns <= 64 * group
    for n in (40, 3, 0, 200):
        before = log.length
        touched = change(weights, rng, n)
        log.append(weights)
        values = sum(min(columns, (g + 1) * group) - g * group for _, g in touched)
        cost = values * weights.current.itemsize * (1 + average) + 16 * len({f for f, _ in touched})
        parts = (log.length - before - cost) / HEADER
        assert parts == round(parts)
        assert (n > 0) <= parts <= -(-values // 2**18) + 1
        assert not weights.dirty[:, 0].any()
        assert path.stat().st_size == log.length
    found = new_weights(50, columns, dtype, average)
    check_changes(path, log.length, found.current.dtype, 1 + average)
    restore(path, log.length, found)
    np.testing.assert_array_equal(found.current, weights.current)
    np.testing.assert_array_equal(found.average_delta, weights.average_delta)
    np.testing.assert_array_equal(found.dirty, weights.dirty)


def test_what_follows_the_committed_length_is_cut_off(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, path = new_weights(50, 64, "float32", True), tmp_path / "log"
    log = ChangeLog(path)
    change(weights, rng, 30)
    log.append(weights)
    length, expected = log.length, weights.current.copy()
    with path.open("ab") as file:
        file.write(b"half a part")
    again = ChangeLog(path, length)
    change(weights, rng, 5)
    again.append(weights)
    first, both = (new_weights(50, 64, "float32", True) for _ in range(2))
    restore(path, length, first)
    restore(path, again.length, both)
    np.testing.assert_array_equal(first.current, expected)
    np.testing.assert_array_equal(both.current, weights.current)
    with pytest.raises(RunError, match="is cut short"):
        check_changes(path, again.length + 1, weights.current.dtype, 2)


def test_commits_cost_what_changed_and_keep_the_log_short(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights, run = new_weights(2000, 64, "float32", False), RunDir(tmp_path)
    position = Position(0, 0, [0.0] * N_TALLIES, {}, [])
    whole = weights.current.nbytes
    change(weights, rng, 10**6)
    assert commit(run, position, weights) > whole
    written, numbers = [], []
    for _ in range(400):
        change(weights, rng, 20)
        written.append(commit(run, position, weights))
        numbers.append(position.changes_number)
        assert position.changes_length < 2.6 * whole
        assert len(list(tmp_path.glob("changes-*.bin"))) <= 2
    assert np.median(written) <= 20 * (64 + 16) + HEADER
    assert sum(written) < 400 * (20 * (64 + 16) + HEADER) + whole * 1.3 * numbers[-1]
    found = new_weights(2000, 64, "float32", False)
    restore(run.changes(position.changes_number), position.changes_length, found)
    np.testing.assert_array_equal(found.current, weights.current)
    prune(run, ())
    assert run.changes(position.changes_number).exists()


@pytest.mark.parametrize("average", [False, True])
def test_commits_of_lists_cost_what_changed(tmp_path: Path, average: bool) -> None:
    """An entry is more than its weight: a log of nothing but entries must not look full of old ones."""
    n_lists, n_classes = 200, 40
    features = RareFeatures(
        tmp_path / "rare", np.ones(n_lists, bool), n_classes, np.dtype(np.float32), average=average
    )
    now = np.zeros((0, 48), np.float32)
    weights = Weights.create(now, now, 1.0)
    features.make_room(n_lists * n_classes)
    rare = features.sparse_rows
    rare.extents[:] = [(f * n_classes, n_classes, n_classes) for f in range(n_lists)]
    rare.used[0] = n_lists * n_classes
    rare.entries[: rare.used[0], 0] = np.tile(np.arange(n_classes), n_lists)
    rare.dirty[:] = 1
    run, position = RunDir(tmp_path), Position(0, 0, [0.0] * N_TALLIES, {}, [])
    whole = commit(run, position, weights, rare)
    one = HEADER + 16 + n_classes * (2 + average) * 4
    for number in range(100):
        rare.dirty[number] = 1
        assert commit(run, position, weights, rare) == one
    assert position.changes_number == 1
    assert position.changes_length == whole + 100 * one


def test_a_new_log_begins_when_most_changed(tmp_path: Path) -> None:
    """So that two commits of a small model do not depend on each other."""
    rng = np.random.default_rng(0)
    weights, run = new_weights(20, 16, "float32", False), RunDir(tmp_path)
    position = Position(0, 0, [0.0] * N_TALLIES, {}, [])
    for number in (1, 2, 3):
        change(weights, rng, 1000)
        commit(run, position, weights)
        assert position.changes_number == number
    assert sorted(path.name for path in tmp_path.glob("changes-*.bin")) == ["changes-2.bin", "changes-3.bin"]


@pytest.mark.parametrize("average", [False, True])
def test_unmarked_weights_are_written_whole(tmp_path: Path, average: bool) -> None:
    rng = np.random.default_rng(0)
    marked, run = new_weights(50, 64, "float32", average), RunDir(tmp_path)
    weights = marked._replace(dirty=np.zeros((0, 2), np.uint64))
    position = Position(0, 0, [0.0] * N_TALLIES, {}, [])
    for number in (1, 2, 3):
        change(marked, rng, 7)  # the same arrays
        commit(run, position, weights)
        assert position.changes_number == number
        found = new_weights(50, 64, "float32", average)._replace(dirty=weights.dirty)
        restore(run.changes(number), position.changes_length, found)
        np.testing.assert_array_equal(found.current, marked.current)
        np.testing.assert_array_equal(found.average_delta, marked.average_delta)
        assert sum_of_squares(found, 0.0, None) == pytest.approx((marked.current.astype(float) ** 2).sum())
