"""Weights of a stream: they grow by features and classes, and take no disk until they change."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.run.growing_weights import TIME_UNIT, GrowingWeights


def test_the_average_neither_overflows_nor_underflows_in_any_stream() -> None:
    """Visit t moves the delta by float32((t / TIME_UNIT)²) Δw, and the end scales it by the inverse."""
    for t in (1, 2**20, 2**45):
        for factor in ((t / TIME_UNIT) ** 2, (TIME_UNIT / t) ** 2):
            narrow = np.float32(factor)
            assert np.finfo(np.float32).tiny * 2**24 < narrow < np.finfo(np.float32).max / 2**24
            assert float(narrow) == factor  # a power of two


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_keep_their_values_and_take_no_disk_as_they_grow(tmp_path, dtype) -> None:
    dtype = np.dtype(dtype)
    paths = tmp_path / "weights", tmp_path / "delta"
    growing = GrowingWeights((0, 0), dtype, paths)
    expected = np.zeros((3_000_000, 100), dtype)  # virtual: only what is set is real
    rng = np.random.default_rng(0)
    layouts = set()
    for n_features, n_classes in [(1, 1), (10, 3), (1000, 16), (1000, 17), (70_000, 40), (3_000_000, 90)]:
        growing.grow(n_features, n_classes)
        current, delta = growing.weights[:2]
        assert current.shape == delta.shape
        assert current.shape[0] >= n_features == growing.n_features
        assert current.shape[1] >= n_classes
        assert current.ctypes.data % 64 == delta.ctypes.data % 64 == 0
        layouts.add(current.shape[1])
        rows = rng.integers(n_features, size=20)
        columns = rng.integers(n_classes, size=20)
        current[rows, columns] = delta[rows, columns] = expected[rows, columns] = rng.normal(size=20)
    touched = np.flatnonzero(expected[:, :90].any(axis=1))
    for array in growing.weights[:2]:
        np.testing.assert_array_equal(array[touched, :90], expected[touched, :90])
        at_random = np.setdiff1d(rng.integers(len(expected), size=1000), touched)
        assert not array[at_random].any()
    for path in paths:
        assert path.stat().st_size >= 3_000_000 * 90 * dtype.itemsize
        assert path.stat().st_blocks * 512 < 4 * 2**20  # a page each, and a few more
    assert len(layouts) <= 1 + np.log2(max(layouts) / min(layouts))  # each time twice as wide
