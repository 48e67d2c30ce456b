"""The features with the largest coefficients of some classes, read in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamsvm.model import Model

_PIECE = 2**21  # coefficients that are read at a time


def top_features(model: Model, codes: Sequence[int], n: int = 10) -> list[list[tuple[str, float]]]:
    """Names and coefficients of the features that speak most for some classes.

    Parameters
    ----------
    model : Model
    codes : sequence of int
        Positions of the classes in ``model.classes_``.
    n : int
        Features for each class, at most: those of the largest coefficients above 0.

    Returns
    -------
    list of list of (str, float)
        For each class, the largest coefficient first. A feature without a name has its number: in the model's
        index base, or of the result if features are hashed.
    """
    coef, columns = model.coef_, np.asarray(codes, np.int64)
    n_features, n_classes = coef.shape
    best = np.zeros((0, len(columns)))
    at = np.zeros((0, len(columns)), np.int64)
    step = max(1, _PIECE // n_classes)
    for begin in range(0, n_features, step):
        piece = coef[begin : min(begin + step, n_features)][:, columns]
        piece = piece if isinstance(piece, np.ndarray) else piece.toarray()
        numbers = np.broadcast_to(np.arange(begin, begin + len(piece))[:, None], piece.shape)
        best, at = np.concatenate([best, piece]), np.concatenate([at, numbers])
        order = np.argsort(-best, axis=0, kind="stable")[:n]
        best, at = np.take_along_axis(best, order, axis=0), np.take_along_axis(at, order, axis=0)
    return [
        [(feature_name(model, int(j)), float(w)) for j, w in zip(at[:, c], best[:, c], strict=True) if w > 0]
        for c in range(len(columns))
    ]


def feature_name(model: Model, column: int) -> str:
    """The name of a row of ``model.coef_``, or else its number."""
    names = model.feature_names_out_
    if names is not None:
        return str(names[column])
    base = 0 if model.takes_any_feature else model.record.get("index_base") or 0
    return f"feature {column + base}"
