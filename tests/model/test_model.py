"""A model comes back as it was saved, predicts what NumPy predicts, and notices any damage."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store, reseal, save_weights
from helpers import plain_fit as fit
from helpers import plain_online as online
from streamsvm_converters import TextSource

from streamsvm import Model, load_model, open_store
from streamsvm.base import format
from streamsvm.errors import FeatureError, ModelError, PlanError, StreamsvmWarning
from streamsvm.inputs.rows import RowsToScore
from streamsvm.model.serialization import check_room

D, K = 12, 5
CLASSES = ["cat", "dog", "-1", "ä", "1e3"]
NAMES = [f"gene {j} ü" for j in range(D)]
COSTS = np.arange(K * K, dtype=np.float32).reshape(K, K)
np.fill_diagonal(COSTS, 0)


def record(**changes) -> dict:
    return {"classes": CLASSES, "n_features": D, "index_base": 1, "dtype": "float32", "C": 0.5, **changes}


@pytest.fixture
def coef() -> np.ndarray:
    """Whole numbers, so that scores are exact and equal ones occur."""
    return np.random.default_rng(0).integers(-2, 3, size=(D, 8)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, coef: np.ndarray) -> Path:
    save_weights(tmp_path / "model", coef, record())
    return tmp_path / "model"


def test_it_comes_back_and_numpy_alone_reads_the_coefficients(folder: Path, coef: np.ndarray) -> None:
    model = load_model(folder)
    np.testing.assert_array_equal(model.coef_.T, coef[:, :K])
    assert model.coef_.dtype == np.float32
    assert not model.coef_.flags.writeable
    assert model.classes_.tolist() == CLASSES
    assert record().items() <= model.record.items()
    np.testing.assert_array_equal(load_model(folder.parent).coef_, model.coef_)  # by the run around it
    mapped = np.load(folder / "coef.npy", mmap_mode="r", allow_pickle=False)
    np.testing.assert_array_equal(mapped, coef[:, :K])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_predictions_equal_numpy(tmp_path: Path, coef: np.ndarray, dtype: str) -> None:
    """Whole numbers: every score is exact in any order of summation, and ties are real."""
    save_weights(tmp_path / "model", coef.astype(dtype), record(dtype=dtype))
    model = load_model(tmp_path / "model")
    rng = np.random.default_rng(1)
    X = rng.integers(-1, 2, size=(300, D)) * (rng.random((300, D)) < 0.3)
    scores = X @ coef[:, :K]
    ties = (scores == scores.max(axis=1)[:, None]).sum(axis=1) > 1
    assert ties.sum() > 20
    for given in X, X.tolist(), *(make(X) for make in (sp.csr_array, sp.csc_array, sp.coo_array)):
        np.testing.assert_array_equal(model.decision_function(given), scores)
        assert model.decision_function(given).dtype == dtype
        np.testing.assert_array_equal(model.predict(given), np.array(CLASSES)[scores.argmax(axis=1)])
    for i, row in enumerate(X[:20]):
        indices = rng.permutation(np.flatnonzero(row))
        for given in (X[[i]].astype(np.float16), sp.csr_array(X[[i]]), (indices, row[indices].astype(float))):
            np.testing.assert_array_equal(model.decision_function(given), scores[[i]])
            assert model.predict(given).tolist() == [CLASSES[scores[i].argmax()]]


def test_duplicate_entries_add_up_and_the_input_stays(folder: Path, coef: np.ndarray) -> None:
    parts = np.array([1.0, 2.0, 5.0]), np.array([3, 3, 0]), np.array([0, 2, 3])
    X = np.zeros((2, D))
    X[0, 3], X[1, 0] = 3, 5
    unsummed = sp.csr_array(parts, shape=(2, D))
    for array in (unsummed.data, unsummed.indices, unsummed.indptr):
        array.flags.writeable = False
    np.testing.assert_array_equal(load_model(folder).decision_function(unsummed), X @ coef[:, :K])
    assert unsummed.nnz == 3


def test_scores_beyond_all_numbers_are_refused(tmp_path: Path) -> None:
    save_weights(tmp_path / "model", np.full((D, 8), 1e30, np.float32), record())
    X = np.zeros((5, D), np.float32)
    X[3] = 1e30
    for data in X, sp.csr_array(X):
        with pytest.raises(ModelError, match="row 4 of the data: a score overflows float32"):
            load_model(tmp_path / "model").predict(data)


def test_what_is_no_matrix_of_finite_numbers_is_refused_with_its_place(folder: Path) -> None:
    """1e39 is finite, but not in the model's float32."""
    model = load_model(folder)
    refusals: list[tuple[Any, str]] = [
        *((np.zeros((2, width)), f"{width} features, but the model has {D}") for width in (D - 1, D + 1)),
        *((X, "pass a numeric matrix with one row") for X in (
            np.ones(D), np.ones((2, D), complex), [[1.0], [1.0, 2.0]], [np.ones((2, 2)), np.ones((2, 3))],
            np.array([["a"] * D], object), np.array([["a"] * D]),
        )),
        (np.array([[None] * D], object), "2 dimensions and the dtype object"),
        ((np.array([1, 1]), np.array([1.0, 2.0])), "X repeats the index 1"),
        ((np.array([0, D]), np.ones(2)), f"X has the index {D}, but the model has the features 0 to {D - 1}"),
        ((np.array([-1]), np.ones(1)), "X has the index -1"),
        ((np.array([1, 2]), np.ones(1)), "X is a pair of arrays with the shapes"),
        ((np.array([1, 2]), np.array([1.0, np.nan])), r"X\[0, 2\]: nan is not finite"),
        ((np.array([1]), np.array(["x"])), "X is a pair of arrays"),
    ]  # fmt: skip
    for value in (np.nan, np.inf, -np.inf, 1e39):
        X = np.ones((4, D))
        X[1, 3], X[2, 5] = 0, value
        words = r"X\[2, 5\]: .* is not finite as float32"
        refusals += [(form(X), words) for form in (np.asarray, sp.csr_array, sp.csc_array)]
        refusals.append((X[[2]], r"X\[0, 5\]: .* is not finite as float32"))
    for given, words in refusals:
        for ask in (model.predict, model.decision_function):
            with pytest.raises(ModelError, match=words):
                ask(given)


