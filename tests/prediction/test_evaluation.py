"""Measures of a model equal scikit-learn's, and labels that training did not know count as wrong."""

from __future__ import annotations

import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support, top_k_accuracy_score

from streamsvm import Model, evaluate, predict
from streamsvm.errors import InputError, ModelError, SettingsError, StreamsvmWarning

D, K = 10, 7


def make_model(seed: int = 0, n_classes: int = K) -> Model:
    coef = np.random.default_rng(seed).normal(size=(D, n_classes))
    record = {"classes": [f"c{c}" for c in range(n_classes)], "n_features": D, "index_base": 1}
    return Model(coef, {**record, "dtype": "float64"})


@pytest.mark.parametrize("unknown", [0, 50])
@pytest.mark.parametrize("occurring", [K, 3], ids=["all classes", "some classes"])
def test_measures_and_tables_equal_those_of_scikit_learn(occurring: int, unknown: int) -> None:
    """Labels unknown to the model count as wrong; averages over classes leave them out."""
    model = make_model(occurring)
    X, labels = make_problem(150, D, occurring, seed=occurring, density=0.9)  # no row of equal scores
    labels[: 3 * unknown : 3] = -1
    scores = X.astype(float) @ model.coef_.T
    predicted = scores.argmax(axis=1)
    batches = [as_rows(X[begin:end], labels[begin:end]) for begin, end in pairwise([0, 1, 1, 101, 150])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = evaluate(model, batches, top_k=(1, 2, 5, 100))
    words = "50 rows have labels unknown to the model; such rows count as wrong"
    assert [words in str(each.message) for each in caught] == [True] * (unknown > 0)
    assert found.n == 150
    assert found.accuracy == found.micro_f1 == pytest.approx((labels == predicted).mean())
    codes, known = np.union1d(labels[labels >= 0], predicted), labels >= 0
    macro = f1_score(labels, predicted, average="macro", labels=codes, zero_division=0)
    assert found.macro_f1 == pytest.approx(macro)
    for k in (1, 2, 5):
        expected = top_k_accuracy_score(labels[known], scores[known], k=k, labels=np.arange(K))
        assert found.top_k[k] == pytest.approx(expected * known.mean())
    assert found.top_k[100] == known.mean()

    table = found.classes
    assert table.index.tolist() == [f"c{code}" for code in codes]
    columns = precision_recall_fscore_support(labels, predicted, labels=codes, zero_division=np.nan)
    for column, values in zip(("precision", "recall", "f1", "rows"), columns, strict=True):
        none = np.isin(codes, labels) & ~np.isin(codes, predicted) if column == "f1" else np.zeros(1, bool)
        np.testing.assert_allclose(table[column], np.where(none, 0.0, values), err_msg=column)
    wide = found.confusion.pivot(index="true", columns="predicted", values="rows")
    names = [f"c{code}" for code in range(K)]
    wide = wide.reindex(index=names, columns=names).fillna(0)
    np.testing.assert_array_equal(wide, confusion_matrix(labels, predicted, labels=np.arange(K)))
    errors = found.confusion.query("true != predicted")["rows"]
    assert errors.is_monotonic_decreasing
    worst = [f"c{code}" for code in found.counts.worst()]
    measured = table[table["rows"] > 0].sort_values(["f1", "rows"], ascending=[True, False], kind="stable")
    assert worst == measured.index.tolist()


def test_counts_of_very_many_classes_take_no_matrix_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    k = 20_000
    record = {"classes": list(map(str, range(k))), "n_features": 1, "index_base": 1, "dtype": "float32"}
    model = Model(np.zeros((1, k), np.float32), record)
    labels = np.repeat([0, 3, k - 1], [2, 5, 1])  # of equal scores the first class is predicted
    rows = as_rows(sp.csr_array(np.ones((8, 1))), labels)
    found = evaluate(model, [rows], top_k=(1, 3, 4))
    assert found.top_k == {1: 2 / 8, 3: 2 / 8, 4: 7 / 8}
    assert found.confusion.to_numpy().tolist() == [["0", "0", 2], ["3", "0", 5], [str(k - 1), "0", 1]]
    assert found.classes["recall"].tolist() == [1, 0, 0]
    monkeypatch.setattr("streamsvm.prediction.class_counts.MAX_PAIRS", 1)
    too_many = evaluate(model, [rows], top_k=1)
    with pytest.warns(StreamsvmWarning, match="counts of errors may be up to 5 too low"):
        assert len(too_many.confusion) < 3


def test_tables_without_pandas_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(make_model(), [as_rows(*make_problem(50, D, K))])
    monkeypatch.setitem(sys.modules, "pandas", None)
    for table in ("classes", "confusion"):
        with pytest.raises(ModelError, match=r"pip install 'streamsvm\[pandas\]'"):
            getattr(found, table)


def test_data_and_settings_that_do_not_apply_are_refused() -> None:
    """An accuracy of 0 for data without a known label would look like one that was measured."""
    X, labels = make_problem(9, D, 3)
    rows = as_rows(X, labels)
    of_matrix, whole = "y applies only to a matrix", r"top_k must be a whole number in \[1,"
    refused: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        ([], None, {}, ModelError, "the data has no labelled rows"),
        (iter([]), None, {}, ModelError, "the data has no labelled rows"),
        (X[:0], [], {}, ModelError, "no labelled rows"),
        ([as_rows(X, np.full_like(labels, -1))], None, {}, ModelError, "none of the 9 rows has a label that"),
        (X, ["?"] * 9, {}, ModelError, "none of the 9 rows"),
        (X, ["c0"] * 5, {}, ModelError, "X has 9 rows, but y has 5 labels"),
        (X, None, {}, InputError, "y is missing; pass one label per row"),
        *((data, ["c0"] * 9, {}, SettingsError, of_matrix) for data in (rows, [rows], "store.zarr")),
        *((rows, None, {"top_k": top_k}, SettingsError, whole) for top_k in (0, 1.5, "2", True)),
    ]
    for data, y, settings, error, words in refused:
        with pytest.raises(error, match=words):
            evaluate(make_model(), data, y, **settings)
    with pytest.raises(SettingsError, match=whole):
        predict(make_model(), rows, top_k=0)


