"""Missing values of tables: as pandas takes them for labels, and as scikit-learn replaces numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from sklearn.impute import MissingIndicator, SimpleImputer
from stored_rows import stored
from streamsvm_converters import convert

import streamsvm
from streamsvm.base.label_values import MISSING_TEXTS
from streamsvm.errors import InputError, SettingsError

N = 300
NUMBERS = ["age", "visits", "member", "whole"]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Numbers, integers, booleans, categories and labels with missing values, and a column without."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": pd.array(np.where(rng.random(N) < 0.2, np.nan, rng.normal(40, 9, N)), "Float64"),
            "visits": pd.array(np.where(rng.random(N) < 0.3, None, rng.integers(0, 9, N)), "Int64"),
            "member": pd.array(np.where(rng.random(N) < 0.1, None, rng.random(N) < 0.5), "boolean"),
            "whole": rng.normal(size=N),
            "colour": np.where(rng.random(N) < 0.2, None, rng.choice(["red", "green"], N)),
            "y": np.where(rng.random(N) < 0.1, None, rng.choice(["a", "b"], N)),
        }
    )


def write(frame: pd.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        filled = frame.astype(object).where(frame.notna(), "NA")  # of text, a category like any other
        filled["colour"] = frame["colour"]
        filled.to_csv(path, index=False)
    return path


def expected(frame: pd.DataFrame, missing: str, training: pd.DataFrame) -> np.ndarray:
    """What scikit-learn makes of the labelled rows, fitted to those of the training data."""
    X, X_training = (
        each.dropna(subset=["y"])[NUMBERS].astype(float).to_numpy() for each in (frame, training)
    )
    strategy = {"strategy": "mean"} if missing == "mean" else {"strategy": "constant", "fill_value": 0.0}
    numbers = SimpleImputer(**strategy).fit(X_training).transform(X)
    colour = frame.dropna(subset=["y"])["colour"]
    dummies = [(colour == "green").to_numpy(float), (colour == "red").to_numpy(float)]
    if missing != "indicator":
        return np.column_stack([numbers, *dummies])
    marks = MissingIndicator(error_on_new=False).fit(X_training)
    assert marks.features_.tolist() == [0, 1, 2]
    marks = marks.transform(X)
    columns = [part for at in range(3) for part in (numbers[:, at], marks[:, at])]
    return np.column_stack([*columns, numbers[:, 3], *dummies, colour.isna()])


CASES = [*(("t.csv", how) for how in ("0", "mean", "indicator")), ("t.jsonl", "mean"), ("t.parquet", "0")]


@pytest.mark.parametrize(("name", "missing"), CASES)
def test_missing_numbers_are_replaced_as_scikit_learn_does(
    frame: pd.DataFrame, missing: str, name: str, tmp_path: Path
) -> None:
    path, out = write(frame, tmp_path / name), tmp_path / "a.zarr"
    report = convert([path], out, label="y", missing=missing, dtype="float64", shuffle=False)
    matrix, labels, names = stored(out)
    np.testing.assert_allclose(matrix, expected(frame, missing, frame), rtol=1e-12)
    kept = frame.dropna(subset=["y"])
    assert labels == kept["y"].tolist()
    assert report.unlabelled == N - len(kept)
    assert report.missing_values == int(kept[NUMBERS].isna().sum().sum())
    if missing == "indicator":
        assert names == [
            "age", "age=missing", "visits", "visits=missing", "member", "member=missing", "whole",
            "colour=green", "colour=red", "colour=missing",
        ]  # fmt: skip
    # New data gets the means and indicators of the training data, and its label column, too.
    new = frame[:80].assign(whole=pd.array([None, *range(79)], "Float64"))
    write(new, tmp_path / "new.parquet")
    report = convert(tmp_path / "new.parquet", tmp_path / "b.zarr", like=out, dtype="float64", shuffle=False)
    np.testing.assert_allclose(stored(tmp_path / "b.zarr")[0], expected(new, missing, frame), rtol=1e-12)


@pytest.mark.parametrize("missing", ["0", "mean", "indicator"])
def test_a_data_frame_gets_what_the_table_of_the_training_got(
    frame: pd.DataFrame, missing: str, tmp_path: Path
) -> None:
    write(frame, tmp_path / "t.parquet")
    convert([tmp_path / "t.parquet"], tmp_path / "a.zarr", label="y", missing=missing)
    options: dict[str, Any] = {"C": 0.1, "passes": 1, "transform": "none"}
    streamsvm.fit(tmp_path / "a.zarr", out=tmp_path / "run", **options)
    new = frame.dropna(subset=["y"])
    in_memory = streamsvm.fit(new, label="y", missing=missing, **options)
    assert len(streamsvm.tune(new, label="y", missing=missing, **options | {"C": [0.1, 1]}).tried) == 2
    for columns in (new.drop(columns="y"), new[NUMBERS].assign(colour=None)):
        numbers = expected(new.assign(**columns), missing, frame)
        for model in streamsvm.load_model(tmp_path / "run"), in_memory:
            found, scores = model.decision_function(columns), numbers @ model.weights()
            np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-4)


def test_means_are_of_rows_that_are_kept_and_do_not_depend_on_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 30_000
    numbers = rng.normal(1e3, 1, (n, 2)).astype(object)
    numbers[rng.random((n, 2)) < 0.1] = ""
    numbers[::7, 1] = "inf"  # such rows are skipped
    frame = pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1], "y": rng.choice(["x", "z", "null"], n)})
    frame.to_csv(tmp_path / "t.csv", index=False)
    prints = set()
    for memory in (2**22, 2**30):
        report = convert(
            [tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", missing="mean", on_error="skip",
            dtype="float64", shuffle=False, force=True, memory=memory, chunk_nnz=2**10,
        )  # fmt: skip
        prints.add(report.fingerprint)
    assert len(prints) == 1
    kept = frame[(frame["y"] != "null") & (frame["b"] != "inf")]
    X = kept[["a", "b"]].apply(pd.to_numeric).to_numpy(float)
    np.testing.assert_allclose(stored(tmp_path / "a.zarr")[0], SimpleImputer().fit_transform(X), rtol=1e-12)


def test_a_mean_needs_a_number_and_earlier_data_say_what_is_missing(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    write(frame, tmp_path / "t.csv")
    convert([tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", missing=0)
    with pytest.raises(SettingsError, match=r"missing must be left out, because .*a\.zarr defines"):
        convert([tmp_path / "t.csv"], tmp_path / "b.zarr", like=tmp_path / "a.zarr", missing="mean")
    frame.assign(age=pd.array([None] * N, "Float64")).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="column 'age' has no mean"):
        convert([tmp_path / "t.parquet"], tmp_path / "b.zarr", label="y", missing="mean")


def test_missing_labels_are_what_pandas_and_pyarrow_take_for_missing(tmp_path: Path) -> None:
    assert set(pyarrow.csv.ConvertOptions().null_values) <= MISSING_TEXTS
    texts = [*sorted(MISSING_TEXTS - {""}), "NAN", "na", "none", "-", "x", "01", "1"]
    rows = "".join(f'"{text}",{number}\n' for number, text in enumerate(texts))
    (tmp_path / "t.csv").write_text("y,n\n" + rows + ",7\n")
    by_pandas = pd.read_csv(tmp_path / "t.csv", dtype={"y": str})["y"]
    assert by_pandas.isna().sum() == len(MISSING_TEXTS)
    report = convert([tmp_path / "t.csv"], tmp_path / "a.zarr", label="y", shuffle=False)
    assert stored(tmp_path / "a.zarr")[1] == by_pandas.dropna().tolist()
    assert report.unlabelled == len(MISSING_TEXTS)
    assert "labels '01' and '1' are the same number" in report.warnings[0]
    # As text they are labels, and test data is read in the same way.
    report = convert([tmp_path / "t.csv"], tmp_path / "b.zarr", label="y", labels_as="text", shuffle=False)
    assert stored(tmp_path / "b.zarr")[1] == texts
    assert report.unlabelled == 1
    convert([tmp_path / "t.csv"], tmp_path / "c.zarr", like=tmp_path / "b.zarr", shuffle=False)
    assert stored(tmp_path / "c.zarr")[1] == texts
    # Types say what is missing where there are types.
    pd.DataFrame({"y": ["NA", "nan", None, "b"], "n": range(4)}).to_parquet(tmp_path / "t.parquet")
    report = convert([tmp_path / "t.parquet"], tmp_path / "d.zarr", label="y", shuffle=False)
    assert (stored(tmp_path / "d.zarr")[1], report.unlabelled) == (["NA", "nan", "b"], 1)
    convert([tmp_path / "t.csv"], tmp_path / "e.zarr", like=tmp_path / "d.zarr", unseen_label="keep")
