"""Metrics of rows with several labels equal scikit-learn's; predicted sets are those above a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem
from sklearn.metrics import accuracy_score, f1_score, label_ranking_loss

from streamsvm import LabelSetEvaluation, Model, evaluate, predict
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, ModelError, SettingsError, StreamsvmWarning

N, D, K = 120, 8, 6
CLASSES = [f"c{c}" for c in range(K)]


def make_model(loss: str | None = "ovr", seed: int = 0, *, ties: bool = False) -> Model:
    rng = np.random.default_rng(seed)
    coef = rng.integers(-1, 2, size=(D, K)) if ties else rng.normal(size=(D, K))
    record = {"classes": CLASSES, "n_features": D, "index_base": 1, "dtype": "float64"}
    return Model(coef.astype(float), record if loss is None else {**record, "loss": loss})


def make_data(seed: int, *, ties: bool = False) -> tuple[sp.csr_array, np.ndarray]:
    """Rows, and which classes are labels of them: none, some or all."""
    X, _ = make_problem(N, D, K, seed=seed)
    if ties:
        X = sp.csr_array(np.sign(X.toarray()))
    rng = np.random.default_rng(seed)
    own = rng.random((N, K)) < rng.choice([0.0, 0.2, 0.5, 1.0], size=(N, 1))
    own[:, 5] = False  # a class that occurs among the predictions alone
    own[:7] = True
    return X, own


def with_labels(X: sp.csr_array, own: np.ndarray) -> Rows:
    labels = np.where(own.any(axis=1), own.argmax(axis=1), -1)
    indptr = np.concatenate([[0], np.cumsum(own.sum(axis=1))])
    return as_rows(X, labels)._replace(
        label_codes=np.nonzero(own)[1].astype(np.int32), label_indptr=indptr.astype(np.int64)
    )


def as_lists(own: np.ndarray) -> list[list[str]]:
    return [[CLASSES[c] for c in np.flatnonzero(row)[::-1]] for row in own]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("sets", [{}, {"threshold": 0.8}, {"n_labels": 2}], ids=str)
def test_metrics_equal_those_of_scikit_learn(ties: bool, sets: dict[str, Any]) -> None:
    model = make_model(ties=ties)
    X, own = make_data(0, ties=ties)
    scores = X.astype(float) @ model.coef_.T
    ranks = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    predicted = ranks < 2 if "n_labels" in sets else scores > sets.get("threshold", 0)
    found = evaluate(model, [with_labels(X[:50], own[:50]), with_labels(X[50:], own[50:])], **sets)
    assert isinstance(found, LabelSetEvaluation)
    assert found.n == N
    assert found.ranking_loss == pytest.approx(label_ranking_loss(own, scores))
    occurring = np.flatnonzero(own.any(axis=0) | predicted.any(axis=0))
    for average in ("micro", "macro"):
        expected = f1_score(own, predicted, average=average, labels=occurring, zero_division=0)
        assert getattr(found, f"{average}_f1") == pytest.approx(expected)
    assert found.subset_accuracy == pytest.approx(accuracy_score(own, predicted))
    assert found.precision == {k: pytest.approx((own & (ranks < k)).sum() / (N * k)) for k in (1, 3, 5)}
    assert found.warning is None


def test_all_kinds_of_labels_give_the_same_metrics() -> None:
    X, own = make_data(1)
    model, lists, order = make_model(), as_lists(own), [3, 1, 0, 5, 4, 2]
    expected = evaluate(model, with_labels(X, own))
    series = pd.Series([set(each) for each in lists])
    frame = pd.DataFrame(own[:, order], columns=[CLASSES[c] for c in order])
    for y in lists, [tuple(each) for each in lists], series, frame:
        assert evaluate(model, X, y) == expected
    table = pd.DataFrame(own, columns=CLASSES, index=map(str, range(N)))
    data = anndata.AnnData(X, obs=pd.DataFrame(index=table.index), obsm={"labels": table})
    assert evaluate(model, data, label="labels") == expected
    # The classes of an array are the numbers of its columns.
    model = Model(model.weights(), {**model.record, "classes": [str(c) for c in range(K)]})
    for array in own.astype(float), sp.csc_matrix(own):
        assert evaluate(model, X, array) == expected


def test_losses_that_only_rank_need_to_be_told_what_to_predict() -> None:
    X, own = make_data(2)
    rows = with_labels(X, own)
    separate = evaluate(make_model("ovr2"), rows)
    assert separate.threshold == 0
    for loss in ("ww", "cs", "logistic", None):
        model = make_model(loss)
        found = evaluate(model, rows)
        assert found.micro_f1 is found.macro_f1 is found.subset_accuracy is found.threshold is None
        assert (found.precision, found.ranking_loss) == (separate.precision, separate.ranking_loss)
        assert "choose the labels with threshold=... or n_labels=..." in str(found.warning)
        assert evaluate(model, rows, threshold=0) == separate
        assert evaluate(model, rows, n_labels=3).n_labels == 3


def test_what_does_not_apply_is_refused() -> None:
    X, own = make_data(3)
    several, one, model = with_labels(X, own), as_rows(X, own.argmax(axis=1)), make_model()
    none, tree = "does not apply to rows with one label each; leave it out", dict.fromkeys(CLASSES, "root")
    refused: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (one, None, {"threshold": 0.0}, SettingsError, f"threshold {none}"),
        (one, None, {"n_labels": 1}, SettingsError, f"n_labels {none}"),
        (several, None, {"costs": 1 - np.eye(K)}, SettingsError, "costs .* to rows with several"),
        (several, None, {"tree": tree}, SettingsError, "tree .* to rows with several"),
        (several, None, {"threshold": 0, "n_labels": 1}, SettingsError, "leave one of them out"),
        (several, None, {"n_labels": 0}, SettingsError, r"n_labels must be a whole number in \[1,"),
        ([one, several], None, {}, ModelError, "row 121 has a label set; pass label sets"),
        (X, [["c0"]] * (N - 1), {}, InputError, "X has 120 rows, but y has labels for 119"),
        (X, [["c0", "c1", "c0"]] * N, {}, InputError, r"y\[0\] repeats a label; drop it, or pass an"),
        (X, np.full((N, K), np.nan), {}, InputError, r"y\[0, 0\]: nan is neither 0 nor 1"),
        (X, np.full((N, K), "c0"), {}, InputError, "y has values of type <U2"),
    ]  # fmt: skip
    for data, y, settings, error, words in refused:
        with pytest.raises(error, match=words):
            evaluate(model, data, y, **settings)
    for threshold in (np.nan, np.inf, "0", True):
        for function in (evaluate, predict):
            with pytest.raises(SettingsError, match="threshold must be a finite number"):
                function(model, several, threshold=threshold)
    assert evaluate(model, [several, one]).n == 2 * N


def test_labels_unknown_to_the_model_are_left_out() -> None:
    X, own = make_data(4)
    lists = as_lists(own)
    more = [[*labels, "unknown"] if i % 2 else labels for i, labels in enumerate(lists)]
    with pytest.warns(StreamsvmWarning, match=r"y: labels unknown to the model are ignored .60 in total"):
        assert evaluate(make_model(), X, more) == evaluate(make_model(), X, lists)
    with (
        pytest.warns(StreamsvmWarning, match="unknown to the model"),
        pytest.raises(ModelError, match="none of the 120 rows has a label that the model knows"),
    ):
        evaluate(make_model(), X, [["unknown"]] * N)


@pytest.mark.parametrize("top_k", [None, 2])
def test_predicted_sets_are_above_the_threshold(tmp_path: Path, top_k: int | None) -> None:
    model = make_model()
    X, _ = make_problem(N, D, K)
    scores = X.astype(float) @ model.coef_.T
    expected = []
    for row in scores:
        order = np.argsort(-row, kind="stable")
        expected.append([c for c in order if row[c] > 0.5][:top_k])
    assert {len(row) for row in expected} >= {0, 1, 2}
    found = predict(model, X, threshold=0.5, top_k=top_k)
    assert [row.tolist() for row in found.labels] == [[CLASSES[c] for c in row] for row in expected]
    for i, values in enumerate(found.scores):
        np.testing.assert_allclose(values, scores[i, expected[i]], rtol=1e-12)
    out = tmp_path / "labels"
    assert predict(model, X, out, threshold=0.5, top_k=top_k).n == N
    assert out.read_text() == "".join("\t".join(CLASSES[c] for c in row) + "\n" for row in expected)
    predict(model, X, out, threshold=0.5, top_k=top_k, scores=True, force=True)
    for line, row in zip(out.read_text().split("\n")[:-1], found.labels, strict=True):
        assert (line.split("\t")[::2] if line else []) == row.tolist()


def test_a_threshold_of_probabilities() -> None:
    model = make_model("logistic")
    X, _ = make_problem(N, D, K)
    probabilities = model.predict_proba(X)
    found = predict(model, X, threshold=0.3, proba=True)
    assert [len(row) for row in found.labels] == (probabilities > 0.3).sum(axis=1).tolist()
    assert all((values > 0.3).all() for values in found.scores)
    assert predict(model, iter([]), threshold=0.0).labels == []
