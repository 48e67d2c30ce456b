"""Statistics of features, from one reading of the rows, in float64 and in the order of the rows.

Each takes its terms one by one in the order of the rows, so its bits do not depend on how the rows were cut
into pieces. Deviations are summed from the running mean (Welford 1962): the difference of two sums of squares
would lose the variance of a feature whose mean is large. Zeros are added at the end (Chan et al. 1979).
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
    """Of each feature, float64 of shape (n_features,).

    Attributes
    ----------
    n_rows : int
    count : ndarray
        Rows in which the feature is not 0.
    centre, deviations, largest : ndarray or None
        Of the values that are not 0: their mean, the sum of their squared deviations from it, and the largest
        absolute value; None if only counts were wanted.
    """

    n_rows: int
    count: np.ndarray
    centre: np.ndarray | None = None
    deviations: np.ndarray | None = None
    largest: np.ndarray | None = None

    @property
    def kind(self) -> str:
        return "counts" if self.centre is None else "moments"

    @property
    def mean(self) -> np.ndarray:
        """Mean over all rows, zeros included."""
        assert self.centre is not None
        return self.centre * (self.count / max(self.n_rows, 1))

    @property
    def variance(self) -> np.ndarray:
        """Variance over all rows, zeros included; the sum of squares is divided by the number of rows."""
        assert self.centre is not None
        assert self.deviations is not None
        n = max(self.n_rows, 1)
        share = self.count / n
        return self.deviations / n + self.centre**2 * share * (1 - share)

    def times(self, weights: np.ndarray) -> Statistics:
        """The statistics of the features multiplied by `weights`, which are above 0."""
        if self.centre is None or self.deviations is None or self.largest is None:
            return self
        moments = (self.centre * weights, self.deviations * weights**2, self.largest * weights)
        return Statistics(self.n_rows, self.count, *moments)

    def take(self, columns: np.ndarray) -> Statistics:
        """The statistics of some of the features."""
        arrays = (self.count, self.centre, self.deviations, self.largest)
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
            change = x - moments[f, 0]
            moments[f, 0] += change / count[f]
            moments[f, 1] += change * (x - moments[f, 0])
            moments[f, 2] = max(moments[f, 2], abs(x))
