"""Columns of text of a DataFrame become features as `convert` makes them of a table."""

from __future__ import annotations

import re
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from streamsvm import Model, convert, evaluate, fit, load_model, predict
from streamsvm.errors import FeatureError, InputError, ModelError, StreamsvmWarning

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
    return fit(people.assign(group=groups), label="group", passes=5, transform="bias")


def test_the_features_are_those_of_pandas(
    people: pd.DataFrame, groups: np.ndarray, model: Model, tmp_path: Path
) -> None:
    dummies = pd.get_dummies(people.astype({"rooms": int, "size": str}), prefix_sep="=")[WANTED].astype(float)
    numbers = fit(sp.csr_array(dummies), groups, passes=5, transform="bias")
    assert model.feature_names_in_.tolist() == WANTED
    np.testing.assert_array_equal(model.coef_, numbers.coef_)
    scores = numbers.decision_function(sp.csr_array(dummies))
    np.testing.assert_array_equal(model.decision_function(people), scores)
    np.testing.assert_array_equal(model.decision_function(people.iloc[7:8, ::-1]), scores[7:8])
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(people), model.predict(people))
    np.testing.assert_allclose(loaded.decision_function(dummies), scores, rtol=1e-5, atol=1e-6)
    assert evaluate(loaded, people, groups).accuracy == np.mean(model.predict(people) == groups)


def test_other_values_and_columns_are_warnings_and_no_feature(people: pd.DataFrame, model: Model) -> None:
    expected = model.decision_function(people.assign(town=None))
    with pytest.warns(
        StreamsvmWarning, match="X has 90 category values that the model does not know"
    ) as caught:
        found = model.decision_function(people.assign(town="Bath"))
    np.testing.assert_array_equal(found, expected)
    assert {each.filename for each in caught} == {__file__}
    found = model.decision_function(people.assign(town=None, name="Ann"))
    np.testing.assert_array_equal(found, expected)


REFUSED: list[tuple[object, str]] = [
    ([f"p{i}" for i in range(N)], "column 'name' has a different value in each of 90 rows, so its values"),
    (pd.Timedelta("1h").as_unit("ns"), "column 'name' holds duration[ns], not numbers, text or dates"),
    ([[1]] * N, "column 'name' holds list<item: int64>, not numbers, text or dates"),
    ([1, "x"] * (N // 2), "Conversion failed for column name with type object"),
    (None, "column 'name' has no value in any row; leave it out"),
    ([None] + [1.5] * (N - 1), "X[0]: column 'name' has no value"),
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
    with pytest.raises(ModelError, match="column 'age' must contain numbers"):
        model.predict(people.assign(age="old"))
    numbers = people[["age", "member"]].astype(float)
    of_numbers = fit(numbers, groups)
    np.testing.assert_array_equal(of_numbers.predict(people), of_numbers.predict(numbers))


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


@pytest.mark.filterwarnings("ignore::streamsvm.errors.ScaleWarning")
def test_dates_are_days_and_years(people: pd.DataFrame, groups: np.ndarray) -> None:
    days = np.random.default_rng(1).integers(17_000, 19_500, N)
    when = pd.Series(pd.to_datetime(days, unit="D") + pd.Timedelta(hours=6))
    plain = people.assign(**{"day": days + 0.25, "day (year)": when.dt.year})
    wanted = fit(plain, groups, passes=2)
    for each in when, when.dt.tz_localize("UTC"), when.astype(object), when.astype(str):
        model = fit(people.assign(day=each), groups, passes=2)
        assert model.feature_names_in_.tolist() == [*WANTED, "day", "day (year)"]
        np.testing.assert_array_equal(model.coef_, wanted.coef_)
    new = plain.assign(**{"day": pd.Timestamp("2031-05-05").timestamp() / 86_400, "day (year)": 2031})
    found = model.decision_function(people.assign(day="2031-05-05"))
    np.testing.assert_array_equal(found, wanted.decision_function(new))
    with pytest.raises(ModelError, match="column 'day' must contain dates, not double"):
        model.predict(people.assign(day=3.5))


def test_a_column_that_the_model_needs_is_an_error_by_every_route(
    people: pd.DataFrame, groups: np.ndarray, model: Model, tmp_path: Path
) -> None:
    frame, table, store = people.assign(group=groups).dropna(), tmp_path / "t.parquet", tmp_path / "t.zarr"
    for name, other in ("town", "age"), ("age", "town=York"):
        lacking = frame.drop(columns=name)
        lacking.to_parquet(table)
        convert(table, store, force=True, label="group")
        cells = anndata.AnnData(np.ones((len(frame), 3)), obs={"group": frame["group"].tolist()})
        cells.var_names = ["member", "rooms", other]
        for data in lacking, table, store, cells:
            for call in predict, evaluate:
                with pytest.raises((FeatureError, InputError, ModelError), match=f"has no column '{name}'"):
                    call(model, data)


@pytest.mark.filterwarnings("error")
def test_a_column_of_a_frame_may_be_the_label(people: pd.DataFrame, groups: np.ndarray, model: Model) -> None:
    frame = people.assign(group=groups)
    np.testing.assert_array_equal(model.predict(frame), model.predict(people))
    with_y = fit(people, groups, passes=5, transform="bias")
    assert evaluate(model, frame) == evaluate(with_y, frame, "group")
    with pytest.raises(InputError, match="X has no column 'groups'; it has 'age', 'town', 'mem"):
        fit(frame, label="groups")
