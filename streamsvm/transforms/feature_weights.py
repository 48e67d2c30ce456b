"""Transforms with a fitted weight for each feature: idf, df and scale.

For n rows, of which d_j have a non-zero value in feature j, the weights are

    idf           log((1 + n) / (1 + d_j)) + 1, as in TfidfTransformer(norm=None) of scikit-learn
    df=power      (d_j / n)^power; 1 for features that occur in no row
    scale=std     1 / the standard deviation over all rows, as in StandardScaler(with_mean=False)
    scale=maxabs  1 / the largest absolute value, as in MaxAbsScaler

The weights of ``scale`` are 1 for features that occur in no row, for categories and n-grams of a table and,
with std, for constant features.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, Self

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Statistics
from streamsvm.errors import wrong_setting
from streamsvm.kernels.jit import kernel
from streamsvm.transforms.base import FittingData, Transform, checked_count, checked_number

_POWER = "df=power with a number, such as df=-0.25"
_KINDS = ("std", "maxabs")


@dataclasses.dataclass(frozen=True)
class FeatureWeights(Transform):
    """Base class of transforms with a weight per feature. By default, values are multiplied by weights."""

    lower_bound: ClassVar[float] = 0.0
    default_weight: ClassVar[float] = 1.0  # weight of features without a valid fitted weight
    numeric_only: ClassVar[bool] = False  # whether, in a table, only numeric columns have fitted weights
    by_feature: ClassVar = True
    array_dtype: ClassVar = np.dtype(np.float64)

    width: int = 0
    # Finite weights above `lower_bound`, float64, shape (width,).
    array: np.ndarray | None = dataclasses.field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        checked_count(self.width, "width")

    def __call__(self, rows: Rows) -> Rows:
        assert self.array is not None
        data = np.empty_like(rows.data)
        if rows.dense:
            shape = rows.n_rows, self.width
            np.multiply(rows.data.reshape(shape), self.array, out=data.reshape(shape), casting="same_kind")
        else:
            _multiply(rows.data, rows.features, self.array, data)
        return rows._replace(data=data)

    def fitted(self, data: FittingData) -> Self:
        if data.statistics is None:
            problem = f"{self.name} needs statistics of all rows, but the rows come in batches; leave it out"
            raise wrong_setting("transform", problem)
        with np.errstate(divide="ignore", over="ignore"):
            weights = self.weights(data.statistics)
        known = np.isfinite(weights) & (weights > self.lower_bound)
        if self.numeric_only and data.numbers is not None:
            known &= np.isin(np.arange(data.n_features), data.numbers)
        weights = np.where(known, weights, self.default_weight)
        if self.array is not None:  # training continues from a model, whose features come first
            weights[: self.width] = self.array
        weights.flags.writeable = False
        return dataclasses.replace(self, width=data.n_features, array=weights)

    def weights(self, statistics: Statistics) -> np.ndarray:
        raise NotImplementedError

    def after(self, statistics: Statistics) -> Statistics | None:
        assert self.array is not None
        return statistics.times(self.array)

    def n_features(self, n_features: int | None) -> int | None:
        if n_features not in (None, self.width):
            raise ValueError(f"{self.name} has weights for {self.width} features, not {n_features}")
        return self.width

    @property
    def array_length(self) -> int:
        return self.width

    def with_array(self, array: np.ndarray) -> Self:
        if not (np.isfinite(array) & (array > self.lower_bound)).all():
            raise ValueError(f"the weights of {self.name} must be finite and above {self.lower_bound:g}")
        return super().with_array(array)


@dataclasses.dataclass(frozen=True)
class InverseDocumentFrequency(FeatureWeights):
    name: ClassVar = "idf"
    needs: ClassVar = "counts"

    def weights(self, statistics: Statistics) -> np.ndarray:
        return np.log((1 + statistics.n_rows) / (1 + statistics.count)) + 1


@dataclasses.dataclass(frozen=True)
class DocumentFrequency(FeatureWeights):
    """Weight each feature by a power of its document frequency; a negative power favours rare features."""

    name: ClassVar = "df"
    setting: ClassVar = "power"
    needs: ClassVar = "counts"

    power: float = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "power", checked_number(self.power, _POWER))

    def weights(self, statistics: Statistics) -> np.ndarray:
        return np.where(
            statistics.count > 0, (statistics.count / max(statistics.n_rows, 1)) ** self.power, 1.0
        )


@dataclasses.dataclass(frozen=True)
class Scale(FeatureWeights):
    """Divide each feature by its spread; in a table, only numeric columns are divided."""

    name: ClassVar = "scale"
    setting: ClassVar = "kind"
    numeric_only: ClassVar = True

    kind: str = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in _KINDS:
            raise ValueError(" or ".join(f"scale={kind}" for kind in _KINDS))

    @property
    def needs(self) -> Literal["variance", "moments"]:  # type: ignore[override]
        return "variance" if self.kind == "std" else "moments"

    def weights(self, statistics: Statistics) -> np.ndarray:
        if self.kind == "maxabs":
            largest: np.ndarray = statistics.moments[2]
            return 1 / largest
        # Treat a feature as constant if its variance is within rounding error of 0 (scikit-learn's bound).
        n, eps = statistics.n_rows, np.finfo(np.float64).eps
        variance, mean = statistics.variance, statistics.mean
        constant = variance <= n * eps * variance + (n * mean * eps) ** 2
        inverse_deviation: np.ndarray = 1 / np.sqrt(np.where(constant, 1.0, variance))
        return inverse_deviation

    def record(self) -> dict[str, Any]:
        return {"kind": self.kind, "width": self.width}


@kernel
def _multiply(data, indices, weights, new):
    for p in range(len(data)):
        new[p] = data[p] * weights[indices[p]]