def test_a_hashed_model_takes_matrices_of_any_width() -> None:
    X, labels = make_problem(100, 300, 4, density=0.1)
    model = fit(X, labels, passes=1, transform="hash=10")
    expected = model.decision_function(X)
    for given in (sp.hstack([X, sp.csr_array((100, 5000))]), sp.csc_array(X), X.toarray()):
        np.testing.assert_array_equal(model.decision_function(given), expected)
    assert model.predict(sp.csr_array((2, 7), dtype=np.float32)).tolist() == [model.classes_[0]] * 2
    named = pd.DataFrame(X.toarray()).rename(columns={3: "gene"})
    with pytest.warns(StreamsvmWarning, match="the model does not name its features"):
        np.testing.assert_array_equal(model.decision_function(named), expected)


# -- saving ----------------------------------------------------------------------------------------


def assert_equal_models(found: Model, expected: Model) -> None:
    assert type(found.coef_) is type(expected.coef_)
    dense = [coef.toarray() if sp.issparse(coef) else coef for coef in (found.coef_, expected.coef_)]
    np.testing.assert_array_equal(*dense)
    np.testing.assert_array_equal(found.costs, expected.costs)
    assert found.dtype == expected.dtype
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert list(found.transforms) == list(expected.transforms)
    names = [None if m.feature_names_in_ is None else list(m.feature_names_in_) for m in (found, expected)]
    assert names[0] == names[1]
    of_files = ("version", "checksum", "transforms")  # transforms have hashes of their arrays there
    ours = {name: value for name, value in expected.record.items() if name not in of_files}
    assert {name: found.record[name] for name in ours} == ours


def test_a_model_of_arrays_is_saved(tmp_path: Path) -> None:
    X, labels = make_problem(60, D, 4)
    model = fit(pd.DataFrame(X.toarray(), columns=NAMES), labels, passes=2)
    assert model.result.model == ""
    assert not {"memory", "block_rows"} & set(model.record)  # which trained no matrix
    model.save(tmp_path / "new" / "model")
    assert_equal_models(load_model(tmp_path / "new" / "model"), model)


