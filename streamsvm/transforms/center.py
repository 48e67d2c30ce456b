"""Transform that centres numeric columns, so that their means do not dominate the norms of the rows.

Categories and n-grams are not centred, because most of their values are zeros, which are not stored.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.errors import wrong_setting
from streamsvm.kernels.jit import kernel
from streamsvm.transforms.base import FittingData
from streamsvm.transforms.feature_weights import FeatureWeights


@dataclasses.dataclass(frozen=True)
class Center(FeatureWeights):
    """Subtract the means in `array`, which are 0 for features that are not numeric columns.

    Transformed CSR rows store a value for each feature with a non-zero mean.
    """

    name: ClassVar = "center"
    needs: ClassVar = "moments"
    lower_bound: ClassVar = -np.inf
    default_weight: ClassVar = 0.0
    numeric_only: ClassVar = True

    def __call__(self, rows: Rows) -> Rows:
        assert self.array is not None
        if rows.dense:
            data, shape = np.empty_like(rows.data), (rows.n_rows, self.width)
            np.subtract(rows.data.reshape(shape), self.array, out=data.reshape(shape), casting="same_kind")
            return rows._replace(data=data)
        columns, indptr = np.flatnonzero(self.array), np.empty_like(rows.indptr)
        n = self.nnz(len(rows.data), rows.n_rows)
        data, indices = np.empty(n, rows.data.dtype), np.empty(n, rows.features.dtype)
        _subtract(rows.data, rows.features, rows.indptr, self.array, columns, data, indices, indptr)
        return rows._replace(data=data[: indptr[-1]], indices=indices[: indptr[-1]], indptr=indptr)

    def fitted(self, data: FittingData) -> Self:
        if data.statistics is not None and data.numbers is None:
            problem = "center needs numeric columns of a table or a dense matrix; leave it out"
            raise wrong_setting("transform", problem)
        return super().fitted(data)

    def weights(self, statistics: Statistics) -> np.ndarray:
        return statistics.mean

    def after(self, statistics: Statistics) -> Statistics | None:
        return dataclasses.replace(statistics, centred=True)

    def nnz(self, nnz: Any, n_rows: int = 1) -> Any:
        assert self.array is not None
        return np.minimum(nnz + n_rows * np.count_nonzero(self.array), n_rows * self.width)


@kernel
def _subtract(data, indices, indptr, means, columns, new_data, new_indices, new_indptr):
    """Write rows minus `means` to the new arrays; each new row has a value for each of `columns`."""
    filled = 0
    new_indptr[0] = 0
    for i in range(len(indptr) - 1):
        p, end, c = indptr[i], indptr[i + 1], 0
        while p < end or c < len(columns):
            is_stored = p < end and (c == len(columns) or indices[p] <= columns[c])
            feature = indices[p] if is_stored else columns[c]
            new_data[filled] = (np.float64(data[p]) if is_stored else 0.0) - means[feature]
            new_indices[filled] = feature
            filled += 1
            p += is_stored
            c += c < len(columns) and columns[c] == feature
        new_indptr[i + 1] = filled
