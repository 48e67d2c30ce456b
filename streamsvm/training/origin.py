"""Training that continues from a model, with the features and classes of both the model and new data.

With V = W - W₀, where W₀ are the model's weights, training minimises ½‖V‖² + Σ_i C_i loss(Wᵀx_i). As a
function of V, the loss of row i is shifted by the scores W₀ᵀx_i, which adds -⟨V, W₀⟩ to the dual objective.
Block steps use the scores Wᵀx_i, so they need no change: they start at W = W₀ with zero duals.
"""

from __future__ import annotations

import numpy as np

from streamsvm.base.label_values import TEXT
from streamsvm.data.names import FeatureMatch, match_features
from streamsvm.errors import Call, Option, Remedy, StoreError, StreamsvmWarning, warn
from streamsvm.inputs.blocks import check_has_classes
from streamsvm.model.coefficients import Coefficients
from streamsvm.model.model import Model
from streamsvm.run.weights import WeightStorage
from streamsvm.store import Store
from streamsvm.store.joined import all_classes
from streamsvm.store.views import matched, recoded
from streamsvm.training.spec import Spec

_PIECE_WEIGHTS = 2**20


class Origin:
    """Weights W₀ of a model, for the features, classes and dtype of a training run that continues from it.

    The features of the model come first, in the model's order, except that a constant feature stays last. The
    weights of new features and classes are zero.
    """

    def __init__(self, model: Model, spec: Spec, classes: tuple[str, ...]) -> None:
        code = {name: c for c, name in enumerate(classes)}
        self._codes = np.array([code[name] for name in model.record["classes"]])
        self._coef, self._spec = model.stored_coef, spec
        self._n_plain = model.n_features - (model.bias is not None)

    def rows(self, begin: int, end: int) -> np.ndarray:
        """Return the weights of features ``begin:end``, centred over the classes if the loss requires it."""
        spec, coef = self._spec, self._coef
        weights = np.zeros((end - begin, spec.n_classes))
        if (last := min(end, self._n_plain)) > begin:
            weights[: last - begin, self._codes] = coef.dense(begin, last)
        if end == spec.n_features and self._n_plain < coef.shape[0]:
            weights[-1, self._codes] = coef.dense(self._n_plain, coef.shape[0])[0]
        if spec.loss.extra_columns or spec.loss.centred:
            weights -= weights.mean(axis=1, keepdims=True)
        return weights.astype(spec.dtype)

    def write(self, storage: WeightStorage) -> None:
        """Write the weights to `storage`, whose weights must be zero."""
        spec = self._spec
        columns = np.arange(spec.n_classes) if spec.groups is None else spec.groups.columns
        step = max(1, _PIECE_WEIGHTS // spec.n_classes)
        for begin in range(0, spec.n_features, step):
            rows = self.rows(begin, min(begin + step, spec.n_features))
            used = np.flatnonzero(rows.any(axis=1))  # writing zeros would fill the holes of sparse files
            storage.weights.current[(begin + used)[:, np.newaxis], columns] = rows[used]

    def distance(self, coefficients: Coefficients) -> tuple[float, float]:
        """Return ‖V‖² and ⟨V, W₀⟩ for V = W - W₀, where W are the `coefficients` of all classes in order."""
        begin, sums = 0, np.zeros(2)
        for W in coefficients.pieces():
            W0 = self.rows(begin, begin + len(W)).astype(np.float64)
            V = W - W0
            # Dot products are avoided, because their last bits depend on the number of threads.
            sums += (V * V).sum(), (V * W0).sum()
            begin += len(W)
        return float(sums[0]), float(sums[1])


def extend_schema(raw: Store, model: Model) -> Store:
    """Return a view of a store with the features and classes of a model, followed by new ones.

    New features are left out if the model selects features. Hashing leads to no new features. Raises
    `StoreError` if the data and the model identify features differently or have no class in common, and
    `FeatureError` if both have feature names, but none in common.
    """
    known, label_dtype = model.record["classes"], model.record.get("label_dtype", TEXT)
    check_has_classes(raw, known)
    label_dtype = label_dtype if label_dtype == raw.label_dtype else TEXT
    classes = all_classes([known, raw.classes], are_numbers=np.dtype(label_dtype).kind in "iuf")
    return recoded(_with_features(raw, model), classes, label_dtype)


def _with_features(raw: Store, model: Model) -> Store:
    where, known, names = str(raw.path), model.feature_names_in_, raw.feature_names()
    bases, width = {raw.index_base, model.record["index_base"]}, model.n_features_in_
    fits = None in bases and raw.n_features == width and not model.takes_any_feature
    alike = bases in ({0}, {1}) or fits or known is not None
    alike &= (known is None) == (names is None) and raw.meta.get("encoding") == model.record.get("encoding")
    if not alike:
        raise StoreError(
            f"{where}: features are named, numbered or encoded differently from those of the model",
            remedy=Remedy("convert the data with {}", Call("convert", options=(Option("like"),))),
        )
    if known is None or names is None:
        identity = FeatureMatch(np.arange(raw.n_features))
        return matched(raw, identity, None, width) if raw.n_features < width else raw
    match = match_features(names, known, where)
    if not any(each.name == "select" for each in model.transforms):
        known = list(dict.fromkeys([*known, *names]))
        match = match_features(names, known, where, model="the model and the data")
    if match.message is not None:
        warn(StreamsvmWarning(match.message))
    return matched(raw, match, list(known))
