"""Columns are matched by name, whatever their order; what cannot be matched is counted."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.data.feature_names import feature_names, match_features, sort_rows
from streamsvm.errors import FeatureError


@given(st.permutations([f"g{j}" for j in range(7)]))
def test_each_column_finds_its_name(names: list[str]) -> None:
    model = [f"g{j}" for j in range(7)]
    columns = match_features(names, model, "data")
    if columns is None:
        assert names == model
    else:
        assert [model[column] for column in columns] == names


def test_other_names_are_counted() -> None:
    model = [f"g{j}" for j in range(100)]
    names = [f"h{j}" for j in range(5)] + model[5:]
    with pytest.raises(FeatureError, match=r"5 of 100 are missing \('g0', 'g1', 'g2', \.\.\.\)") as raised:
        match_features(names, model, "data")
    assert "5 are unknown ('h0', 'h1', 'h2', ...)" in str(raised.value)
    assert (raised.value.missing, raised.value.unknown) == (5, 5)
    with pytest.raises(FeatureError, match=r"1 of 100 are missing \('g99'\); give") as raised:
        match_features(model[:-1], model, "data")
    assert (raised.value.missing, raised.value.unknown) == (1, 0)
    with pytest.raises(FeatureError, match=r": 1 are unknown \('new\\nline'\)"):
        match_features([*model, "new\nline"], model, "data")


def test_names_on_one_side_alone_match_nothing() -> None:
    assert match_features(None, None, "data") is None
    with pytest.raises(FeatureError, match="data names its features, those of the model have no names"):
        match_features(["a"], None, "data")
    with pytest.raises(FeatureError, match=r"data does not name its features, .* have names \('a'\)"):
        match_features(None, ["a"], "data")


def test_numbers_of_columns_are_no_names() -> None:
    assert feature_names(range(4), "data") is None
    assert feature_names([b"0", "1", np.int64(2)], "data") is None
    assert feature_names([], "data") is None
    assert feature_names([1, 0], "data") == ["1", "0"]
    assert feature_names(["0", "1", "3"], "data") == ["0", "1", "3"]
    assert feature_names([b"a", "b"], "data") == ["a", "b"]


def test_names_that_occur_twice_are_refused() -> None:
    with pytest.raises(FeatureError, match=r"data: names that several features share: 2 \('b', 'c'\)"):
        feature_names("abbccd", "data")


@settings(deadline=None)
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
