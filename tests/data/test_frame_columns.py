"""Columns of text of a DataFrame become features as `convert` makes them of a table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from streamsvm import Model, evaluate, fit, load_model
from streamsvm.errors import InputError, ModelError, StreamsvmWarning

N = 90
WANTED = ["age", "town=Leeds", "town=York", "member", "size=L", "size=S", "rooms"]


@pytest.fixture
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    town = np.array(["York", "Leeds", None], object)[rng.integers(3, size=N)]
    size = pd.Categorical(np.array(["S", "L"])[rng.integers(2, size=N)], categories=["S", "L", "XL"])
    rooms = pd.array(rng.integers(1, 5, N), dtype="Int64")
    return pd.DataFrame(
        {"age": rng.random(N), "town": town, "member": rng.random(N) < 0.5, "size": size, "rooms": rooms}
    )


@pytest.fixture
def groups(people: pd.DataFrame) -> np.ndarray:
    return np.where(people["age"] + 0.3 * (people["town"] == "York") < 0.6, "young", "old")


@pytest.fixture
def model(people: pd.DataFrame, groups: np.ndarray) -> Model:
    return fit(people, groups, passes=5, transform="scale=std,bias")


def test_the_features_are_those_of_pandas(
    people: pd.DataFrame, groups: np.ndarray, model: Model, tmp_path: Path
) -> None:
    dummies = pd.get_dummies(people.astype({"rooms": int, "size": str}), prefix_sep="=").astype(float)
    numbers = fit(dummies[WANTED], groups, passes=5, transform="scale=std,bias")
    assert model.feature_names_in_.tolist() == WANTED
    rounding = {"rtol": 1e-5, "atol": 1e-6}  # of sums of dense rows, and of sparse ones
    np.testing.assert_allclose(model.coef_, numbers.coef_, **rounding)
    scores = numbers.decision_function(dummies[WANTED])
    np.testing.assert_allclose(model.decision_function(people), scores, **rounding)
    np.testing.assert_array_equal(
        model.decision_function(people.iloc[7:8, ::-1]), model.decision_function(people)[7:8]
    )
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(people), model.predict(people))
    np.testing.assert_allclose(loaded.decision_function(dummies), model.decision_function(people), **rounding)
    assert evaluate(loaded, people, groups).accuracy == np.mean(model.predict(people) == groups)


def test_other_values_and_columns_are_warnings_and_no_feature(people: pd.DataFrame, model: Model) -> None:
    expected = model.decision_function(people.assign(town=None))
    with pytest.warns(
        StreamsvmWarning, match=r"column 'town' has values that are unknown .* \(rows: 90\)"
    ) as caught:
        found = model.decision_function(people.assign(town="Bath"))
    np.testing.assert_array_equal(found, expected)
    assert {each.filename for each in caught} == {__file__}
    with pytest.warns(StreamsvmWarning, match="2 are missing and taken as 0 .*; 1 are unknown to it"):
        found = model.decision_function(people.drop(columns="town").assign(name="Ann"))
    np.testing.assert_array_equal(found, expected)


REFUSED: list[tuple[object, str]] = [
    ([f"p{i}" for i in range(N)], "column 'name' has another value in each row: that is no category"),
    (pd.Timestamp("2020-01-01"), "column 'name' holds Timestamp('2020-01-01 00:00:00'), and neither"),
    ([[1]] * N, "column 'name' holds [1], and neither numbers nor text"),
    (None, "column 'name' has no value; leave it out"),
    ([None] + [1.5] * (N - 1), "column 7 ('name'): nan is not finite"),
]


def test_columns_that_can_be_neither_are_named(people: pd.DataFrame, groups: np.ndarray) -> None:
    for values, problem in REFUSED:
        with pytest.raises(InputError, match=re.escape(problem)):
            fit(people.assign(name=values), groups)
    with_missing = people.assign(name=[np.nan] + ["x"] * (N - 1))
    assert fit(with_missing, groups).feature_names_in_[-1] == "name=x"


def test_text_where_the_model_has_numbers_is_refused(
    people: pd.DataFrame, groups: np.ndarray, model: Model
) -> None:
    with pytest.raises(ModelError, match="column 'age' has values that are not numbers, where the model"):
        model.predict(people.assign(age="old"))
    of_numbers = fit(people[["age", "member"]].astype(float), groups)
    with pytest.warns(StreamsvmWarning, match="3 are unknown to it and left out .'town', 'size', 'rooms'"):
        np.testing.assert_array_equal(
            of_numbers.predict(people), of_numbers.predict(people[["age", "member"]])
        )


def test_a_column_of_dtype_category_has_categories_though_these_are_numbers() -> None:
    codes = np.tile([10, 2, 7], 30)
    y = np.where(codes == 2, "middle", "outer")
    X = pd.DataFrame({"code": pd.Categorical(codes)})
    model = fit(X, y)
    assert model.feature_names_in_.tolist() == ["code=10", "code=2", "code=7"]
    of_text = fit(X.astype(str), y)
    np.testing.assert_array_equal(model.coef_, of_text.coef_)
    for same in (X, X.astype(int), X.astype(str)):
        assert model.score(same, y) == 1
    numbers = fit(X.astype(int), y)
    np.testing.assert_array_equal(numbers.predict(X), numbers.predict(X.astype(int)))
