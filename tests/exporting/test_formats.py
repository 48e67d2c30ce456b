"""scikit-learn and ONNX: the programs themselves give our labels and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from cases import few
from helpers import FEATURES
from problems import D, clear_rows, trained, trained_on_label_sets
from warm_process import run

import streamsvm
from streamsvm import export_model, load_model
from streamsvm.errors import ModelError, SettingsError

LINEAR = [None, "bias=2", f"idf,select={FEATURES},scale=maxabs,bias", f"scale=std,center,select={FEATURES}"]
ROWWISE = [
    "l2",
    "scale=std,l2,bias=0.5",
    f"select={FEATURES},center,scale=std,l2,bias",
    "normalize=100,log1p",
    f"select={FEATURES},log1p,idf,l2",
    "binarize",
    f"scale=std,center,select={FEATURES},fourier=40",
    "log1p,fourier=70:gamma=0.1",
]


def estimator_of(model: streamsvm.Model, path: Path) -> Any:
    export_model(model, path)
    return joblib.load(path)


def session_of(model: streamsvm.Model, path: Path) -> Any:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    export_model(model, path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("k", "transform"), [*((5, each) for each in [*LINEAR, *ROWWISE]), (2, LINEAR[1]), (2, ROWWISE[1])]
)
def test_sklearn(tmp_path: Path, k: int, transform: str | None) -> None:
    model, X = trained(k, transform=transform)
    found = estimator_of(model, tmp_path / "m.joblib")
    clear = clear_rows(model, X)
    for rows in (X.toarray(), X)[
        : 1 if "center" in (transform or "") else 2
    ]:  # that scaler takes no sparse rows
        assert found.predict(rows)[clear].tolist() == model.predict(X)[clear].tolist()
    assert found.n_features_in_ == D
    ours, theirs = model.decision_function(X), found.decision_function(X.toarray())
    expected = ours[:, 1] - ours[:, 0] if k == 2 else ours
    np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-5)
    if transform in LINEAR:
        assert found.coef_.shape == (1 if k == 2 else k, D)
        assert found.classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize("transform", few([None, "log1p,idf,l2"], "log1p,idf,l2"))
def test_sklearn_loads_without_streamsvm_and_knows_the_names(tmp_path: Path, transform: str | None) -> None:
    _, X = trained(3)
    frame = pd.DataFrame(X.toarray(), columns=[f"gene {j}" for j in range(D)])
    frame["seen"] = pd.Categorical([[False, None, True][i % 3] for i in range(50)])
    labels = np.where(np.arange(50) % 3, "a", "b")
    model = streamsvm.fit(frame, labels, passes=2, transform=transform)
    path = tmp_path / "m.joblib"
    export_model(model, path)
    frame.to_pickle(tmp_path / "rows.pkl")
    code = (
        "import joblib, pandas as pd, sys, warnings; warnings.simplefilter('error'); "
        f"found = joblib.load({str(path)!r}); rows = pd.read_pickle({str(tmp_path / 'rows.pkl')!r}); "
        "print(*found.predict(rows)); assert 'streamsvm' not in sys.modules; "
        "assert found.feature_names_in_.tolist() == rows.columns.tolist()"
    )
    done = run(code=code, bare=True)
    assert done.code == 0, done.err
    assert done.out.split() == model.predict(frame).tolist()


@pytest.mark.parametrize(("k", "dtype"), [(2, "float64"), (5, "float32")])
@pytest.mark.parametrize("transform", [*LINEAR, *ROWWISE, "clip=0.5,bias"])
def test_onnx(tmp_path: Path, k: int, transform: str | None, dtype: str) -> None:
    names = ["ä", "b", "c", "d", "e"] if dtype == "float32" else [-2, 7, 100, 5, 1]
    model, X = trained(k, transform=transform, dtype=dtype, labels=names[:k])
    session = session_of(model, tmp_path / "m.onnx")
    labels, scores = session.run(["label", "scores"], {"X": X.toarray().astype(dtype)})
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-5, atol=1e-5)
    clear = clear_rows(model, X)
    assert labels[clear].tolist() == model.predict(X)[clear].tolist()
    assert labels.dtype == (object if dtype == "float32" else np.int64)
    empty = session.run(["scores"], {"X": np.zeros((1, D), dtype)})[0]
    np.testing.assert_allclose(empty, model.decision_function(np.zeros((1, D))), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_onnx_takes_logarithms_of_small_values_accurately(tmp_path: Path, dtype: str) -> None:
    """The scores of one feature, the logarithm times its coefficient, against NumPy's log1p in float64."""
    X = np.array([[1.0], [2.0]] * 4)
    model = streamsvm.fit(X, ["a", "b"] * 4, passes=2, transform="log1p", dtype=dtype)
    session = session_of(model, tmp_path / "m.onnx")
    x = np.concatenate([np.logspace(-30, 30, 2001), [1e-3, 1.0, 5.0, 3e4]]).astype(dtype)[:, None]
    scores = session.run(["scores"], {"X": x})[0]
    expected = np.log1p(x.astype(np.float64)) @ model.coef_.T.astype(np.float64)
    np.testing.assert_allclose(scores, expected, rtol=1e-6 if dtype == "float32" else 1e-14)


