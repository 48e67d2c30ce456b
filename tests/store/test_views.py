"""Stores made of other stores: every range of their rows is what the plain matrix says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store

from streamsvm.data.feature_names import match_features
from streamsvm.data.rows import Rows, joined_rows, row_span
from streamsvm.store import Store, open_store
from streamsvm.store.views import MatchedStore

N, D = 300, 20
NAMES = [f"g{j}" for j in range(D)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    X, labels = make_problem(N, D, 3)
    with open_store(make_store(tmp_path / "a.h5", X, labels)) as opened:
        yield opened


def dense(rows: Rows, n_features: int) -> np.ndarray:
    found = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.n_rows, n_features))
    assert found.has_canonical_format  # increasing in each row, as kernels need it
    np.testing.assert_allclose(rows.norm2, np.square(found.toarray().astype("f8")).sum(axis=1))
    return found.toarray()


def some_ranges(n: int) -> list[tuple[int, int]]:
    return [(0, 0), (0, 1), (n - 1, n), (0, n), *itertools.pairwise(range(0, n, max(1, n // 5)))]


def test_features_are_those_of_a_model_in_its_order(store: Store) -> None:
    rng = np.random.default_rng(0)
    whole = dense(store.rows(0, N), D)
    model = [*rng.permutation(NAMES[3:]).tolist(), "x", "y"]
    view = MatchedStore(store, match_features(NAMES, model, "data"), model)
    expected = np.zeros((N, len(model)), np.float32)
    for j, name in enumerate(model):
        if name in NAMES:
            expected[:, j] = whole[:, NAMES.index(name)]
    assert (view.n_features, view.feature_names()) == (len(model), model)
    for start, stop in some_ranges(N):
        rows = view.rows(start, stop)
        np.testing.assert_array_equal(dense(rows, len(model)), expected[start:stop])
        np.testing.assert_array_equal(rows.labels, view.labels(start, stop))
        np.testing.assert_allclose(
            view.norms(start, stop), np.square(expected[start:stop].astype("f8")).sum(axis=1)
        )


def test_rows_that_are_joined_are_those_that_were_divided(store: Store) -> None:
    rows = store.rows(0, N)
    parts = [row_span(rows, start, stop) for start, stop in itertools.pairwise([0, 0, 7, 200, N])]
    for found, expected in zip(joined_rows(parts), rows, strict=True):
        np.testing.assert_array_equal(found, expected)
