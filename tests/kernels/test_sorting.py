"""Sorting in compiled code, against NumPy's."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.sorting import sorted_falling


def test_the_first_values_are_sorted_and_the_rest_left_alone() -> None:
    for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 100, 1023, 1025):
        rng = np.random.default_rng(n)
        for values in (rng.normal(size=n + 3), rng.integers(-2, 3, n + 3).astype(float), np.arange(n + 3.0)):
            before = values.copy()
            np.testing.assert_array_equal(sorted_falling(values, n), np.sort(values[:n])[::-1])
            np.testing.assert_array_equal(values, before)


def test_nan_stays() -> None:
    found = sorted_falling(np.array([1.0, np.nan, 3.0, np.nan, 2.0]), 5)
    assert np.isnan(found).sum() == 2
    assert sorted(found[~np.isnan(found)]) == [1.0, 2.0, 3.0]
