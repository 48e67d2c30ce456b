"""Statistics of features, from one reading of the rows, summed in float64 in the order of the rows.

Each sum takes its terms one by one in the order of the rows, so its bits do not depend on how the rows were
cut into pieces.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.jit import kernel

BYTES = {"counts": 8, "moments": 32}  # of a feature


@dataclasses.dataclass(frozen=True)
class Statistics:
    """Sums over the rows, float64, each of shape (n_features,).

    Attributes
    ----------
    n_rows : int
    count : ndarray
        Rows in which the feature is not 0.
    sum, squares, largest : ndarray or None
        Sum of the values, of their squares, and the largest absolute value; None if only counts were wanted.
    """

    n_rows: int
    count: np.ndarray
    sum: np.ndarray | None = None
    squares: np.ndarray | None = None
    largest: np.ndarray | None = None

    @property
    def kind(self) -> str:
        return "counts" if self.sum is None else "moments"

    @property
    def mean(self) -> np.ndarray:
        assert self.sum is not None
        return self.sum / max(self.n_rows, 1)

    @property
    def variance(self) -> np.ndarray:
        """Variance over all rows, zeros included; the sum of squares is divided by the number of rows."""
        assert self.squares is not None
        mean = self.mean
        return np.maximum(self.squares / max(self.n_rows, 1) - mean * mean, 0.0)

    def times(self, weights: np.ndarray) -> Statistics:
        """The statistics of the features multiplied by `weights`, which are above 0."""
        if self.sum is None or self.squares is None or self.largest is None:
            return self
        return Statistics(
            self.n_rows, self.count, self.sum * weights, self.squares * weights**2, self.largest * weights
        )

    def take(self, columns: np.ndarray) -> Statistics:
        """The statistics of some of the features."""
        arrays = (self.count, self.sum, self.squares, self.largest)
        return Statistics(self.n_rows, *(None if each is None else each[columns] for each in arrays))  # type: ignore[arg-type]


def gather(
    pieces: Iterable[Rows], n_features: int, kind: Literal["counts", "moments"] = "moments"
) -> Statistics:
    """The statistics of rows that come in pieces, whose indices must be below `n_features`."""
    n_rows = 0
    count = np.zeros(n_features)
    moments = np.zeros((n_features, 3)) if kind == "moments" else np.zeros((0, 3))
    for rows in pieces:
        n_rows += rows.n_rows
        if kind == "counts":
            _add_counts(rows.data, rows.indices, count)
        else:
            _add_moments(rows.data, rows.indices, count, moments)
    if kind == "counts":
        return Statistics(n_rows, count)
    return Statistics(n_rows, count, *np.ascontiguousarray(moments.T))


@kernel
def _add_counts(data, indices, count):
    """Add to `count`."""
    for p in range(len(data)):
        if data[p] != 0:
            count[indices[p]] += 1.0


@kernel
def _add_moments(data, indices, count, moments):
    """Add to `count` and `moments`."""
    for p in range(len(data)):
        f, x = indices[p], np.float64(data[p])
        if x != 0:
            count[f] += 1.0
            moments[f, 0] += x
            moments[f, 1] += x * x
            moments[f, 2] = max(moments[f, 2], abs(x))
