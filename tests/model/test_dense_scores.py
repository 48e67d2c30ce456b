"""Scores of dense rows by coefficients of every layout are those of NumPy."""

from __future__ import annotations

import itertools
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import save_weights

from streamsvm import load_model
from streamsvm.data.rows import Rows, dense_rows
from streamsvm.errors import ModelError
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.matrix import rows_of_matrix

D, N = 300, 90
LAYOUTS = {"dense": (5, 1.0, 1.0), "csr": (70, 0.03, 0.9), "rows": (70, 1.0, 0.02)}  # classes, and shares


def weights_of(layout: str, dtype: str = "float32") -> np.ndarray:
    """Whole numbers, so that scores are exact, and ties occur."""
    n_classes, of_values, of_rows = LAYOUTS[layout]
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 4, size=(D, n_classes)) * (rng.random((D, n_classes)) < of_values)
    return (weights * (rng.random((D, 1)) < of_rows)).astype(dtype)


def save(path: Path, weights: np.ndarray, **entries) -> None:
    classes = [f"c{c}" for c in range(weights.shape[1])]
    names = [f"g{j}" for j in range(entries.get("n_features_in", D))]
    record = {"classes": classes, "n_features": D, "index_base": None, "dtype": str(weights.dtype), "C": 1.0}
    save_weights(path, weights, {**record, **entries}, names=names)


def values(dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(1).integers(-3, 4, size=(N, D)).astype(dtype)


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("streamsvm.model.coefficients._MIN_SAVED_BYTES", 100)
    monkeypatch.setattr("streamsvm.model.scoring._PIECE_SIZE", 1000)
    return request.param


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_of_dense_rows(layout: str, dtype: str, tmp_path: Path) -> None:
    weights, X = weights_of(layout, dtype), values()
    save(tmp_path / "model", weights)
    model = load_model(tmp_path / "model")
    assert model.record["layout"] == layout
    frame = pd.DataFrame(X, columns=model.feature_names_in_)
    assert rows_of_matrix(model, frame).dense
    assert np.array_equal(model.decision_function(frame), X @ weights)
    assert model.decision_function(frame).dtype == dtype
    np.testing.assert_array_equal(model.predict(frame), model.classes_[(X @ weights).argmax(axis=1)])
    sparse = anndata.AnnData(sp.csr_matrix(X), var=pd.DataFrame(index=model.feature_names_in_))
    np.testing.assert_array_equal(model.decision_function(sparse), X @ weights)
    for given, memory in itertools.product((frame, sparse), (1, 7 * weights.shape[1] * 8, 2**30)):
        pieces = [
            (begin, scores.copy()) for begin, scores in model.scores(rows_of_matrix(model, given), memory)
        ]
        assert max(scores.nbytes for _, scores in pieces) <= max(memory, weights[0].nbytes)
        np.testing.assert_array_equal(np.concatenate([scores for _, scores in pieces]), X @ weights)


def rows_of(X: np.ndarray) -> Rows:
    return dense_rows(X, np.zeros(len(X), np.int32), np.zeros(len(X)))


def test_dense_rows_that_do_not_fit_the_model_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "model", weights_of("dense"))
    model, X = load_model(tmp_path / "model"), values()
    [(rows, names)] = RowsToScore(model).read(rows_of(X))
    assert rows.dense
    assert names.tolist() == list(range(1, N + 1))
    with pytest.raises(ModelError, match=f"the data has {D - 1} features, but the model has {D}"):
        list(RowsToScore(model).read(rows_of(np.ascontiguousarray(X[:, 1:]))))
    with pytest.raises(ModelError, match=f"{D - 1} features, but the model has {D}"):
        list(model.scores(rows_of(np.ascontiguousarray(X[:, 1:]))))
    X[4, 5] = np.nan
    with pytest.raises(ModelError, match="row 5 of the data: the value nan is not finite"):
        list(RowsToScore(model).read(rows_of(X)))
