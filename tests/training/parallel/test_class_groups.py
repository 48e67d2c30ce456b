"""Groups of classes have columns of their own, and a tournament in which every pair meets once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.training.parallel.class_groups import group_classes, tournament_rounds


@given(
    st.integers(2, 40).flatmap(
        lambda k: st.tuples(st.lists(st.integers(0, 1000), min_size=k, max_size=k), st.integers(2, k))
    ),
    st.sampled_from(["float32", "float64"]),
)
def test_each_class_has_a_column_in_a_group_that_begins_at_a_cache_line(case, dtype: str) -> None:
    counts, n_groups = case
    groups = group_classes(np.array(counts), n_groups, np.dtype(dtype))
    lanes = 64 // np.dtype(dtype).itemsize
    first, ends, padded = groups.ranges.T
    assert not (first % lanes).any()
    assert (ends > first).all()  # no group is empty
    assert np.array_equal(np.r_[first[1:], groups.n_columns], padded)
    assert np.array_equal(padded - first, -(-(ends - first) // lanes) * lanes)
    assert np.array_equal(groups.columns, np.concatenate([np.arange(a, b) for a, b, _ in groups.ranges]))
    assert len(groups.columns) == len(counts)
    assert np.array_equal(np.diff(np.r_[0, groups.groups]), np.isin(np.arange(groups.n_columns), first[1:]))


def test_groups_cost_about_the_same() -> None:
    """Rows and classes count alike: one large class is in a group with few others."""
    counts = np.r_[5000, np.full(99, 50)]
    groups = group_classes(counts, 4, np.dtype("float32"))
    of_class = groups.groups[groups.columns]
    cost = np.bincount(of_class, counts / counts.sum() + 1 / 100)
    assert cost.max() < 1.1 * 2 / 4
    assert np.count_nonzero(of_class == 0) < 10


@pytest.mark.parametrize("n_groups", [2, 4, 6, 8, 16, 34])
def test_in_a_tournament_every_pair_meets_once_and_nobody_twice_a_round(n_groups: int) -> None:
    rounds = tournament_rounds(n_groups)
    assert len(rounds) == n_groups - 1
    for pairs in rounds:
        assert sorted(itertools.chain.from_iterable(pairs)) == list(range(n_groups))
    pairs = sorted(itertools.chain.from_iterable(rounds))
    assert pairs == list(itertools.combinations(range(n_groups), 2))
