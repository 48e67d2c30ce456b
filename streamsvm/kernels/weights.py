"""Weight matrices, shape (n_features, K), with one column per class and padding to whole vectors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from streamsvm.kernels.jit import inlined, kernel
from streamsvm.kernels.simd import VECTOR_BYTES
from streamsvm.kernels.sparse_rows import sparse_sum_of_squares
from streamsvm.kernels.tile import Tile

AVERAGE_POWER = 2  # p: iterate t gets the weight 2t + 1, because rare features are learned late


class Weights(NamedTuple):
    """Current weights and, if iterates are averaged, their offset from the running average.

    In the average of the iterates w_0..w_{T-1}, w_s has the weight (s + 1)^p - s^p. The average is
    w_T - Σ_t (t/T)^p (w_t - w_{t-1}), where t counts the block steps since averaging began.
    ``average_delta`` is this sum with `time_unit` in place of T. So the average is
    ``current - average_scale * average_delta`` with ``average_scale = (time_unit / T)^p``.
    """

    current: np.ndarray  # (n_features, K)
    average_delta: np.ndarray  # the same shape, or (0, K) if there is no average
    time_unit: float  # in block steps; infinity if there is no average
    tile: Tile | None = None  # rows being visited, if their scores come from a matrix product


def padded_classes(n_classes: int, dtype: np.dtype) -> int:
    """Return the number of weight columns: the number of classes, rounded up to whole vectors."""
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-n_classes // lanes) * lanes


@inlined
def weight_at(weights, f, c, average_scale):
    """Return a weight in float64: the current weight if `average_scale` is 0, else the averaged weight."""
    w = np.float64(weights.current[f, c])
    if average_scale != 0:
        w -= average_scale * np.float64(weights.average_delta[f, c])
    return w


@kernel
def sum_of_squares(weights, average_scale, sparse_rows, problem, sums):
    """Add the squared norm of the weights in class range r to ``sums[r]``, in float64 (see `weight_at`)."""
    ranges = problem.ranges
    for f in range(weights.current.shape[0]):
        for r in range(len(ranges)):
            part, end = 0.0, min(ranges[r, 1], problem.n_classes)
            for c in range(np.uint64(ranges[r, 0]), np.uint64(end)):  # unsigned: no check for negatives
                w = weight_at(weights, f, c, average_scale)
                part += w * w
            sums[r] += part
    if sparse_rows is not None:
        sums[0] += sparse_sum_of_squares(sparse_rows, average_scale)


def add_up(sums: Iterable[float]) -> float:
    """Add numbers from first to last. The built-in `sum` rounds differently in different Python versions."""
    return functools.reduce(operator.add, sums)
