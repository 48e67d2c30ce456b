"""Labels come back as they were given, in the type of `y` or of a file; inside they are texts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store, read_rows
from sklearn.metrics import accuracy_score

import streamsvm
from streamsvm import Model, evaluate, fit, load_model, open_store, predict
from streamsvm.errors import InputError, ModelError, StreamsvmWarning

N, D, K = 90, 8, 4
X, CODES = make_problem(N, D, K, noise=0.3)
TEXTS = np.array(["tea", "ant", "cow", "bee"])[CODES]
UNUSED = pd.Series(pd.Categorical(TEXTS, categories=["none", "tea", "cow", "bee", "ant"]))
KINDS: dict[str, tuple[Any, str]] = {
    "int64": (CODES.astype(np.int64) * 4 - 7, "int64"),  # as text 1 would come before -7, and 5 after 10
    "int32": (CODES.astype(np.int32) * 5, "int32"),
    "uint8": (CODES.astype(np.uint8) * 80, "uint8"),
    "uint64": (CODES.astype(np.uint64) + 2**63, "uint64"),
    "float64": (CODES * 3.0 - 3, "float64"),
    "float32": (CODES.astype(np.float32), "float32"),
    "bool": (CODES > 1, "bool"),
    "text": (TEXTS, "<U3"),
    "list": (TEXTS.tolist(), "<U3"),
    "objects": (TEXTS.astype(object), "object"),
    "Series": (pd.Series(TEXTS), "object"),
    "string": (pd.Series(TEXTS, dtype="string"), "object"),
    "categories": (UNUSED, "object"),
    "integer categories": (pd.Series(CODES).astype("category"), str(CODES.dtype)),
    "Int64": (pd.Series(CODES, dtype="Int64"), "int64"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_have_the_type_of_y_also_when_saved(tmp_path: Path, kind: str) -> None:
    y, dtype = KINDS[kind]
    model = fit(X, y, passes=3)
    model.save(tmp_path / "model")
    plain, pandas = np.asarray(y), pd.Series(np.asarray(y))
    for each in (model, load_model(tmp_path / "model")):
        predicted = each.predict(X)
        assert each.classes_.dtype == predicted.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(each.classes_, np.unique(plain))
        np.testing.assert_array_equal(each.classes_[each.decision_function(X).argmax(axis=1)], predicted)
        accuracy = accuracy_score(y, predicted)
        assert accuracy > 0.8
        assert accuracy == pytest.approx((predicted == plain).mean()) == (pandas == predicted).mean()
        assert accuracy == pytest.approx(each.score(X, y)) == evaluate(each, X, y).accuracy
        assert predict(each, X).labels.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(predict(each, X, top_k=2).labels[:, 0], predicted)


NO_CLASSES: list[tuple[Any, str]] = [
    (np.linspace(0, 1, N), "^Unknown label type: continuous: y contains 0.0112.*to text with y.astype"),
    (np.where(CODES, np.inf, 1), "^Unknown label type: continuous: y contains inf"),
    (np.array(["2024-01-01", "2025-01-01"], "datetime64[D]")[CODES % 2], "labels of type datetime64"),
    (pd.Series(pd.to_datetime(["2024-01-01", "2025-01-01"])[CODES % 2]), "labels of type datetime64"),
    (np.array([b"a", b"b"])[CODES % 2], "labels of type"),
    (np.array([1 + 0j, 2])[CODES % 2], "labels of type complex128"),
    (pd.Series(pd.period_range("2024", periods=2, freq="D")[CODES % 2]), "labels of type Period"),
    (np.array([np.inf, 1], object)[CODES % 2], "labels of type float"),
    ([["a", 1][code % 2] for code in CODES.tolist()], "types that cannot be compared"),
]


def test_what_names_no_classes_is_refused() -> None:
    for y, problem in NO_CLASSES:
        with pytest.raises(InputError, match=problem):
            fit(X, y)


@pytest.mark.parametrize(
    ("trained", "other"),
    [
        (CODES == 1, (CODES == 1).astype(int)),
        (CODES == 1, (CODES == 1).astype(float)),
        ((CODES == 1).astype(int), CODES == 1),
        (np.where(CODES == 1, 1.0, -1.0), np.where(CODES == 1, 1, -1).astype("int8")),
        (np.where(CODES == 1, 1, -1), pd.Series(np.where(CODES == 1, "+1", "-1"))),
    ],
)
def test_labels_of_other_types_are_the_same_values(trained: np.ndarray, other: Any) -> None:
    model = fit(X, trained, passes=3)
    expected = accuracy_score(np.asarray(other).astype(float), model.predict(X).astype(float))
    assert expected > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(X, other) == evaluate(model, X, other).accuracy == pytest.approx(expected)
        sets = [[label] for label in np.asarray(other).tolist()]
        assert evaluate(model, X, sets).precision[1] == pytest.approx(expected)


def test_unknown_and_missing_labels_are_told(tmp_path: Path) -> None:
    model = fit(X, CODES, passes=3)
    predicted = model.predict(X)
    y = CODES.astype(object)
    y[:5], y[5:7], y[7], y[8] = 77, None, np.nan, pd.NA
    kept = ~pd.isna(y)
    expected = accuracy_score(np.where(kept, y, 77)[kept].astype(int), predicted[kept])
    for score in (Model.score, evaluate):
        with pytest.warns(StreamsvmWarning, match=r"5 rows have labels unknown .* count as wrong"):
            found = score(model, X, y)
        assert (found if score is Model.score else found.accuracy) == pytest.approx(expected)
    assert found.n == N - 4
    assert found.unlabelled == 4
    weights = np.arange(N) % 3
    with pytest.warns(StreamsvmWarning):
        found = model.score(X, y, weights)
    correct = (predicted == np.where(kept, y, 77))[kept]
    assert found == pytest.approx(np.average(correct, weights=weights[kept]))
    with pytest.warns(StreamsvmWarning, match="y: labels unknown to the model are ignored .1 in total"):
        evaluate(model, X, [[77, 1], *([label] for label in CODES[1:].tolist())])
    with pytest.raises(InputError, match=r"y\[3\] is missing"):
        fit(X, pd.Series(CODES, dtype="Int64").where(np.arange(N) != 3))

    data = anndata.AnnData(X, obs=pd.DataFrame({"kind": CODES}, index=np.arange(N).astype(str)))
    accuracy = pytest.approx(accuracy_score(CODES, predicted), rel=0, abs=1e-15)
    assert model.score(data, "kind") == evaluate(model, data, "kind").accuracy == accuracy
    store = make_store(tmp_path / "s.zarr", sp.csr_array(X), np.where(np.arange(N) < 4, 9, CODES))
    with pytest.warns(StreamsvmWarning, match=r"s.zarr: 4 rows have labels unknown .* count as wrong"):
        evaluate(model, store)


def test_unknown_labels_are_wrong_and_class_weights_name_classes_by_value_or_text() -> None:
    model = fit(X, CODES, passes=3)
    with pytest.warns(StreamsvmWarning, match=rf"y: {N} rows have labels unknown .* count as wrong"):
        assert model.score(X, CODES + 100) == 0
    with pytest.raises(ModelError, match="several labels per row"):
        model.score(X, [[0, 1]] * N)
    by_float = fit(X, CODES.astype(float), class_weight={1.0: 3, 2: 0.5}, passes=2)
    by_text = fit(X, CODES, class_weight={"1": 3, "2": 0.5}, passes=2)
    np.testing.assert_array_equal(by_float.coef_, by_text.coef_)


# -- files -----------------------------------------------------------------------------------------


def trained(store: Path, run: Path, **settings: Any) -> streamsvm.Model:
    fit(store, out=run, passes=1, **settings)
    return load_model(run)


def write(path: Path, labels: list[Any]) -> Path:
    """Rows with these labels, in the kind of file that the suffix says."""
    frame = pd.DataFrame({"a": np.arange(float(len(labels))), "b": 1.0, "y": labels})
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".h5ad":
        obs = frame[["y"]].set_index(frame.index.astype(str))
        anndata.AnnData(frame[["a", "b"]].to_numpy(), obs).write_h5ad(path)
    else:
        path.write_text("".join(f"{label} 1:{i} 2:1\n" for i, label in enumerate(labels)))
    return path


NUMBERS, MIXED = [10, 2, -3, 10, 2, -3], ["10", "2", "x", "10", "2", "x"]


FILES: list[tuple[str, Any, str]] = [
    ("a", NUMBERS, "int64"),
    ("a", MIXED, "<U2"),
    ("a", [1.5, 2, 1.5], "<U3"),
    ("a", [str(2**63), "1"], "<U19"),
    ("a.csv", NUMBERS, "int64"),
    ("a.csv", MIXED, "<U2"),
    ("a.csv", ["01", "02", "01"], "<U2"),
    ("a.jsonl", NUMBERS, "int64"),
    ("a.jsonl", list(map(str, NUMBERS)), "<U2"),
    ("a.parquet", NUMBERS, "int64"),
    ("a.parquet", list(map(float, NUMBERS)), "int64"),
    ("a.parquet", list(map(str, NUMBERS)), "<U2"),
    ("a.h5ad", NUMBERS, "int64"),
    ("a.h5ad", pd.Categorical(NUMBERS), "int64"),
    ("a.h5ad", pd.Categorical(list(map(str, NUMBERS))), "<U2"),
    ("a.h5ad", [True, False, True], "<U5"),
]


def test_files_of_whole_numbers_have_integers(tmp_path: Path) -> None:
    for number, (name, labels, dtype) in enumerate(FILES):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, store = write(folder / name, labels), folder / "a.zarr"
        streamsvm.convert([path], store, label=None if name == "a" else "y")
        stores: dict[Path, dict[str, Any]] = {store: {}}
        if name.endswith(".h5ad"):
            stores[path] = {"label": "y"}  # as it is
        for run, (data, settings) in enumerate(stores.items()):
            model = trained(data, folder / f"run{run}", **settings)
            assert model.classes_.dtype == np.dtype(dtype)
            assert set(model.classes_.tolist()) == set(map(int if dtype == "int64" else str, labels))
            if dtype == "int64":
                np.testing.assert_array_equal(model.classes_, np.unique(labels))
            with open_store(data, **settings) as opened:
                assert opened.label_dtype == ("int64" if dtype == "int64" else "str")
                opened.verify()


def test_data_with_other_kinds_of_labels_is_joined_and_converted_alike(tmp_path: Path) -> None:
    for name, labels in (("ints", NUMBERS), ("others", [7, 100]), ("mixed", MIXED)):
        streamsvm.convert([write(tmp_path / name, labels)], tmp_path / f"{name}.zarr")
    ints, others, mixed = (tmp_path / f"{name}.zarr" for name in ("ints", "others", "mixed"))
    assert trained([ints, others], tmp_path / "1").classes_.tolist() == [-3, 2, 7, 10, 100]
    assert trained([ints, mixed], tmp_path / "2").classes_.tolist() == ["-3", "10", "2", "x"]
    # Held-out rows and files like earlier data are matched by text, and have the kind of that data.
    with pytest.warns(StreamsvmWarning, match="2 of 6 rows have labels that the training data lacks"):
        result = fit(ints, out=tmp_path / "3", valid=mixed, passes=1)
    assert result.valid_accuracy is not None
    model = load_model(tmp_path / "3")
    model.save(tmp_path / "as int32")
    for like, dtype in ((ints, "int64"), (mixed, "str"), (tmp_path / "3", "int64")):
        part = tmp_path / f"part {like.name}.zarr"
        streamsvm.convert([tmp_path / "ints"], part, like=like, unseen_label="keep")
        with open_store(part) as opened:
            assert opened.label_dtype == dtype
    tuned = streamsvm.tune(ints, out=tmp_path / "4", C=[0.1, 1], hold_out="1/2", passes=1)
    assert tuned.C in (0.1, 1)
    assert load_model(tmp_path / "4").classes_.tolist() == [-3, 2, 10]


def test_a_stream_of_integers_refuses_a_text(tmp_path: Path) -> None:
    from streamsvm_converters import TextSource

    path = write(tmp_path / "a", [3, 10, 3, "cat", 10])
    with pytest.raises(InputError, match=r"row 4 has the label 'cat', .* must be whole numbers"):
        streamsvm.online(TextSource([path]), out=tmp_path / "run")
    streamsvm.online(TextSource([path], classes=[3, 10, "cat"]), out=tmp_path / "named", C=1)
    assert load_model(tmp_path / "named").classes_.tolist() == ["3", "10", "cat"]
    streamsvm.online(TextSource([write(tmp_path / "b", ["cat", 3, 10])]), out=tmp_path / "texts", C=1)
    assert set(load_model(tmp_path / "texts").classes_.tolist()) == {"10", "3", "cat"}
    streamsvm.online(TextSource([write(tmp_path / "c", [10, 3, 10])]), out=tmp_path / "ints", C=1)
    model = load_model(tmp_path / "ints")
    assert model.classes_.tolist() == [3, 10]
    [(rows, _)] = read_rows([tmp_path / "c"], classes=model.classes_, n_features=2, index_base=0)
    assert rows.labels.tolist() == [1, 0, 1]
