"""Export a model as a fitted scikit-learn estimator in a joblib file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.errors import ModelError, extra
from streamsvm.exporting.columns import raw_transformer
from streamsvm.exporting.folding import Cosines, FoldedModel, Step, fold, two_class_difference
from streamsvm.model.model import Model

_MAX_DENSE = 2**24  # number of coefficients; larger matrices may be stored as sparse matrices


def write_estimator(model: Model, path: Path, *, prune: float) -> None:
    """Write a fitted ``LinearSVC``, or a ``Pipeline`` ending with one if data is encoded or transformed.

    A large coefficient array is stored as a sparse SciPy matrix if that is smaller; rows to predict should
    then be sparse, or float64. Raises `ModelError` if a package is not installed, or if scikit-learn cannot
    apply a transform or encode a column.
    """
    with extra(ModelError, "the format sklearn needs scikit-learn, which is not installed", "sklearn"):
        import joblib
        from sklearn.pipeline import make_pipeline
    raw = raw_transformer(model)
    folded = fold(model, prune)
    steps = [part for step in folded.steps for part in _transformers(step, model)]
    for step in steps:
        step.n_features_in_ = model.n_features_in_
    steps.append(_linear_svc(model, folded))
    if raw is not None:
        if any(getattr(step, "with_mean", False) for step in steps):  # such steps reject sparse rows
            raw.sparse_output_ = False
        steps.insert(0, raw)
    elif model.feature_names_in_ is not None:  # later steps receive arrays without names
        steps[0].feature_names_in_ = model.feature_names_in_.copy()
    joblib.dump(steps[0] if len(steps) == 1 else make_pipeline(*steps), path)


def _linear_svc(model: Model, folded: FoldedModel) -> Any:
    from sklearn.svm import LinearSVC

    coef, intercept = folded.coef, folded.intercept
    if len(model.classes_) == 2:
        coef, intercept = two_class_difference(folded)
    svm = LinearSVC(C=float(model.record.get("C") or 1))
    svm.classes_, svm.n_features_in_ = model.classes_, coef.shape[0]
    n = coef.shape[0] * coef.shape[1]
    sparse = n > _MAX_DENSE and sum(each.nbytes for each in (coef.data, coef.indices, coef.indptr)) < 8 * n
    svm.coef_ = coef.T.tocsr() if sparse else np.ascontiguousarray(coef.T.toarray())
    svm.intercept_ = intercept.copy()
    svm.n_iter_ = int(model.record.get("passes") or 1)
    return svm


def _transformers(step: Step, model: Model) -> list[Any]:
    from sklearn import preprocessing

    if isinstance(step, np.ndarray):
        return [_scaling(*step)]
    if isinstance(step, Cosines):
        return [_sampler(step)]
    if step.name == "log1p":
        return [preprocessing.FunctionTransformer(np.log1p, validate=True, accept_sparse=True)]
    if step.name == "l2":
        return [preprocessing.Normalizer("l2")]
    if step.name == "binarize":
        return [preprocessing.Binarizer()]
    if step.name == "normalize":  # the sum of non-negative values is their l1 norm
        target = np.full(model.n_features_in_, step.target)  # type: ignore[attr-defined]
        return [preprocessing.Normalizer("l1"), _scaling(target, np.zeros_like(target))]
    raise ModelError(f"scikit-learn cannot apply the transform {step.name}; export to onnx or streamsvm")


def _sampler(step: Cosines) -> Any:
    from sklearn.kernel_approximation import RBFSampler

    sampler = RBFSampler(gamma=step.gamma, n_components=len(step.offsets))
    sampler.random_weights_, sampler.random_offset_ = step.weights, step.offsets
    sampler._n_features_out = len(step.offsets)
    return sampler


def _scaling(factors: np.ndarray, added: np.ndarray) -> Any:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=bool(added.any()))  # a scaler with a mean rejects sparse rows
    with np.errstate(divide="ignore"):
        scaler.scale_ = 1 / factors  # infinite for unselected features
    scaler.mean_ = -added / np.where(factors != 0, factors, 1.0)
    scaler.var_ = scaler.scale_**2
    scaler.n_samples_seen_ = 1
    return scaler
