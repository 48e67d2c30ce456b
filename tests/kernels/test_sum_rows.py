"""Rows of the weights that are copied, changed and added up, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.kernels.sum_rows import add_rows, copy_rows, mark, unite
from streamsvm.training.parallel.row_learner import sum_as_tree

FEATURES = st.sets(st.integers(0, 30)).map(lambda found: np.array(sorted(found), np.int64))


@given(FEATURES, FEATURES)
def test_union_of_features(first: np.ndarray, second: np.ndarray) -> None:
    both, fresh = unite(first, second)
    assert np.array_equal(both, np.union1d(first, second))
    assert np.array_equal(fresh, np.setdiff1d(second, first))


@given(FEATURES, st.integers(0, 2**32 - 1))
def test_rows_are_copied_and_added(features: np.ndarray, seed: int) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, 31, 16)).astype(np.float32)
    a_before, before = a.copy(), b.copy()
    add_rows(features, a, 0.5, b)
    before[features] += np.float32(0.5) * a[features]
    np.testing.assert_allclose(b, before, rtol=1e-6, atol=1e-7)
    add_rows(features, a, -1.0, b)
    before[features] -= a[features]
    np.testing.assert_allclose(b, before, rtol=1e-5, atol=1e-6)
    copy_rows(features, a, b)
    assert np.array_equal(b[features], a[features])
    assert np.array_equal(a, a_before)
    seen = np.zeros(31, bool)
    mark(np.repeat(features, 2), seen)
    assert np.array_equal(np.flatnonzero(seen), features)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_parts_are_summed_whatever_features_they_have(n: int) -> None:
    rng = np.random.default_rng(n)
    features = [np.flatnonzero(rng.random(40) < 0.4) for _ in range(n)]
    moved = [rng.standard_normal((40, 16)) for _ in range(n)]  # also where a part has no features
    expected = np.zeros((40, 16))
    for rows, each in zip(features, moved, strict=True):
        expected[rows] += each[rows]
    found = sum_as_tree(features, moved)
    assert np.array_equal(found, np.flatnonzero(np.isin(np.arange(40), np.concatenate(features))))
    np.testing.assert_allclose(moved[0][found], expected[found], rtol=1e-12)
