"""Models of hashed features, and index bases of the data that they predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_store
from online_replay import OnlineReplay
from row_stream import N, RowStream, late_problem

from streamsvm import load_model, online, open_store
from streamsvm.errors import SettingsError
from streamsvm.inputs.rows import RowsToScore


@pytest.fixture(scope="module")
def problem() -> tuple[sp.csr_array, list[str]]:
    return late_problem()


def splitmix(state: int) -> int:
    """The finaliser of SplitMix64, as Steele, Lea & Flood (2014) print it."""
    mask = 2**64 - 1
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def hashed_densely(X: sp.csr_array, bits: int, seed: int, base: int = 0) -> np.ndarray:
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    key = splitmix((seed + golden) & mask)
    dense = np.zeros((X.shape[0], 2**bits))
    coo = X.tocoo()
    for row, feature, value in zip(coo.row, coo.col, coo.data, strict=True):
        h = splitmix((key + (int(feature) + base) * golden) & mask)
        dense[row, h >> (64 - bits)] += value * (1 - 2 * (h & 1))
    return dense


def test_a_model_of_hashed_features_hashes_what_it_predicts(tmp_path: Path, problem) -> None:
    X, labels = problem
    online(RowStream(X, labels, (20, 80)), out=tmp_path / "run", hash_bits=4, seed=5, dtype="float64")
    model = load_model(tmp_path / "run")
    dense = hashed_densely(X, 4, 5)
    expected = OnlineReplay(dense, labels).average[:, np.argsort(OnlineReplay(dense, labels).names)]
    np.testing.assert_allclose(model.coef_.T, expected, atol=1e-9)
    assert model.record["transforms"] == [{"name": "hash", "bits": 4, "seed": 5}]
    # A store counts its features from 1 in the text: column j is the feature j + 1.
    classes = list(model.classes_)
    store = make_store(tmp_path / "a.h5", X, np.array([classes.index(label) for label in labels]))
    with open_store(store) as opened:
        ((rows, _),) = RowsToScore(model, labelled=False).read(opened)
        ((_, scores),) = model.scores(rows)
    np.testing.assert_allclose(scores, hashed_densely(X, 4, 5, base=1) @ expected, atol=1e-9)


def test_feature_numbers_that_differ_from_the_text_cannot_be_hashed(tmp_path: Path, problem) -> None:
    stream = RowStream(*problem)
    stream.index_base = 1
    with pytest.raises(SettingsError, match="index_base=1 changes them"):
        online(stream, out=tmp_path / "run", hash_bits=4)
    assert not (tmp_path / "run").exists()


def test_a_store_with_index_base_1_is_scored_by_a_model_with_index_base_0(tmp_path: Path, problem) -> None:
    X, labels = problem
    shifted = sp.csr_array(sp.hstack([sp.csr_array((N, 1), dtype=X.dtype), X]))  # as the text has them
    online(RowStream(shifted, labels), out=tmp_path / "run", dtype="float64")
    model = load_model(tmp_path / "run")
    classes = list(model.classes_)
    store = make_store(tmp_path / "a.h5", X, np.array([classes.index(label) for label in labels]))
    with open_store(store) as opened:
        ((rows, _),) = RowsToScore(model, labelled=False).read(opened)
        ((_, scores),) = model.scores(rows)
    np.testing.assert_allclose(scores, shifted @ model.coef_.T, atol=1e-12)
