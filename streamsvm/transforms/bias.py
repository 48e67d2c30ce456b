"""Transform that adds a constant feature, whose coefficients are the intercepts of the model.

The intercepts are part of ‖w‖², so they are regularised. A larger constant regularises them less, like
a larger ``intercept_scaling`` in scikit-learn's LinearSVC.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.data.rows import Rows, with_matrix
from streamsvm.transforms.base import FittingData, Transform, checked_count, checked_number

_NAME = "(intercept)"
_VALUE = "bias=value with a number above 0, such as bias=1"


@dataclasses.dataclass(frozen=True)
class Bias(Transform):
    """Add a feature with the same `value` in all rows, as the last feature (before fitting, as the first)."""

    name: ClassVar = "bias"
    setting: ClassVar = "value"
    by_feature: ClassVar = True

    value: float = 1.0  # above 0
    column: int = 0  # number of other features; 0 before fitting

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", checked_number(self.value, _VALUE, positive=True))
        checked_count(self.column, "column")

    @property
    def constant(self) -> float:  # type: ignore[override]
        return self.value

    def __call__(self, rows: Rows) -> Rows:
        if rows.dense:
            matrix = np.empty((rows.n_rows, self.column + 1), rows.data.dtype)
            matrix[:, :-1] = rows.data.reshape(rows.n_rows, self.column)
            matrix[:, -1] = self.value
            return with_matrix(rows, matrix)
        at, indices = rows.indptr[:-1], rows.features
        if self.column:
            at, indices = rows.indptr[1:], indices.astype(index_dtype(self.column + 1), copy=False)
        return rows._replace(
            data=np.insert(rows.data, at, self.value),
            indices=np.insert(indices, at, self.column),
            indptr=rows.indptr + np.arange(rows.n_rows + 1),
        )

    def fitted(self, data: FittingData) -> Self:
        return dataclasses.replace(self, column=data.n_features)

    def n_features(self, n_features: int | None) -> int | None:
        if n_features not in (None, self.column):
            raise ValueError(f"bias takes {self.column} features, not {n_features}")
        return None if n_features is None else self.column + 1

    def feature_names(self, names: Sequence[str] | None) -> Sequence[str] | None:
        if names is None:
            return None
        name = _NAME
        while name in names:
            name = f"({name})"
        return [*names, name]
