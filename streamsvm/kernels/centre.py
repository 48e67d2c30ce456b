"""Weights whose mean over all classes is 0: what several classes have in common is taken from each of them.

Else it grows, and the little by which classes differ is lost in its rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from streamsvm.kernels.jit import kernel


@kernel
def sum_columns(features, weights, first, end, sums):
    """Set ``sums[t]`` to the sum of the columns `first` to `end` of the row ``features[t]``."""
    for t in range(len(features)):
        row, c = weights[features[t]], first
        a, b, d, e = np.float64(0.0), np.float64(0.0), np.float64(0.0), np.float64(0.0)
        while c + 4 <= end:  # four sums at a time: each waits for its last addition
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
    """Subtract ``means[t]`` from the columns `first` to `end` of the row ``features[t]``."""
    for t in range(len(features)):
        mean = weights.dtype.type(means[t])
        for c in range(first, end):
            weights[features[t], c] -= mean


def sums_of_group(features: np.ndarray, weights: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the sums of some columns of the rows ``features``, in float64."""
    sums = np.empty(len(features))
    sum_columns(features, weights, first, end, sums)
    return sums


def mean_of_groups(sums: Sequence[np.ndarray], n_classes: int) -> np.ndarray:
    """Return the mean over all classes, from the sums of each group, added up in their order."""
    mean: np.ndarray = functools.reduce(np.add, sums) / n_classes
    return mean


def centre(features: np.ndarray, weights: np.ndarray, ranges: np.ndarray) -> None:
    """Subtract from the rows ``features`` their mean over the classes of all groups.

    Parameters
    ----------
    features : ndarray of int64, shape (m,)
    weights : ndarray, shape (n_features, n_columns)
    ranges : ndarray, shape (n_groups, 3)
        As in `ClassGroups`.
    """
    bounds = [(int(first), int(end)) for first, end, _ in ranges]
    sums = [sums_of_group(features, weights, *each) for each in bounds]
    means = mean_of_groups(sums, sum(end - first for first, end in bounds))
    for first, end in bounds:
        subtract_from_columns(features, means, first, end, weights)


def centre_with_shared(features: np.ndarray, weights: np.ndarray, n_classes: int) -> None:
    """Take what classes have in common from the column beyond them, and from them what it should have.

    Each class has 1/k of that column, which is the opposite of the sum of all others.
    """
    centre(features, weights, np.array([[0, n_classes, n_classes]]))
    weights[features, n_classes] = 0
