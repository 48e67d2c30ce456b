"""Strongest features of a class: those with its largest coefficients."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from streamsvm.base.text import printable
from streamsvm.errors import ModelError
from streamsvm.model.coefficients import SparseCoef, StoredCoef

if TYPE_CHECKING:
    from streamsvm.model.model import Model

_WORD = re.compile("([+-])([0-9]{1,10}) (.*)")  # sign and place of an n-gram that is hashed
_MAX_ENTRIES = 2**24  # coefficients that are searched at a time


def strongest_features(
    model: Model, top: int, classes: slice = slice(None)
) -> list[list[tuple[str | int, float]]]:
    """Find the features with the largest coefficients above 0 of each class.

    Parameters
    ----------
    model : Model
    top : int
        Largest number of features of each class. Of equal coefficients the first features are taken.
    classes : slice
        Classes to search.

    Returns
    -------
    list of list of (str or int, float)
        Features and coefficients of each class, largest first. Features are those after the transforms,
        without the constant one of ``bias``: names if there are any, of hashed texts a common n-gram that is
        hashed there, with the coefficient of its count; else numbers, as in LIBSVM text if the data was text.
    """
    name, negated = _namer(model)
    first, last, _ = classes.indices(len(model.classes_))
    coef = model.stored_coef
    n_features = model.n_features - (model.bias is not None)
    step = len(model.classes_) if isinstance(coef, SparseCoef) else max(1, _MAX_ENTRIES // max(n_features, 1))
    found: list[list[tuple[str | int, float]]] = []
    for begin in range(first, last, step):
        end = min(begin + step, last)
        features, codes, weights = _positive(coef, begin, end, negated)
        inside = features < n_features
        features, codes, weights = features[inside], codes[inside], weights[inside]
        order = np.lexsort((features, -weights, codes))
        starts = np.searchsorted(codes[order], np.arange(end - begin + 1))
        for c in range(end - begin):
            best = order[starts[c] : min(starts[c] + top, starts[c + 1])]
            pairs = zip(features[best].tolist(), weights[best].tolist(), strict=True)
            found.append([(name(feature), weight) for feature, weight in pairs])
    return found


def _positive(
    coef: StoredCoef, begin: int, end: int, negated: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return feature, class (counted from `begin`) and value of the coefficients above 0 of some classes.

    Those of the `negated` features are taken with the other sign.
    """
    if isinstance(coef, SparseCoef):
        places = np.flatnonzero((coef.indices >= begin) & (coef.indices < end))
        features = np.searchsorted(coef.indptr, places, "right") - 1
        values = np.where(np.isin(features, negated), -coef.data[places], coef.data[places])
        above = values > 0
        return features[above], coef.indices[places[above]] - begin, values[above]
    weights = coef.weights[:, begin:end]
    if len(negated):
        rows = negated if coef.features is None else np.flatnonzero(np.isin(coef.features, negated))
        weights = weights.copy()
        weights[rows] *= -1
    features, codes = np.nonzero(weights > 0)
    values = weights[features, codes]
    return features if coef.features is None else coef.features[features], codes, values


def _namer(model: Model) -> tuple[Callable[[int], str | int], np.ndarray]:
    """Return a function that maps a feature to its name or number, and the features of inverted n-grams."""
    names = model.feature_names_out_
    if names is not None:
        return names.__getitem__, np.zeros(0, np.int64)
    columns, base = None, model.record.get("index_base") or 0
    words = (model.record.get("encoding") or {}).get("words") or ""
    for transform in model.transforms:
        if transform.takes_any_feature:
            base, words = 0, ""
        elif transform.name == "select" and transform.array is not None:
            columns = transform.array if columns is None else columns[transform.array]
    word_of: dict[int, str] = {}
    inverted = []
    lines = filter(None, words.split("\n")) if isinstance(words, str) else [str(words)]
    for line in lines:
        found = _WORD.fullmatch(line)
        if found is None or int(found[2]) >= model.n_features_in_:
            raise ModelError(f"the model: how columns became features is not valid: {printable(line)!r:.40}")
        word_of[int(found[2])] = found[3]
        if found[1] == "-":
            inverted.append(int(found[2]))
    negated = np.array(inverted, np.int64)

    def name(feature: int) -> str | int:
        number = base + int(feature if columns is None else columns[feature])
        return word_of.get(number, number)

    return name, negated if columns is None else np.flatnonzero(np.isin(columns, negated))
