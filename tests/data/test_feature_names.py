"""Columns are matched by name, whatever their order; what cannot be matched is counted."""

from __future__ import annotations

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.data.names import FeatureMatch, feature_names, match_features, sort_rows, with_columns
from streamsvm.data.rows import Rows
from streamsvm.errors import FeatureError, StreamsvmWarning


@given(st.permutations([f"g{j}" for j in range(7)]))
def test_each_column_finds_its_name(names: list[str]) -> None:
    model = [f"g{j}" for j in range(7)]
    match = match_features(names, model, "data")
    assert match.message is None
    if match.columns is None:
        assert names == model
    else:
        assert [model[column] for column in match.columns] == names


def test_missing_and_unknown_names_are_counted() -> None:
    model = [f"g{j}" for j in range(100)]
    match = match_features([f"h{j}" for j in range(5)] + model[:4:-1], model, "data")
    assert match.columns.tolist() == [-1] * 5 + list(range(99, 4, -1))
    for words in "data: 95 of the 100", "5 are missing and count as 0 ('g0',", "5 data features", "('h0',":
        assert words in str(match.message)
    match = match_features([*model, "new\nline"], model, "data")
    assert match.columns.tolist() == [*range(100), -1]
    assert "'new\\nline'" in str(match.message)


def test_few_names_in_common_are_a_warning_and_none_is_an_error() -> None:
    model = [f"g{j}" for j in range(100)]
    for known, rare in (51, False), (50, False), (49, True), (1, True):
        match = match_features(model[:known], model, "data")
        assert f"{known} of the 100 features" in str(match.message)
        assert ("may be unreliable" in str(match.message)) == rare
    with pytest.raises(FeatureError, match="data has none of the 100 features of the model"):
        match_features(["h0", "h1"], model, "data")


def test_few_non_zeros_in_known_features_are_a_warning_with_the_share() -> None:
    X = sp.random_array((50, 40), density=0.5, format="csr", rng=1)
    none, share = np.zeros(50), X[:, :2].nnz / X.nnz
    for data, indices in ((X.data, X.indices), (X.toarray().ravel(), None)):
        rows = Rows(data, indices, np.zeros(51, np.int64), none, none)
        FeatureMatch(np.r_[range(8), [-1] * 32]).warn(rows, "X")  # a fifth: no warning, which is an error
        with pytest.warns(StreamsvmWarning, match=f"X: only {share:.2%} of the non-zeros are in features"):
            FeatureMatch(np.r_[1, 0, [-1] * 38]).warn(rows, "X")


def test_columns_are_matched_by_position_where_a_side_has_no_names() -> None:
    assert match_features(None, None, "data").message is None
    for names, model, nameless in (["a"], None, "the model"), (None, ["a"], "data"):
        match = match_features(names, model, "data")
        assert match.columns is None
        assert str(match.message).startswith(f"{nameless} does not name its features")


@given(st.integers(0, 2**32 - 1))
def test_columns_are_moved_or_left_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = sp.random(20, 12, 0.4, format="csr", random_state=rng, dtype=np.float32)
    columns = rng.permutation(15)[:12].astype(np.int32)
    columns[rng.random(12) < rng.choice([0, 0.3, 1])] = -1
    none = np.zeros(20, np.int32)
    rows = Rows(matrix.data, matrix.indices, matrix.indptr.astype("i8"), none, np.empty(0))
    data, indices, indptr, *_ = with_columns(rows, columns, 15)
    expected = np.zeros((20, 15), np.float32)
    expected[:, columns[columns >= 0]] = matrix.toarray()[:, columns >= 0]
    found = sp.csr_array((data, indices, indptr), shape=(20, 15))
    np.testing.assert_array_equal(found.toarray(), expected)
    assert found.has_canonical_format
    assert (data.dtype, indices.dtype, indptr.dtype) == (np.float32, np.int32, np.int64)


def test_numbers_of_columns_are_no_names() -> None:
    assert feature_names(range(4), "data") is None
    assert feature_names([b"0", "1", np.int64(2)], "data") is None
    assert feature_names([], "data") is None
    assert feature_names([1, 0], "data") == ["1", "0"]
    assert feature_names(["0", "1", "3"], "data") == ["0", "1", "3"]
    assert feature_names([b"a", "b"], "data") == ["a", "b"]


def test_names_that_occur_again_are_numbered_as_anndata_does() -> None:
    with pytest.warns(StreamsvmWarning, match=r"data: feature names are repeated \('b', 'c'\)"):
        assert feature_names("abbccd", "data") == ["a", "b", "b-1", "c", "c-1", "d"]
    for words in ("a a a-1 a a-1 b", "a-1 a a", "a b b-1 b b-1 b-1-1"):
        names = words.split()
        index = pd.Index(names)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert feature_names(names, "data") == anndata.utils.make_index_unique(index).tolist()


@given(st.integers(0, 2**32 - 1))
def test_rows_are_sorted_each_by_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = sp.random(20, 12, 0.4, format="csr", random_state=rng, dtype=np.float32)
    columns = rng.permutation(12).astype(np.int32)
    data, indices = sort_rows(matrix.data.copy(), columns[matrix.indices], matrix.indptr.astype(np.int64), 12)
    moved = np.zeros((20, 12), np.float32)
    moved[:, columns] = matrix.toarray()
    expected = sp.csr_array(moved)
    np.testing.assert_array_equal(data, expected.data)
    np.testing.assert_array_equal(indices, expected.indices)
    assert (data.dtype, indices.dtype) == (np.float32, np.int32)
