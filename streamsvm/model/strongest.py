"""Find the features with the largest coefficients of each class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.data.names import encoded_names
from streamsvm.model.coefficients import SparseCoef, StoredCoef

if TYPE_CHECKING:
    from streamsvm.model.model import Model

_MAX_ENTRIES = 2**24


def strongest_features(
    model: Model, top: int, classes: slice = slice(None)
) -> list[list[tuple[str | int, float]]]:
    """Return the features with the largest positive coefficients, for each class in `classes`.

    Each list contains up to `top` pairs of a feature and its coefficient, in decreasing order of coefficient;
    ties are in feature order. The constant feature of ``bias`` is left out. A feature is identified by its
    name or, if features have no names, by its number in the training data, as in LIBSVM text.
    """
    name = feature_namer(model)
    first, last, _ = classes.indices(len(model.classes_))
    coef = model.stored_coef
    n_features = model.n_features - (model.bias is not None)
    step = len(model.classes_) if isinstance(coef, SparseCoef) else max(1, _MAX_ENTRIES // max(n_features, 1))
    result: list[list[tuple[str | int, float]]] = []
    for begin in range(first, last, step):
        end = min(begin + step, last)
        features, codes, weights = _positive(coef, begin, end)
        in_range = features < n_features
        features, codes, weights = features[in_range], codes[in_range], weights[in_range]
        order = np.lexsort((features, -weights, codes))
        starts = np.searchsorted(codes[order], np.arange(end - begin + 1))
        for c in range(end - begin):
            best = order[starts[c] : min(starts[c] + top, starts[c + 1])]
            pairs = zip(features[best].tolist(), weights[best].tolist(), strict=True)
            result.append([(name(feature), weight) for feature, weight in pairs])
    return result


def _positive(coef: StoredCoef, begin: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (features, classes - begin, values) of the positive coefficients of classes `begin:end`."""
    if isinstance(coef, SparseCoef):
        places = np.flatnonzero((coef.indices >= begin) & (coef.indices < end) & (coef.data > 0))
        features = np.searchsorted(coef.indptr, places, "right") - 1
        return features, coef.indices[places] - begin, coef.data[places]
    weights = coef.weights[:, begin:end]
    features, codes = np.nonzero(weights > 0)
    values = weights[features, codes]
    return features if coef.features is None else coef.features[features], codes, values


def feature_namer(model: Model) -> Callable[[int], str | int]:
    """Return a function that maps a feature after the transforms to its name, or its number in the data."""
    names = model.feature_names_out_
    if names is not None:
        return names.__getitem__
    columns, base = None, model.record.get("index_base") or 0
    for transform in model.transforms:
        if transform.takes_any_feature:
            base = 0
        elif transform.name == "select" and transform.array is not None:
            columns = transform.array if columns is None else columns[transform.array]
    encoded = (model.record.get("encoding") or {}).get("columns", ())
    named = [name for each in encoded for name in encoded_names(each)]

    def name_of(feature: int) -> str | int:
        number = int(feature if columns is None else columns[feature])
        return named[number] if number < len(named) else base + number - len(named)

    return name_of
