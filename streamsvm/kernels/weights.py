"""The weights as the kernels take them: a dense matrix, its average, and what changed in it.

Weights are stored feature by feature, shape (n_features, K): K is the number of classes padded to
whole vectors, so that scoring a row is one contiguous axpy for each of its non-zeros.
"""

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

AVERAGE_POWER = 2  # p: iterate t has the weight 2t + 1, because rare features are learned late


class Weights(NamedTuple):
    """The current weights and, if iterates are averaged, the offset of their running average.

    The average of the iterates w_0..w_{T-1}, in which w_s has the weight (s + 1)^p - s^p, is
    w_T - Σ_t (t/T)^p Δw_t. With time counted in units of `time_unit`, ``average_delta`` is that sum,
    and the average is ``current - average_scale * average_delta`` with
    ``average_scale = (time_unit / T)^p``. Block steps are counted from where the average begins.
    """

    current: np.ndarray  # (n_features, K)
    average_delta: np.ndarray  # the same shape, or (0, K) if nothing is averaged
    time_unit: float  # block steps; infinite if nothing is averaged
    tile: Tile | None = None  # the rows that are visited, if matrix products give their scores


def padded_classes(n_classes: int, dtype: np.dtype) -> int:
    """Return the number of columns of the weights: whole vectors, which are cache lines too."""
    lanes = VECTOR_BYTES // dtype.itemsize
    return -(-n_classes // lanes) * lanes


@inlined
def weight_at(weights, f, c, average_scale):
    """Return a weight, or the averaged weight, in float64; 0 reads no ``average_delta``."""
    w = np.float64(weights.current[f, c])
    if average_scale != 0:
        w -= average_scale * np.float64(weights.average_delta[f, c])
    return w


@kernel
def sum_of_squares(weights, average_scale, sparse_rows, problem, sums):
    """Add ‖current - average_scale * average_delta‖² of each range of classes to `sums`.

    It is summed in float64, row after row. ``average_delta`` is not read if `average_scale` is 0.
    """
    ranges = problem.ranges
    for f in range(weights.current.shape[0]):
        for r in range(len(ranges)):
            part, end = 0.0, min(ranges[r, 1], problem.n_classes)
            for c in range(np.uint64(ranges[r, 0]), np.uint64(end)):  # unsigned: not from the end
                w = weight_at(weights, f, c, average_scale)
                part += w * w
            sums[r] += part
    if sparse_rows is not None:
        sums[0] += sparse_sum_of_squares(sparse_rows, average_scale)


def add_up(sums: Iterable[float]) -> float:
    """Add numbers in their order, so that threads and a cluster get the same bits on every Python."""
    return functools.reduce(operator.add, sums)