def test_a_model_that_was_loaded_is_saved_as_the_same_bytes(
    tmp_path: Path, folder: Path, named: Path
) -> None:
    """Dense, sparse, with names of features and costs, and with hashing; also over itself."""
    rng = np.random.default_rng(0)
    many = record(classes=[str(c) for c in range(80)], n_features=40)
    save_weights(tmp_path / "sparse", (rng.random((40, 80)) < 0.02).astype(np.float32), many)
    assert not (tmp_path / "sparse" / format.COEF).exists()
    (tmp_path / "text").write_text("a 1:1 2:1\nb 2:1\na 1:2\n")
    online(TextSource([tmp_path / "text"]), out=tmp_path / "run", transform="hash=4")
    for path in (folder, named, tmp_path / "sparse", tmp_path / "run" / "model"):
        content = {file.name: file.read_bytes() for file in path.iterdir()}
        for target in (tmp_path / "copy", path):  # the copy replaces the model before
            load_model(path).save(target)
            saved = {file.name: file.read_bytes() for file in target.iterdir()}
            assert saved.keys() == content.keys()
            header, expected = (json.loads(files.pop(format.MODEL_JSON)) for files in (saved, dict(content)))
            for said in (header, expected):
                said.pop("checksum"), said.setdefault("transforms", [])
            assert header == expected
            assert saved == {name: text for name, text in content.items() if name != format.MODEL_JSON}
        assert_equal_models(load_model(tmp_path / "copy"), load_model(path))
    np.testing.assert_array_equal(load_model(named).costs, COSTS)


def test_saving_replaces_nothing_but_a_model(tmp_path: Path, folder: Path) -> None:
    model = load_model(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("important")
    with pytest.raises(ModelError, match="mine contains notes, which is not part of a model"):
        model.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes").read_text() == "important"
    for path in (tmp_path / "mine" / "notes", tmp_path / "mine" / "notes" / "model"):
        with pytest.raises(ModelError, match="cannot be written"):
            model.save(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "model"]


# -- names of features -----------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path: Path, coef: np.ndarray) -> Path:
    save_weights(tmp_path / "named", coef, record(index_base=None), names=NAMES, costs=COSTS)
    return tmp_path / "named"


def test_named_columns_are_matched_in_any_order(named: Path, coef: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    X = (rng.integers(-2, 3, size=(50, D)) * (rng.random((50, D)) < 0.5)).astype(np.float32)
    order = rng.permutation(D)
    table = pd.DataFrame(X[:, order], columns=[NAMES[j] for j in order])
    model = load_model(named)
    assert model.feature_names_in_.tolist() == json.loads((named / "features.json").read_bytes()) == NAMES
    cells = anndata.AnnData(sp.csr_matrix(table.to_numpy()), var=pd.DataFrame(index=table.columns))
    for given in table, cells:
        np.testing.assert_array_equal(model.decision_function(given), X @ coef[:, :K])
    np.testing.assert_array_equal(table.to_numpy(), X[:, order])  # the caller's values stay
    other = pd.DataFrame(X, columns=["new", *NAMES[1:]])
    with pytest.warns(
        StreamsvmWarning, match=r"1 are missing .*\('gene 0 ü'\) and 1 data features unknown"
    ) as caught:
        found = model.decision_function(other)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found, np.c_[np.zeros(50), X[:, 1:]] @ coef[:, :K])
    with pytest.raises(FeatureError, match="X has none of the 12 features of the model"):
        model.predict(pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]))
    with pytest.warns(StreamsvmWarning) as caught:
        model.predict(pd.DataFrame(X, columns=[NAMES[1], *NAMES[1:]]))
    numbered, matched = (str(warning.message) for warning in caught)
    assert "X: feature names are repeated ('gene 1 ü')" in numbered
    assert "1 data features unknown to the model are ignored ('gene 1 ü-1')" in matched


