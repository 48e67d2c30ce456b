"""AnnData that is backed by a file, and views of it, are scored in parts as the same rows in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import save_weights

from streamsvm import Model, calibrate, evaluate, load_model, predict
from streamsvm.errors import InputError, ModelError, StreamsvmWarning
from streamsvm.model.matrix import matrix_parts

N, D, K = 60, 8, 3
GENES = [f"g{j}" for j in range(D)]
WEIGHTS = np.random.default_rng(0).integers(-3, 4, size=(D, K)).astype(np.float32)
X = np.random.default_rng(1).poisson(1.5, size=(N, D)).astype(np.float32)  # scores are exact
BEST = np.array(["a", "b", "c"])[(X @ WEIGHTS).argmax(axis=1)]
Y = np.where(np.random.default_rng(2).random(N) < 0.6, BEST, "a")
PART = 2 * 7 * D * 16  # the memory that gives parts of seven rows


@pytest.fixture
def model(tmp_path: Path) -> Model:
    record = {"classes": ["a", "b", "c"], "n_features": D, "C": 1.0, "index_base": None, "dtype": "float32"}
    save_weights(tmp_path / "model", WEIGHTS, record | {"label": "type"}, names=GENES)
    return load_model(tmp_path / "model")


def cells(matrix: Any = sp.csr_matrix(X)) -> anndata.AnnData:  # noqa: B008
    obs = pd.DataFrame({"type": Y}, [f"cell{i}" for i in range(N)])
    adata = anndata.AnnData(matrix, obs, pd.DataFrame(index=GENES))
    adata.raw = adata
    adata.layers["twice"] = 2 * X
    return adata[:, ::-1].copy()


@pytest.fixture
def backed(tmp_path: Path) -> anndata.AnnData:
    cells().write_h5ad(tmp_path / "cells.h5ad")
    return anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r+")


ORDER = np.random.default_rng(3).permutation(N)[:40]


@pytest.mark.parametrize("rows", [None, slice(5, 48), ORDER, Y == "a", np.zeros(N, bool)])
@pytest.mark.parametrize("matrix", [sp.csr_matrix(X), X], ids=["csr", "dense"])
def test_backed_rows_are_scored_as_those_in_memory(
    matrix: Any, rows: Any, model: Model, tmp_path: Path
) -> None:
    cells(matrix).write_h5ad(tmp_path / "a.h5ad")
    data = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")
    data, rows = (data[:, ::-1], slice(None)) if rows is None else (data[rows], rows)
    np.testing.assert_array_equal(model.predict(data), BEST[rows])
    np.testing.assert_array_equal(model.decision_function(data), X[rows] @ WEIGHTS)
    for options in {}, {"raw": True}, {"layer": "twice"}:
        found = predict(model, data, memory=PART, **options)
        np.testing.assert_array_equal(found.labels[:, 0], BEST[rows])
    predict(model, data, tmp_path / "p.csv", memory=PART)
    table = pd.read_csv(tmp_path / "p.csv")
    assert table["row"].tolist() == [f"cell{i}" for i in np.arange(N)[rows]]
    if len(table):
        share = np.mean(BEST[rows] == Y[rows])
        assert evaluate(model, data, memory=PART).accuracy == model.score(data, "type") == share
        temperature = calibrate(model, pd.DataFrame(X[rows], columns=GENES), Y[rows]).temperature
        assert calibrate(model, data, memory=PART).temperature == pytest.approx(temperature, rel=1e-6)


def test_a_view_with_fewer_features_is_matched_by_name_with_one_warning(
    model: Model, backed: anndata.AnnData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(backed.X), "to_memory", None)  # that would load all rows
    view = backed[ORDER, ["g5", "g2"]]
    with pytest.warns(StreamsvmWarning) as caught:
        found = predict(model, view, memory=PART)
    [line] = [str(each.message) for each in caught if issubclass(each.category, StreamsvmWarning)]
    assert "6 are missing" in line
    np.testing.assert_array_equal(found.scores[:, 0], (X[ORDER][:, [2, 5]] @ WEIGHTS[[2, 5]]).max(axis=1))


def test_parts_take_the_memory_that_is_given(backed: anndata.AnnData) -> None:
    for data in backed, backed[ORDER]:
        sizes = [part.X.shape for _, part in matrix_parts(data, memory=PART // 2)]
        assert sizes == [(7, D)] * (data.n_obs // 7) + [(data.n_obs % 7, D)]


def test_what_cannot_be_read_in_parts_is_refused(model: Model, tmp_path: Path) -> None:
    wrong = X.copy()
    wrong[33, 2] = np.nan
    cells(wrong).write_h5ad(tmp_path / "nan.h5ad")
    cells(sp.csc_matrix(X)).write_h5ad(tmp_path / "csc.h5ad")
    anndata.AnnData(var=cells().var, layers={"twice": 2 * X}).write_h5ad(tmp_path / "none.h5ad")
    refusals: list[tuple[str, dict[str, Any], type, str]] = [
        ("nan.h5ad", {}, ModelError, r"X\[33, 5\] \('g2'\): nan is not finite"),
        ("nan.h5ad", {"y": Y}, ModelError, "groups .* file-backed AnnData; .* obs with label=.*to_memory"),
        ("nan.h5ad", {"layer": "thrice"}, InputError, "X has no layer 'thrice'"),
        ("csc.h5ad", {}, ModelError, r"X is CSC, .* in blocks; pass X.to_memory\(\)"),
        ("none.h5ad", {}, ModelError, "has no matrix X; name another matrix with layer="),
        ("csc.h5ad", {"raw": True}, ModelError, r"X is CSC, .* in blocks; pass X.to_memory\(\)"),
    ]
    for name, options, error, match in refusals:
        data = anndata.read_h5ad(tmp_path / name, backed="r")
        with pytest.raises(error, match=match):
            evaluate(model, data, memory=PART, **options)
