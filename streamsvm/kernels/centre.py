"""Centring of the weights: subtract from each row its mean over the classes.

Without centring, this mean grows until rounding errors exceed the differences between classes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def sum_columns(features, weights, first, end, sums):
    for t in range(len(features)):
        row, c = weights[features[t]], first
        a, b, d, e = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
        while c + 4 <= end:  # four independent sums hide the latency of an addition
            a += row[c]
            b += row[c + 1]
            d += row[c + 2]
            e += row[c + 3]
            c += 4
        total = (a + b) + (d + e)
        while c < end:
            total += row[c]
            c += 1
        sums[t] = total


@kernel
def subtract_from_columns(features, means, first, end, weights):
    for t in range(len(features)):
        mean = weights.dtype.type(means[t])
        for c in range(first, end):
            weights[features[t], c] -= mean


def sums_of_group(features: np.ndarray, weights: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the row sums of ``weights[features, first:end]`` in float64."""
    sums = np.empty(len(features))
    sum_columns(features, weights, first, end, sums)
    return sums


def mean_of_groups(sums: Sequence[np.ndarray], n_classes: int) -> np.ndarray:
    """Return the mean of each row over all classes; `sums` contains the row sums of each group of classes."""
    mean: np.ndarray = functools.reduce(np.add, sums) / n_classes
    return mean


def centre(features: np.ndarray, weights: np.ndarray, ranges: np.ndarray) -> None:
    """Subtract the mean over the classes in `ranges` from each row of `weights` listed in `features`."""
    bounds = [(int(first), int(end)) for first, end, _ in ranges]
    sums = [sums_of_group(features, weights, *bound) for bound in bounds]
    means = mean_of_groups(sums, sum(end - first for first, end in bounds))
    for first, end in bounds:
        subtract_from_columns(features, means, first, end, weights)


def centre_with_shared(features: np.ndarray, weights: np.ndarray, n_classes: int) -> None:
    """Centre the class columns and clear the shared column; no score changes (see `lee_lin_wahba`)."""
    centre(features, weights, np.array([[0, n_classes, n_classes]]))
    weights[features, n_classes] = 0