@pytest.mark.engine
def test_onnx_of_several_labels_a_row_has_scores_alone(tmp_path: Path) -> None:
    model, X = trained_on_label_sets()
    session = session_of(model, tmp_path / "m.onnx")
    assert [output.name for output in session.get_outputs()] == ["scores"]
    [scores] = session.run(None, {"X": X.toarray().astype(np.float64)})
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", few(["logistic", "sparsemax"], "logistic"))
def test_onnx_has_probabilities_where_the_model_has(tmp_path: Path, loss: str) -> None:
    model, X = trained(4, loss=loss)
    session = session_of(model, tmp_path / "m.onnx")
    found = session.run(["probabilities"], {"X": X.toarray().astype(np.float32)})[0]
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-5)


# -- raw data --------------------------------------------------------------------------------------


def table(seed: int, towns: str) -> pd.DataFrame:
    """500 rows with gaps; the texts of wards are in another order than the numbers; codes are digits."""
    rng = np.random.default_rng(seed)
    town, ward, code = (rng.choice(each, 500) for each in ([*towns, None], range(1, 13), ["01", "10", "9"]))
    frame = pd.DataFrame({"town": town, "ward": ward, "code": code, "year": rng.uniform(1990, 2024, 500)})
    frame["age"] = np.where(rng.random(500) < 0.2, np.nan, rng.normal(40, 9, 500))
    return frame.assign(y=np.where(town == "a", code, np.where(ward % 2, "odd", "even")))


@pytest.mark.filterwarnings("ignore:X has .* category values that")
@pytest.mark.parametrize("transform", [None, "center,scale=std,l2,bias"])
@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_models_of_tables_take_raw_columns(tmp_path: Path, missing: str, transform: str | None) -> None:
    table(0, "abc").to_parquet(tmp_path / "t.parquet")
    options = {"missing": missing, "transform": transform, "dtype": "float64", "passes": 2}
    streamsvm.fit(tmp_path / "t.parquet", out=tmp_path / "run", label="y", categorical=["ward"], **options)
    model, rows = load_model(tmp_path / "run"), table(1, "abcz").drop(columns="y")
    expected = model.decision_function(rows)
    assert expected.std(axis=0).min() > 1e-4
    found = estimator_of(model, tmp_path / "m.joblib")
    for frame in (rows, rows[rows.columns[::-1]], rows.astype({"ward": "Int64", "town": "category"})):
        np.testing.assert_allclose(found.decision_function(frame.assign(y="p")), expected, atol=1e-9)
    assert len(found[0].get_feature_names_out()) == model.n_features_in_
    session = session_of(model, tmp_path / "m.onnx")
    texts = rows.astype(object).where(rows.notna(), "").astype(str)
    given = {x.name: (texts if "str" in x.type else rows)[[x.name]].to_numpy() for x in session.get_inputs()}
    label, scores = session.run(["label", "scores"], given)
    np.testing.assert_allclose(scores, expected, atol=1e-9)
    assert label.tolist() == found.predict(rows).tolist() == model.predict(rows).tolist()


def test_models_of_text_take_texts_and_what_has_no_counterpart_is_refused(tmp_path: Path) -> None:
    texts, labels = ["the cat sat", "The Dog ran", "a cow, a hat"] * 2, ["p", "q", "r"] * 2
    for transform in None, "idf,l2":
        model = streamsvm.fit(texts, labels, bits=12, ngrams=(1, 3), analyzer="char", transform=transform)
        scores = estimator_of(model, tmp_path / f"{transform}.joblib").decision_function(pd.Series(texts))
        np.testing.assert_allclose(scores, model.decision_function(texts), atol=1e-5)
    frame = pd.DataFrame({"label": range(6)})
    numbers = streamsvm.fit(frame, labels)
    with pytest.raises(ValueError, match="contains NaN"):
        estimator_of(numbers, tmp_path / "n.joblib").predict(frame * np.nan)
    model.record["encoding"]["text"]["columns"].append("second")
    numbers.record["encoding"]["columns"][0]["date"] = "days"
    refused = r"cannot encode (text|date) columns; export to streamsvm"
    for each in model, numbers:
        with pytest.raises(ModelError, match=refused):
            export_model(each, tmp_path / "t.joblib")
    pytest.importorskip("onnx")
    with pytest.raises(ModelError, match=refused):
        export_model(model, tmp_path / "t.onnx")
    del numbers.record["encoding"]["columns"][0]["date"]
    with pytest.raises(ModelError, match="column 'label' has the same name as an output; export to sklearn"):
        export_model(numbers, tmp_path / "n.onnx")


