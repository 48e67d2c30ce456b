"""Counts of confused classes against a table of all pairs, and in bounded memory against the exact counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from helpers import make_problem
from helpers import plain_fit as fit
from report_problems import label_store

from streamsvm import load_model
from streamsvm.errors import ModelError, StreamsvmWarning
from streamsvm.prediction.class_counts import PairCounts
from streamsvm.prediction.outcomes import outcomes_of

N, D, K = 300, 6, 5


def test_outcomes_are_those_of_a_table_of_predictions() -> None:
    X, codes = make_problem(N, D, K, noise=2.0)
    labels = codes.astype(str)
    labels[:7] = "other"  # which the model does not know
    model = fit(X[100:], labels[100:], C=1.0)
    with pytest.warns(StreamsvmWarning, match=r"unknown to the model, counted as wrong .rows: 7"):
        found = outcomes_of(model, X, y=labels, memory=2**16)
    table = np.zeros((K, K), int)
    for label, predicted in zip(codes[7:], model.predict(X)[7:].astype(int), strict=True):
        table[label, predicted] += 1
    np.testing.assert_array_equal(found.rows, table.sum(axis=1))
    np.testing.assert_array_equal(found.correct, table.diagonal())
    assert found.evaluation.accuracy == table.trace() / N
    assert found.errors == table.sum() - table.trace() == found.pairs[:, 2].sum()
    assert (np.diff(found.pairs[:, 2]) <= 0).all()
    for true, predicted, count in found.pairs:
        assert true != predicted
        assert table[true, predicted] == count
    assert outcomes_of(found) is found
    with pytest.raises(ModelError, match="no validation store"):
        outcomes_of(model)


@pytest.mark.engine
def test_of_several_labels_the_missed_are_confused_with_the_best_other_class(tmp_path: Path) -> None:
    store, own = label_store(tmp_path / "s.h5", N, D, K)
    fit(store, out=tmp_path / "run", valid=store, dtype="float64")
    found = outcomes_of(tmp_path / "run")
    X, _ = make_problem(N, D, K, noise=1.5)
    correct, pairs = np.zeros(K, int), Counter()
    for scores, labels in zip(load_model(tmp_path / "run").decision_function(X), own, strict=True):
        order = sorted(range(K), key=lambda c: (-scores[c], c))
        predicted = set(order[: labels.sum()])
        for c in np.flatnonzero(labels).tolist():
            if c in predicted:
                correct[c] += 1
            else:
                pairs[c, next(other for other in order if not labels[other])] += 1
    assert found.several
    np.testing.assert_array_equal(found.rows, own.sum(axis=0))
    np.testing.assert_array_equal(found.correct, correct)
    assert {(true, wrong): count for true, wrong, count in found.pairs.tolist()} == pairs


@pytest.mark.parametrize("most", [8, 64, 10**6])
def test_counts_of_too_many_pairs_are_too_low_by_at_most_what_is_said(monkeypatch, most: int) -> None:
    monkeypatch.setattr("streamsvm.prediction.class_counts._BUFFERED_ERRORS", 50)
    monkeypatch.setattr("streamsvm.prediction.class_counts.MAX_PAIRS", most)
    codes = np.random.default_rng(0).zipf(1.5, size=5000).clip(max=10**6)
    counts, exact = PairCounts(), Counter(codes.tolist())
    for piece in np.array_split(codes, 70):
        counts.add(piece)
    found = dict(zip(*(each.tolist() for each in counts.most_frequent()), strict=True))
    assert len(found) <= most
    for code, count in exact.items():
        assert count - counts.too_low <= found.get(code, 0) <= count
    assert (counts.too_low == 0) == (len(exact) <= most)
    assert counts.too_low <= 2 * len(codes) / most
    assert next(iter(found)) == 1
