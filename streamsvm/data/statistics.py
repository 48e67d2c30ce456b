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
    def moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`centre`, `deviations` and `largest`, which must be known."""
        assert self.centre is not None
        assert self.deviations is not None
        assert self.largest is not None
        return self.centre, self.deviations, self.largest

    @property
    def mean(self) -> np.ndarray:
        """Mean over all rows, zeros included."""
        centre, _, _ = self.moments
        return centre * (self.count / max(self.n_rows, 1))

    @property
    def variance(self) -> np.ndarray:
        """Variance over all rows, zeros included; the sum of squares is divided by the number of rows."""
        centre, deviations, _ = self.moments
        n = max(self.n_rows, 1)
        share = self.count / n
        return deviations / n + centre**2 * share * (1 - share)

    def times(self, weights: np.ndarray) -> Statistics:
        """The statistics of the features multiplied by `weights`, which are above 0."""
        if self.kind == "counts":
            return self
        centre, deviations, largest = self.moments
        return Statistics(
            self.n_rows, self.count, centre * weights, deviations * weights**2, largest * weights
        )

    def take(self, columns: np.ndarray) -> Statistics:
        """The statistics of some of the features."""
        arrays = (self.count, self.centre, self.deviations, self.largest)
        return Statistics(self.n_rows, *(None if each is None else each[columns] for each in arrays))  # type: ignore[arg-type]


class StatisticsBuilder:
    """Gathers the statistics of rows that come in pieces, whose indices must be below `n_features`."""

    def __init__(self, n_features: int, kind: Literal["counts", "moments"] = "moments") -> None:
        from streamsvm.kernels import statistics as kernels  # numba takes long to load

        self._kernels = kernels
        self._n_rows = 0
        self._count = np.zeros(n_features)
        self._moments = np.zeros((n_features, 3)) if kind == "moments" else None

    def add(self, n_rows: int, data: np.ndarray, indices: np.ndarray) -> None:
        """Add the next rows: how many they are, their values and the features of these."""
        self._n_rows += n_rows
        if self._moments is None:
            self._kernels.add_counts(data, indices, self._count)
        else:
            self._kernels.add_moments(data, indices, self._count, self._moments)

    def result(self) -> Statistics:
        """The statistics of the rows so far."""
        if self._moments is None:
            return Statistics(self._n_rows, self._count)
        return Statistics(self._n_rows, self._count, *np.ascontiguousarray(self._moments.T))


def gather(
    pieces: Iterable[Rows], n_features: int, kind: Literal["counts", "moments"] = "moments"
) -> Statistics:
    """The statistics of rows that come in pieces, whose indices must be below `n_features`."""
    builder = StatisticsBuilder(n_features, kind)
    for rows in pieces:
        builder.add(rows.n_rows, rows.data, rows.indices)
    return builder.result()