def test_names_of_one_side_alone_go_by_position_and_are_warned_of(
    named: Path, folder: Path, coef: np.ndarray
) -> None:
    X, without = np.eye(D), "the model does not name its features"
    table, numbered = pd.DataFrame(X, columns=NAMES), pd.DataFrame(X)
    for path, given, words in (named, X, "X does not name its features"), (folder, table, without):
        with pytest.warns(UserWarning, match=words) as caught:
            scores = load_model(path).decision_function(given)
        np.testing.assert_array_equal(scores, coef[:, :K])
        assert caught[0].filename == __file__
    np.testing.assert_array_equal(load_model(folder).decision_function(numbered), coef[:, :K])
    refused = pytest.raises(ModelError, match="the data has 11 features, but the model has 12")
    with pytest.warns(StreamsvmWarning, match=without), refused:
        load_model(folder).predict(table.iloc[:, 1:])


# -- stores ----------------------------------------------------------------------------------------


def test_batches_are_the_rows_of_the_store_within_memory(tmp_path: Path, coef: np.ndarray) -> None:
    X, labels = make_problem(200, D, 4)
    store = make_store(tmp_path / "a.h5", X, labels)
    save_weights(tmp_path / "model", coef, record(classes=["3", "9", "1", "0", "7"]))
    model = load_model(tmp_path / "model")
    codes = np.array([3, 2, -1, 0])[labels]
    with open_store(store) as opened:
        whole, small = ([*RowsToScore(model, memory=memory).read(opened)] for memory in (2**28, 60_000))
    assert len(small) > 3
    for batches in ([rows for rows, _ in read] for read in (whole, small)):
        assert sum(rows.n_rows for rows in batches) == 200
        np.testing.assert_array_equal(np.concatenate([rows.labels for rows in batches]), codes)
        found = np.concatenate([s.copy() for rows in batches for _, s in model.scores(rows)])
        np.testing.assert_allclose(found, X @ coef[:, :K], rtol=1e-5, atol=1e-5)


# -- damage ----------------------------------------------------------------------------------------


def test_any_damage_of_a_file_is_found(named: Path) -> None:
    """Of model.json, all but bytes that mean nothing: white space turned into other white space."""
    meaning = load_model(named).record
    for path in list(named.iterdir()):
        whole, unnoticed = path.read_bytes(), []
        for at in range(len(whole)):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            try:
                assert load_model(named).record == meaning
                unnoticed.append(whole[at : at + 1])
            except ModelError as error:
                assert re.fullmatch(f".*{path.name} is damaged.*", str(error))  # noqa: PT017
        assert all(map(bytes.isspace, unnoticed)) if path.name == "model.json" else not unnoticed
        for content in (b"", whole[:-3], whole + b"x"):
            path.write_bytes(content)
            with pytest.raises(ModelError, match=f"{path.name} is damaged"):
                load_model(named)
        path.unlink()
        with pytest.raises(ModelError, match=f"there is no model at .*{path.name}|{path.name} is missing"):
            load_model(named)
        path.write_bytes(whole)


def test_hostile_headers_allocate_nothing_and_run_nothing(folder: Path) -> None:
    whole = (folder / "coef.npy").read_bytes()
    for found, put in ((b"(12, 5)", b"(2**60,5)"), (b"'<f4'", b"'|O'"), (b"(12, 5)", b"(" * 200)):
        assert found in whole
        reseal(folder, coef=whole.replace(found, put))
        with pytest.raises(ModelError, match=r"coef\.npy is damaged: it is not an array"):
            load_model(folder)


LABELS = "not distinct labels of type"


