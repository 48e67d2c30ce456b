"""Fold the linear transforms of a model into its coefficients; nonlinear steps remain.

Feature weights, centring and selection are affine maps of columns. They become part of the coefficients and
intercepts if no nonlinear step follows. Otherwise, successive maps become one vector of factors and one of
summands. Both are zero for unselected features, so all steps keep the number of columns of the data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import ModelError
from streamsvm.model.model import Model
from streamsvm.transforms import Transform
from streamsvm.transforms.bias import Bias
from streamsvm.transforms.center import Center
from streamsvm.transforms.counts import Counts
from streamsvm.transforms.feature_weights import FeatureWeights
from streamsvm.transforms.fourier import Fourier
from streamsvm.transforms.selection import Select


class Cosines(NamedTuple):
    """Random Fourier features: x becomes ``sqrt(2 / D) cos(x @ weights + offsets)``."""

    name: str
    gamma: float | None
    weights: np.ndarray  # (n_features_in, D) float32
    offsets: np.ndarray  # (D,) float32


Step = Transform | np.ndarray | Cosines


class FoldedModel(NamedTuple):
    """Steps and coefficients: the scores of x are ``steps(x) @ coef + intercept``."""

    steps: list[Step]  # in order; factors and summands are a float64 array of shape (2, n_features)
    coef: Any  # scipy.sparse.csr_array of float64, shape (n_features or D, n_classes), no stored zeros
    intercept: np.ndarray  # (n_classes,) float64
    bias: float | None  # value of the constant feature; None if intercepts are 0


def fold(model: Model, prune: float = 0.0) -> FoldedModel:
    """Fold the linear transforms of a model into its coefficients.

    `prune` is as for `Model.save`. Raises `ModelError` if the model hashes features or predicts sequences.
    """
    import scipy.sparse

    if model.transitions_ is not None:
        raise ModelError("a sequence model can be exported only to streamsvm")
    if model.takes_any_feature:
        raise ModelError("the model hashes features, which other programs cannot do; export to streamsvm")
    steps: list[Step] = []
    last = identity = np.array([np.ones(model.n_features_in_), np.zeros(model.n_features_in_)])
    columns, bias = np.arange(model.n_features_in_), None
    for transform in model.transforms:
        if isinstance(transform, Bias):
            bias = transform.value
        elif isinstance(transform, FeatureWeights | Select):
            array = np.zeros(model.n_features_in_)
            if isinstance(transform, Select):
                columns = columns[transform.array]
            array[columns] = 1 if isinstance(transform, Select) else transform.array
            last = last - [0 * array, array] if isinstance(transform, Center) else last * array
        elif not isinstance(transform, Counts):
            step = _cosines(model, transform, columns) if isinstance(transform, Fourier) else transform
            steps += [step] if last is identity else [last, step]
            last = identity
    coef, intercept = _sparse(model, columns, prune, bias)
    if last is not identity:
        if last[1].any():
            intercept, bias = intercept + last[1] @ coef, bias or 1.0
        coef = scipy.sparse.csr_array(scipy.sparse.diags_array(last[0]) @ coef)
    return FoldedModel(steps, coef, intercept, bias)


def _cosines(model: Model, transform: Fourier, columns: np.ndarray) -> Cosines:
    directions, offsets = transform.directions()
    weights = np.zeros((model.n_features_in_, transform.outputs), np.float32)
    weights[columns] = directions
    return Cosines(transform.name, transform.gamma, weights, offsets)


def _sparse(model: Model, columns: np.ndarray, prune: float, bias: float | None) -> tuple[Any, np.ndarray]:
    """Return sparse coefficients (one row per column of the data, or per cosine) and intercepts."""
    import scipy.sparse

    coef = scipy.sparse.csr_array(model.stored_coef.matrix(), copy=True)
    if prune > 0:
        coef.data[np.abs(coef.data) <= prune] = 0
    coef.eliminate_zeros()
    coef = coef.astype(np.float64)
    intercept = np.zeros(coef.shape[1])
    if bias is not None:  # the last row contains the coefficients of the constant feature
        intercept, coef = bias * coef[[-1]].toarray()[0], coef[:-1]
    if model.transforms and isinstance(model.transforms[-1], Fourier):
        return coef, intercept
    placed = scipy.sparse.eye_array(model.n_features_in_, format="csr")[:, columns]
    return scipy.sparse.csr_array(placed @ coef), intercept


def two_class_difference(folded: FoldedModel) -> tuple[Any, np.ndarray]:
    """Return coefficients (n_features, 1) and intercept (1,): the second class minus the first."""
    coef = folded.coef[:, [1]] - folded.coef[:, [0]]
    return coef.tocsr(), folded.intercept[1:] - folded.intercept[:1]
