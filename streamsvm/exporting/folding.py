"""Folding of linear transforms into a model's coefficients, which leaves the steps that are not linear.

Weights of features (scale, idf, df) and a selection are diagonal matrices, and become part of the
coefficients if no other step follows them. With them as vectors, and features that are not selected at 0, all
steps keep the width of the data: any program that can multiply columns can follow them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.errors import ModelError, Remedy
from streamsvm.model.model import Model
from streamsvm.transforms import Transform
from streamsvm.transforms.bias import Bias
from streamsvm.transforms.counts import Counts
from streamsvm.transforms.feature_weights import FeatureWeights
from streamsvm.transforms.selection import Select

Step = Transform | np.ndarray
_PIECE_SIZE = 2**18  # coefficients that are read at a time


class FoldedModel(NamedTuple):
    """Steps and coefficients: the scores of x are ``steps(x) @ coef + intercept``."""

    steps: list[Step]  # in their order; an array, float64 of shape (n_features,), multiplies the columns
    coef: Any  # scipy.sparse.csr_array of float64, shape (n_features, n_classes), without zeros
    intercept: np.ndarray  # (n_classes,) float64
    bias: float | None  # the constant feature whose coefficients times this are the intercepts


def fold(model: Model, prune: float = 0.0) -> FoldedModel:
    """Fold the linear transforms of a model into its coefficients.

    `prune` is as for `Model.save`. Raises `ModelError` if the model hashes features, or is one of sequences.
    """
    import scipy.sparse

    if model.transitions_ is not None:
        raise ModelError("a model of sequences can be exported to streamsvm and csv alone")
    if model.takes_any_feature:
        raise ModelError(
            "the model hashes the features of the data, which other programs do not; it can be exported to "
            "streamsvm and csv alone"
        )
    steps: list[Step] = []
    columns, bias = np.arange(model.n_features_in_), None
    for transform in model.transforms:
        factors = np.zeros(model.n_features_in_)
        if isinstance(transform, Bias):
            bias = transform.value
        elif isinstance(transform, FeatureWeights):
            factors[columns] = transform.array
            _multiply(steps, factors)
        elif isinstance(transform, Select):
            columns = columns[transform.array]
            factors[columns] = 1
            _multiply(steps, factors)
        elif not isinstance(transform, Counts):  # which only checks
            steps.append(transform)
    coef, intercept = _sparse(model, columns, prune, bias)
    if steps and isinstance(steps[-1], np.ndarray):
        coef = scipy.sparse.csr_array(scipy.sparse.diags_array(steps.pop()) @ coef)
    return FoldedModel(steps, coef, intercept, bias)


def _multiply(steps: list[Step], factors: np.ndarray) -> None:
    if steps and isinstance(steps[-1], np.ndarray):
        factors = steps.pop() * factors
    steps.append(factors)


def _sparse(model: Model, columns: np.ndarray, prune: float, bias: float | None) -> tuple[Any, np.ndarray]:
    """Return the coefficients, in the rows `columns` of a sparse matrix, and the intercepts."""
    import scipy.sparse

    n_classes, n = len(model.classes_), len(columns)
    parts, sizes = [], np.zeros(model.n_features_in_, np.int64)
    intercept = np.zeros(n_classes)
    step = max(1, _PIECE_SIZE // max(n_classes, 1))
    for begin in range(0, model.n_features, step):
        piece = model.stored_coef.dense(begin, min(begin + step, model.n_features))
        if prune > 0:
            piece = np.where(np.abs(piece) > prune, piece, piece.dtype.type(0))
        if bias is not None and begin + len(piece) > n:  # its row is the last
            intercept = bias * piece[-1].astype(np.float64)
            piece = piece[:-1]
        rows, classes = np.nonzero(piece)
        sizes[columns[begin : begin + len(piece)]] = np.bincount(rows, minlength=len(piece))
        parts.append((piece[rows, classes].astype(np.float64), classes.astype(np.int32)))
    data = np.concatenate([np.zeros(0), *(part[0] for part in parts)])
    indices = np.concatenate([np.zeros(0, np.int32), *(part[1] for part in parts)])
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    shape = (model.n_features_in_, n_classes)
    return scipy.sparse.csr_array((data, indices, indptr), shape=shape), intercept


def linear_only(folded: FoldedModel, where: str) -> FoldedModel:
    """Return `folded` if it has no steps; else raise `ModelError`, which calls the format `where`."""
    names = [step.name for step in folded.steps if isinstance(step, Transform)]
    if names:
        raise ModelError(
            f"the model transforms rows by {', '.join(names)}, which {where} cannot hold",
            remedy=Remedy("export to sklearn or onnx, which can, or to streamsvm"),
        )
    return folded


def two_class_difference(folded: FoldedModel) -> tuple[Any, np.ndarray]:
    """Subtract the first of two classes from the second: coefficients (n_features, 1) and intercept (1,)."""
    coef = folded.coef[:, [1]] - folded.coef[:, [0]]
    return coef.tocsr(), folded.intercept[1:] - folded.intercept[:1]