def test_a_sealed_record_that_does_not_fit_is_refused(folder: Path) -> None:
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"version": 99}, "model format 99, but this version of streamsvm reads format 9; use the version"),
        ({"version": "9"}, "model format '9', but"),
        ({"label_dtype": "int64"}, f"{LABELS} int64"),
        ({"label_dtype": "float128"}, "label_dtype must be a type of labels"),
        ({"label_dtype": "int8", "classes": ["1", "2", "3", "4", "500"]}, "outside the range of int8"),
        ({"label_dtype": "object", "class_values": [1]}, f"{LABELS} object"),
        ({"label_dtype": "object", "class_values": [[], 2, 3, 4, 5]}, "not distinct labels"),
        ({"n_features": 2**60}, "not an array"),
        ({"n_features": -12}, "n_features must be in"),
        ({"n_features": "12"}, "n_features must be of type int"),
        ({"dtype": "float64"}, "not an array"),
        ({"dtype": "float33"}, "dtype must be one of"),
        ({"dtype": "int32"}, "dtype must be one of"),
        ({"classes": ["a"]}, "not an array"),
        ({"classes": 5}, "classes must be a list"),
        ({"classes": "abcde"}, "classes must be a list"),
        ({"classes": ["a", "b", "c", "d", "\ud800"]}, "classes must be a list of labels"),
        ({"classes": ["a", "b", "c", "d", 5]}, r"classes\[4\] must be of type str"),
        ({"index_base": 2}, "index_base must be one of"),
        *(({entry: value}, f"model.json is damaged: {entry}") for entry, value in (
            ("label", ["type"]), ("label", 1), ("labels_as", "words"),
            *((format.TEMPERATURE, value) for value in (0, 1e101, 1e-101, 10**400, "1", True, {})),
        )),
        *(({format.ANSWERED: dict(zip(("thresholds", "rows", "right"), value, strict=True))},
           "model.json is damaged: answered") for value in (
            ([], [], []), ([0.1, 0.2], [9], [9]), ([0.2, 0.1], [9, 8], [7, 7]), ([0.1, 0.2], [8, 9], [7, 7]),
            ([0.1], [8], [9]), ([0.1], [8], [-1]), ([0.1], ["8"], [7]),
        )),
        ({"transforms": [{"name": "wavelet"}]}, "the transform wavelet, which this version does not know"),
    ]  # fmt: skip
    path = folder / "model.json"
    whole = json.loads(path.read_bytes())
    for changes, words in refusals:
        reseal(folder, changes)
        with pytest.raises(ModelError, match=words):
            load_model(folder)
        path.write_text(json.dumps(whole))
    texts = ["", "[]", "null", "{}", "NaN", "[" * 10**5, '{"checksum": NaN}', "\x00\xff"]
    for name in ("classes", "n_features", "dtype", "version", "crc32", "index_base", "layout"):
        texts.append(json.dumps(format.sealed({key: value for key, value in whole.items() if key != name})))
    for text in texts:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match="damaged"):
            load_model(folder)


def test_sealed_costs_and_names_that_do_not_fit_are_refused(named: Path) -> None:
    of_row, no_array = "predicting 'dog' for a row of 'cat' costs -1", "it is not an array"
    for costs, words in (-COSTS, of_row), (COSTS[:2, :2], no_array), (COSTS.astype(float), no_array):
        np.save(named / "costs.npy", costs)
        reseal(named)
        with pytest.raises(ModelError, match=rf"costs\.npy is damaged: .*{words}"):
            load_model(named)
    for names in (NAMES[1:], [*NAMES[1:], NAMES[1]], [*NAMES[1:], 5], {"a": 1}, ["\ud800"] * D):
        (named / "features.json").write_text(json.dumps(names))
        reseal(named)
        with pytest.raises(ModelError, match="names do not match the features"):
            load_model(named)


def test_paths_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist; check the path"):
        load_model(tmp_path / "nothing")
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ModelError, match="no finished model yet"):
        load_model(tmp_path)


def test_a_fitted_model_says_where_it_comes_from(tmp_path: Path) -> None:
    store = make_store(tmp_path / "a.zarr", *make_problem(60, D, 4))
    result = fit(store, out=tmp_path / "run", passes=2, C=0.25, loss="cs", seed=7, dtype="float64")
    with open_store(store) as opened:
        expected = {
            "loss": "cs", "C": 0.25, "seed": 7, "passes": 2, "dtype": "float64", "solver": "newton",
            "margin": 1.0, "classes": ["0", "1", "2", "3"], "n_features": D, "index_base": 1,
            "store_fingerprint": opened.fingerprint,
        }  # fmt: skip
    assert expected.items() <= load_model(result.model).record.items()


def test_missing_disk_space_is_reported_in_readable_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as 0.0 GB."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=2_500_000))
    check_room(tmp_path, 40_000, 1000, 10)
    with pytest.raises(PlanError, match=r"take 3\.8 MiB, but the disk of .* has only 2\.4 MiB left"):
        check_room(tmp_path, 4_000_000, 1000, 1000)