@pytest.mark.filterwarnings("ignore:the data. .* unknown to the model")
def test_the_mean_cost_is_over_the_rows_with_known_labels(tmp_path: Path) -> None:
    model = make_model()
    X, labels = make_problem(150, D, K)
    labels[::5] = -1
    predicted = (X.astype(float) @ model.coef_.T).argmax(axis=1)
    known = labels >= 0
    costs = np.random.default_rng(0).random((K, K))
    np.fill_diagonal(costs, 0)
    parents = {f"c{c}": f"c{c - 1}" for c in range(1, K)}  # a path, on which codes are positions
    mean_cost = pytest.approx(costs[labels[known], predicted[known]].mean())
    mean_distance = pytest.approx(np.abs(labels - predicted)[known].mean())
    rows = as_rows(X, labels)
    assert evaluate(model, rows).mean_cost is None
    np.save(tmp_path / "costs.npy", costs)
    for given in (costs, tmp_path / "costs.npy"):
        assert evaluate(model, rows, costs=given).mean_cost == mean_cost
    assert evaluate(model, rows, tree=parents).mean_cost == mean_distance
    model.costs = costs
    assert evaluate(model, rows).mean_cost == mean_cost
    assert evaluate(model, rows, tree=parents).mean_cost == mean_distance
    with pytest.raises(SettingsError, match="tree must be left out with costs"):
        evaluate(model, rows, costs=costs, tree=parents)
    with pytest.raises(InputError, match="the table of costs is 2 x 2, but 7 classes need 7 x 7"):
        evaluate(model, rows, costs=np.zeros((2, 2)))
