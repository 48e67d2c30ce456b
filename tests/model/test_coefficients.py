"""Coefficients on disk: sparse where that is smaller, the same matrix either way, and checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import reseal, save_weights

from streamsvm import load_model
from streamsvm.base import format
from streamsvm.errors import ModelError
from streamsvm.model import coefficients

D, K = 200, 70
COLUMNS = 80  # of the weights, padding included
SPARSE_FILES = ["coef-data.npy", "coef-indices.npy", "coef-indptr.npy"]


def record(**changes) -> dict:
    classes = [str(c) for c in range(K)]
    return {"classes": classes, "n_features": D, "index_base": 1, "dtype": "float32", "C": 1.0, **changes}


def sparse_weights(dtype: str = "float32", density: float = 0.03) -> np.ndarray:
    """Whole numbers: rows without any, with a few, and, one in forty, with nearly all of them."""
    rng = np.random.default_rng(0)
    some = rng.random((D, COLUMNS)) < np.where(np.arange(D) % 40 == 7, 0.9, density)[:, None]
    weights = rng.integers(1, 9, size=(D, COLUMNS)) * rng.choice([-1, 1], size=(D, COLUMNS)) * some
    weights[::5] = 0
    return weights.astype(dtype)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_weights(tmp_path / "model", sparse_weights(), record())
    assert names_in(tmp_path / "model") == [*SPARSE_FILES, "model.json"]
    return tmp_path / "model"


def test_scipy_alone_reads_sparse_coefficients(folder: Path) -> None:
    W = sparse_weights()[:, :K]
    size = sum((folder / name).stat().st_size for name in SPARSE_FILES)
    assert size < W.nbytes / 4 + 3 * 128
    arrays = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in SPARSE_FILES]
    assert [array.dtype for array in arrays] == ["float32", "int32", "int64"]
    matrix = sp.csr_array(tuple(arrays), shape=(D, K))
    matrix.check_format(full_check=True)
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), W)
    model = load_model(folder)
    np.testing.assert_array_equal(model.coef_.T.toarray(), W)
    assert model.decision_function(sp.csr_array((0, D))).shape == (0, K)


@pytest.mark.parametrize(("density", "n_classes"), [(0.3, K), (0.03, 60)])
def test_coefficients_are_dense_if_that_is_not_much_larger_or_classes_are_few(
    tmp_path: Path, density: float, n_classes: int
) -> None:
    weights = sparse_weights(density=density)
    save_weights(tmp_path / "model", weights, record(classes=[str(c) for c in range(n_classes)]))
    assert names_in(tmp_path / "model") == ["coef.npy", "model.json"]
    np.testing.assert_array_equal(load_model(tmp_path / "model").coef_.T, weights[:, :n_classes])


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("density", [0.03, 0.3])
def test_average_used_features_and_columns_are_honoured_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, density: float
) -> None:
    monkeypatch.setattr(coefficients, "_PIECE_SIZE", piece)
    weights, rng = sparse_weights(density=density), np.random.default_rng(3)
    delta = (weights * rng.integers(0, 3, size=weights.shape)).astype(weights.dtype)
    used = np.array([[0, 0], [1, 3], [D // 2, D - 1]])
    is_used = np.zeros((D, 1), np.bool_)
    is_used[1:3] = is_used[D // 2 : D - 1] = True
    columns = rng.permutation(COLUMNS)[:K]
    average = {"average_delta": delta, "average_scale": 0.5, "used": used}
    save_weights(tmp_path / "model", weights, record(), columns=columns, **average)
    expected = np.where(is_used, weights - 0.5 * delta, 0)[:, columns]
    coef = load_model(tmp_path / "model").coef_.T
    assert sp.issparse(coef) == (density < 0.1)
    np.testing.assert_array_equal(coef.toarray() if sp.issparse(coef) else coef, expected)


def test_models_of_next_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n_features, k in (0, K), (3, K), (1, 64), (20_000, 3):
        classes = [str(c) for c in range(k)]
        weights = np.zeros((n_features, k), np.float32)
        save_weights(tmp_path / "model", weights, record(n_features=n_features, classes=classes))
        model = load_model(tmp_path / "model")
        assert model.coef_.T.shape == weights.shape
        assert not model.decision_function(np.ones((2, n_features))).any()
    monkeypatch.setattr("streamsvm.model.scoring._MAX_PLACES", 0)
    assert not load_model(tmp_path / "model").decision_function(np.ones((2, 20_000))).any()


# -- rows of features in use ----------------------------------------------------------------------


def few_rows(n_classes: int, n_features: int = 20_000, dtype: str = "float32") -> np.ndarray:
    """Whole numbers in one row of a hundred, first and last included."""
    rng = np.random.default_rng(1)
    weights = np.zeros((n_features, n_classes), dtype)
    some = rng.choice(np.arange(1, n_features - 1), n_features // 100, replace=False)
    rows = np.array([0, *np.sort(some), n_features - 1])
    weights[rows] = rng.integers(-3, 4, size=(len(rows), n_classes))
    weights[rows, 0] = 5
    return weights


def save_few_rows(path: Path, weights: np.ndarray) -> Path:
    classes = [str(c) for c in range(weights.shape[1])]
    entries = record(n_features=len(weights), classes=classes, dtype=str(weights.dtype))
    save_weights(path, weights, entries)
    return path


@pytest.mark.parametrize(("n_classes", "dtype"), [(2, "float32"), (7, "float64"), (70, "float32")])
def test_rows_of_features_in_use_are_stored_alone_and_predict_what_numpy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_classes: int, dtype: str
) -> None:
    weights = few_rows(n_classes, dtype=dtype)
    folder = save_few_rows(tmp_path / "model", weights)
    assert names_in(folder) == ["coef-rows.npy", "coef.npy", "model.json"]
    size = sum((folder / name).stat().st_size for name in ("coef-rows.npy", "coef.npy"))
    assert size == 2 * 128 + 202 * (4 + n_classes * weights.itemsize)
    rows = np.load(folder / "coef-rows.npy", allow_pickle=False)
    assert rows.tolist() == np.flatnonzero(weights.any(axis=1)).tolist()
    np.testing.assert_array_equal(np.load(folder / "coef.npy", allow_pickle=False), weights[rows])
    model = load_model(folder)
    assert model.record["version"] == format.MODEL_VERSION
    X = sp.random_array((50, len(weights)), density=0.01, rng=np.random.default_rng(2), format="csr")
    X.data = np.ceil(X.data * 4)
    X = sp.csr_array(X + sp.csr_array((np.ones(50), (np.arange(50), [0, 19_999] * 25)), X.shape))
    scores = X @ weights
    assert np.count_nonzero(scores) > 50
    np.testing.assert_array_equal(model.decision_function(X), scores)
    monkeypatch.setattr("streamsvm.model.scoring._MAX_PLACES", 1000)
    np.testing.assert_array_equal(load_model(folder).decision_function(X), scores)
    assert model.coef_.dtype == dtype
    np.testing.assert_array_equal(model.coef_.T.toarray(), weights)
    model.save(tmp_path / "again")
    for name in ("coef-rows.npy", "coef.npy"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_coefficients_are_dense_if_most_rows_are_in_use(tmp_path: Path) -> None:
    weights = np.ones((20_000, 5), np.float32)
    weights[::3] = 0
    assert names_in(save_few_rows(tmp_path / "model", weights)) == ["coef.npy", "model.json"]
    model = load_model(tmp_path / "model")
    assert model.record["version"] == format.MODEL_VERSION
    np.testing.assert_array_equal(model.coef_.T, weights)
    model.save(tmp_path / "small", prune=0.5)  # the fewest bytes, even if it saves little
    assert names_in(tmp_path / "small") == ["coef-rows.npy", "coef.npy", "model.json"]
    np.testing.assert_array_equal(load_model(tmp_path / "small").coef_.T.toarray(), weights)


# -- damage ----------------------------------------------------------------------------------------


@pytest.fixture
def rows_folder(tmp_path: Path) -> Path:
    return save_few_rows(tmp_path / "rows", few_rows(70))


NO_MATRIX = r"indptr\.npy is damaged: with coef-indices\.npy, it does not describe a matrix"
NO_ROWS = r"coef-rows\.npy is damaged: its entries are not features"
ENTRY = "an entry is missing or has the wrong type"


def test_forged_numbers_are_refused(folder: Path, rows_folder: Path) -> None:
    """With checksums that fit, before compiled code would look beyond its arrays."""
    for name, words, forgeries in (
        ("indices", NO_MATRIX, [(5, K), (5, -1), (5, 2**31 - 1), (-1, -(2**31)), (70, 0)]),
        ("indptr", NO_MATRIX, [(0, 1), (0, -1), (-1, 0), (-1, 2**62), (8, 2**62), (8, -(2**62)), (9, 0)]),
        ("rows", NO_ROWS, [(0, -1), (5, 0), (6, 20_000), (-1, 20_000), (-1, -1)]),
    ):
        model = rows_folder if name == "rows" else folder
        whole = (model / f"coef-{name}.npy").read_bytes()
        for at, value in forgeries:
            content = bytearray(whole)
            np.frombuffer(content, np.int64 if name == "indptr" else np.int32, offset=128)[at] = value
            reseal(model, **{f"coef_{name}": content})
            with pytest.raises(ModelError, match=words):
                load_model(model)
        reseal(model, **{f"coef_{name}": whole})


def test_a_record_that_does_not_fit_is_refused(folder: Path, rows_folder: Path) -> None:
    for model, changes, words in [
        (folder, {"layout": "dense"}, ENTRY),
        (folder, {"layout": "coo"}, ENTRY),
        (folder, {"layout": None}, ENTRY),
        (folder, {"crc32": 5}, "crc32 must be an object"),
        (folder, {"crc32": {"coef-data.npy": 5}}, "data.npy is damaged: its checksum"),
        (folder, {"crc32": {}}, ENTRY),
        (folder, {"n_features": D - 1}, "not an array"),
        (folder, {"classes": ["a", "b"]}, "does not describe a matrix with 2 classes"),
        (rows_folder, {"layout": "dense"}, "not an array"),
        (rows_folder, {"layout": "csr"}, ENTRY),
        (rows_folder, {"n_features": 19_999}, NO_ROWS),
        (rows_folder, {"classes": ["a", "b"]}, "not an array"),
        (rows_folder, {"stored_dtype": "float16"}, "not an array"),
        (rows_folder, {"stored_dtype": "float64"}, ENTRY),
        (rows_folder, {"stored_dtype": "O"}, ENTRY),
    ]:
        record = (model / "model.json").read_bytes()
        reseal(model, changes)
        with pytest.raises(ModelError, match=words):
            load_model(model)
        (model / "model.json").write_bytes(record)
