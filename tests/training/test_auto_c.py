"""The default of C, from the distances of the rows from their mean."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import automatic_c, make_problem, make_store
from helpers import plain_fit as fit

import streamsvm
from streamsvm import load_model, resume
from streamsvm.errors import ScaleWarning
from streamsvm.sklearn import StreamSVMClassifier
from streamsvm.training.auto_c import c_for


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_c_is_one_over_the_mean_squared_distance_of_rows_with_values(tmp_path, scale) -> None:
    X, labels = make_problem(90, 14, 4, empty=3)
    X = X * np.float32(scale)
    store = make_store(tmp_path / "a.zarr", X, labels, dtype="float32")
    result = fit(store, out=tmp_path / "run")
    assert pytest.approx(automatic_c(X)) == result.C
    record = load_model(tmp_path / "run").record
    assert (record["C"], record["C_auto"]) == (result.C, True)
    assert json.loads((tmp_path / "run/run.json").read_bytes())["settings"]["C"] == result.C
    assert resume(tmp_path / "run", passes=4).C == result.C


def test_an_intercept_does_not_count(tmp_path, monkeypatch) -> None:
    """In none of the ways to train: rows that have the constant feature alone count as empty ones."""
    monkeypatch.setattr("streamsvm.training.auto_c._STREAM_ROWS", 60)
    X, labels = make_problem(90, 14, 4, empty=3)
    store = make_store(tmp_path / "a.zarr", X, labels, dtype="float32")
    norms = np.square(X[:60].toarray().astype(np.float64)).sum(axis=1)
    expected, of_first = automatic_c(X), 1 / norms[norms > 0].mean()
    settings = {"transform": "bias=3"}
    assert pytest.approx(expected) == fit(store, out=tmp_path / "run", **settings).C
    assert pytest.approx(expected) == fit(X, labels, **settings).result.C
    classifier = StreamSVMClassifier(intercept_scaling=3.0)
    classifier.partial_fit(X, labels, classes=np.unique(labels))
    assert pytest.approx(of_first) == classifier.model_.record["C"]


def test_c_of_a_matrix_is_that_of_all_rows_and_slices_do_not_overlap(tmp_path, monkeypatch) -> None:
    """Rows of a matrix are counted once each, and so are those of a store smaller than a sample."""
    X, labels = make_problem(90, 14, 4)
    X = X.multiply(np.geomspace(0.1, 10, 90, dtype=np.float32)[:, None]).tocsr()
    store = make_store(tmp_path / "a.zarr", X, labels, dtype="float32")
    expected = automatic_c(X)
    monkeypatch.setattr("streamsvm.training.auto_c._SLICE_ROWS", 40)
    assert pytest.approx(expected) == fit(store, out=tmp_path / "run", transform="bias").C
    monkeypatch.setattr("streamsvm.training.auto_c._MAX_SLICES", 1)
    assert pytest.approx(expected) == fit(X, labels, transform="bias").result.C
    monkeypatch.setattr("streamsvm.training.auto_c._FRACTION_ROWS", 40)
    monkeypatch.setattr("streamsvm.training.auto_c._SHUFFLED_SLICES", 1)
    sampled = fit(store, out=tmp_path / "sampled", transform="bias").C
    assert pytest.approx(automatic_c(X[:40])) == sampled


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tol": 1e-9, "C": 1000.0, "passes": 41}, "auto"),
        ({"tol": 1e-9, "C": 1000.0}, 500.0),  # C is reached when half of the passes are made
        ({"tol": 1e-9, "C": 1000.0, "passes": 9}, 62.5),
        ({"tol": 1e-9, "C": 1e-4}, "C"),
        pytest.param(
            {"tol": 1e-9, "C": 1000.0, "loss": "ww2", "dtype": "float64"}, "C", marks=pytest.mark.engine
        ),
        ({"C": 1000.0}, "C"),
    ],
)
def test_c_grows_from_what_auto_is_to_what_was_given(tmp_path, options, expected) -> None:
    X, labels = make_problem(60, 14, 4)
    store = make_store(tmp_path / "a.zarr", X, labels)
    auto = fit(store, out=tmp_path / "auto", passes=1).C
    for result in (fit(store, out=tmp_path / "run", **options), fit(X, labels, **options).result):
        wanted = {"auto": auto, "C": result.C}.get(expected, expected)
        used = [record["C"] for record in result.history[:3]]
        assert used == pytest.approx([min(result.C, wanted * 2**n) for n in range(3)])


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [(0.0, 0, 1.0), (0.0, 5, 1.0), (float("inf"), 2, sys.float_info.min), (5e-324, 1, sys.float_info.max)],
)
def test_c_is_positive_and_finite(total: float, count: int, expected: float) -> None:
    assert c_for(total, count) == expected


def test_rows_of_weight_0_do_not_count_however_many_they_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.random((40_000, 6)) + 3
    weights = np.zeros(len(X))
    some = rng.choice(len(X), 100, replace=False)
    weights[some] = 1
    y = rng.integers(0, 2, len(X))
    result = fit(sp.csr_array(X), y, sample_weight=weights, passes=1).result
    assert pytest.approx(automatic_c(X[some]), rel=1e-4) == result.C


def test_values_far_below_the_constant_feature_are_said() -> None:
    """Few passes then learn little but the intercepts: C is large for these values, and theirs is not."""
    X = np.random.default_rng(0).normal(size=(2000, 10))
    y = X[:, 0] + X[:, 1] > 0
    with pytest.warns(ScaleWarning, match="so small that the constant feature makes up more than 99.9%"):
        poor = streamsvm.fit(X / 1000, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        good = streamsvm.fit(X / 1000, y, transform="bias=0.001")
        streamsvm.fit(X / 1000, y, transform="none")
        streamsvm.fit(X / 10, y)
    assert poor.score(X / 1000, y) < 0.9 < good.score(X / 1000, y)
