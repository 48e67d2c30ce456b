"""Centred columns of numbers: rows, the memory that they take, data that has none, and the optimum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import streamsvm
from streamsvm import convert, open_store, plan
from streamsvm.errors import SettingsError
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.fitting import fit_transforms, raw_store
from streamsvm.transforms.store import transformed

N = 300


def test_numbers_lose_their_mean_and_categories_stay_sparse(tmp_path: Path) -> None:
    """A missing number is centred as the 0 that its encoding makes of it; only numbers are scaled."""
    rng = np.random.default_rng(2)
    age, weight = np.where(rng.random((2, N)) < 0.3, rng.normal(40, 5, (2, N)), 0)
    weight[::7] = np.nan
    town, label = rng.integers(0, 9, N), np.where(age > 35, "old", "young")
    frame = pd.DataFrame({"age": age, "town": town, "weight": weight, "label": label})
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"categorical": "town", "missing": "indicator", "label": "label", "shuffle": False}
    convert([tmp_path / "t.csv"], tmp_path / "t.zarr", dtype="float64", **options)
    X = np.column_stack([age, np.eye(9)[town], np.nan_to_num(weight), np.isnan(weight)])
    sizes = (3 + X[:, 11]).tolist()  # both numbers, the town, and whether the weight is missing
    centred = X - X.mean(axis=0) * np.isin(np.arange(12), [0, 10])
    scale = np.where(np.isin(np.arange(12), [0, 10]), X.std(axis=0), 1)
    for text, expected in ("center", centred), ("scale=std,center", centred / scale):
        with open_store(tmp_path / "t.zarr") as store:
            [fitted] = fit_transforms(parse_transforms(text), raw_store(store, 2**20))
            view = transformed(store, fitted.transforms)
            rows, most = view.rows(0, N), np.diff(view.indptr(0, N)).tolist()
        found = sp.csr_array((rows.data, rows.indices, rows.indptr), X.shape)
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-12)
        assert found.has_canonical_format
        assert np.diff(rows.indptr).tolist() == sizes
        assert all(np.array(most) >= sizes)
        assert view.nnz >= sum(most)


def test_all_numbers_count_in_plans_and_pieces(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.eye(40)[np.arange(N) % 40])  # one value a row, and 40 once they are centred
    frame.add_prefix("x").assign(label=np.arange(N) % 3).to_csv(tmp_path / "t.csv", index=False)
    convert([tmp_path / "t.csv"], tmp_path / "t.zarr", label="label")
    assert plan(tmp_path / "t.zarr")["nnz"] == N * 41
    assert plan(tmp_path / "t.zarr", transform="bias")["nnz"] == N * 2
    with open_store(tmp_path / "t.zarr") as store:
        pieces = [rows.n_rows * 40 for _, rows in raw_store(store, 2**21).pieces()]
    assert max(pieces) * 64 * 8 <= 2**21


def test_sparse_data_without_a_table_is_refused_in_one_line(tmp_path: Path) -> None:
    X, y = make_problem(60, 8, 3)
    store = make_store(tmp_path / "s.zarr", X, y)
    for given in lambda **kept: fit(X, y, **kept), lambda **kept: fit(store, out=tmp_path / "run", **kept):
        with pytest.raises(SettingsError, match=r"^transform center needs numeric columns .*it out$"):
            given(transform="center,bias")


def test_the_optimum_is_that_of_scikit_learn_behind_its_scaler() -> None:
    """With the default of a table."""
    wine = load_wine(as_frame=True)
    svm = LinearSVC(C=0.5, loss="squared_hinge", dual=True, tol=1e-10, max_iter=200_000)
    machine = make_pipeline(StandardScaler(), svm).fit(wine.data, wine.target)
    model = streamsvm.fit(wine.data, wine.target, loss="ovr2", C=0.5, tol=1e-9, passes=400, dtype="float64")
    found = model.decision_function(wine.data)
    np.testing.assert_allclose(found, machine.decision_function(wine.data), atol=1e-4)