# -- our own format --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:X. the labels are 57 different numbers")
def test_pruned_and_rounded_models_predict_within_what_is_promised(tmp_path: Path) -> None:
    model, X = trained(30, d=200, density=0.1)
    W, eps = model.coef_.T.astype(np.float64), 0.01
    exported = export_model(model, tmp_path / "a", "streamsvm", prune=eps, dtype="float16")
    small = load_model(tmp_path / "a")
    found = small.weights()
    np.testing.assert_array_equal(found, np.where(np.abs(W) > eps, W, 0).astype(np.float16))
    assert found.dtype == np.float32
    files = [path for path in (tmp_path / "a").iterdir() if path.suffix == ".npy"]
    assert sum(path.stat().st_size for path in files) <= W.size * 2 + 128
    assert exported.bytes == sum(path.stat().st_size for path in (tmp_path / "a").iterdir())
    assert small.record["version"] == 9
    change = np.abs(small.decision_function(X) - X @ W)
    sums = abs(X).sum(axis=1)[:, None]
    assert (change <= eps * sums + abs(X) @ np.abs(W) / 2048 + 1e-5).all()
    small.save(tmp_path / "b")
    np.testing.assert_array_equal(load_model(tmp_path / "b").decision_function(X), small.decision_function(X))


def test_a_float64_model_becomes_one_of_float32(tmp_path: Path) -> None:
    model, X = trained(3, dtype="float64", transform="bias")
    model.save(tmp_path / "a", dtype="float32")
    small = load_model(tmp_path / "a")
    assert small.coef_.dtype == small.decision_function(X).dtype == np.float32
    np.testing.assert_array_equal(small.coef_, model.coef_.astype(np.float32))
    np.testing.assert_allclose(small.decision_function(X), model.decision_function(X), rtol=1e-5, atol=1e-5)


@pytest.mark.engine
def test_what_a_format_cannot_hold_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from streamsvm_converters import TextSource

    (tmp_path / "a.txt").write_text("a 1:1 3:1\nb 2:1\n" * 20)
    streamsvm.online(TextSource([tmp_path / "a.txt"]), out=tmp_path / "run", transform="hash=6")
    plain, several, hashed = trained(3)[0], trained_on_label_sets()[0], tmp_path / "run"
    large = trained(3)[0]
    large.coef_.T[2, 1] = 1e6
    transformed = [
        trained(3, transform=text)[0] for text in ("l2", "log1p", "clip=3", "scale=std,l2,bias", "fourier=9")
    ]
    (tmp_path / "there.txt").write_text("mine")
    sets, hashes = r"rows with several labels, but \w+ predicts only one; export to onnx", "hashes features"
    cases: list[tuple[Any, str, dict[str, Any], type[Exception], str]] = [
        *((several, name, {}, ModelError, sets) for name in ("m.txt", "m.joblib")),
        *((hashed, name, {}, ModelError, hashes) for name in ("m.txt", "m.joblib", "m.onnx")),
        *(
            (each, "m.txt", {}, ModelError, "format cannot represent these transforms of the model: ")
            for each in transformed
        ),
        (large, "m", {"format": "streamsvm", "dtype": "float16"}, ModelError, "maximum of float16 is 65504"),
        (plain, "there.txt", {}, ModelError, "already exists; replace it with force=True"),
        (plain, "m", {}, SettingsError, "format must be one of .*, or m must end in"),
        (plain, "m.txt", {"format": "pmml"}, SettingsError, "format must be one of"),
        (plain, "m.txt", {"dtype": "float16"}, SettingsError, "dtype applies only to the format streamsvm"),
        (plain, "m.txt", {"prune": float("nan")}, SettingsError, "prune must be a number of at least 0"),
    ]
    before = sorted(tmp_path.iterdir())
    for model, name, options, error, words in cases:
        with pytest.raises(error, match=words):
            export_model(model, tmp_path / name, **options)
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "there.txt").read_text() == "mine"
