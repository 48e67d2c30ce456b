"""Kept files of each format that is read give what plain Python and NumPy read from them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from store_problems import assert_rows_equal

from streamsvm.model.model import load_model
from streamsvm.store import open_store

RELEASED = Path(__file__).parent / "released"
PLAIN = json.loads((RELEASED / "rows.json").read_text())
STORES = [
    "store-1.zarr",
    "store-1.h5",
    "store-2.zarr",
    "store-2.h5",
    "store-3.zarr",
    "store-3.h5",
    "store-4.zarr",
    "store-4.h5",
]
COLUMNS = {  # of the rows in version 2
    "cost": [1, 0.5, 2, 0.25, 1, 3],
    "qid": [7, 7, 7, 2, 2, 9],
    "label_codes": [1, 2, 0, 2, 0, 1, 1],
    "label_indptr": [0, 2, 3, 4, 6, 7, 7],
}
NONE = np.empty(0)
NAMES = ["x", "colour=blau", "colour=grün", "colour=rot", "n"]  # of the features in version 3


def test_every_file_is_tested() -> None:
    kept = {path.name for path in RELEASED.iterdir()} - {"README.md", "rows.json", ".gitattributes"}
    assert kept == {*STORES, *MODELS}


# -- stores ----------------------------------------------------------------------------------------


@pytest.fixture(params=STORES)
def path(request) -> Path:
    return RELEASED / request.param


def test_rows_labels_and_names_are_those_that_were_written(path: Path) -> None:
    shape = (len(PLAIN["labels"]), PLAIN["n_features"])
    matrix = sp.csr_array((PLAIN["data"], PLAIN["indices"], PLAIN["indptr"]), shape, np.float32)
    labels = np.array(PLAIN["labels"])
    with open_store(path) as store:
        assert store.native
        assert store.shuffled
        nnz = 30 if store.dense_rows else matrix.nnz
        assert (store.n_rows, store.n_features, store.nnz, store.index_base) == (*shape, nnz, 1)
        assert store.dtype == np.float32
        assert store.dense_rows == (path.stem == "store-4")
        assert list(store.classes) == PLAIN["classes"]
        codes = COLUMNS["label_codes"] if store.multilabel else PLAIN["labels"]
        assert store.class_counts.tolist() == [codes.count(code) for code in range(3)]
        for start, stop in [(0, 6), (1, 5), (2, 3)]:
            rows = store.rows(start, stop)
            assert_rows_equal(
                rows._replace(cost=NONE, qid=NONE, label_codes=NONE, label_indptr=NONE),
                matrix[start:stop],
                labels[start:stop],
            )
            assert store.names(start, stop).tolist() == PLAIN["names"][start:stop]
        store.verify()


@pytest.mark.parametrize("path", ["store-2.zarr", "store-2.h5"])
def test_weights_groups_and_labels_are_those_that_were_written(path: str) -> None:
    with open_store(RELEASED / path) as store:
        assert (store.weighted, store.grouped, store.multilabel, store.n_labels) == (True, True, True, 7)
        rows = store.rows(0, 6)
        assert {name: getattr(rows, name).tolist() for name in COLUMNS} == COLUMNS
        assert store.rows(3, 5).label_codes.tolist() == [0, 1, 1]


def test_the_fingerprint_is_that_of_the_content(path: Path) -> None:
    """Computed here with hashlib and json alone."""

    def digest(content: Any) -> str:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    arrays = {
        "X/data": np.array(PLAIN["data"], "<f4"),
        "X/indices": np.array(PLAIN["indices"], "<i4"),
        "X/indptr": np.array(PLAIN["indptr"], "<i8"),
        "obs/label/codes": np.array(PLAIN["labels"], "<i4"),
        "obs/_index": np.array(PLAIN["names"], "<i8"),
    }
    header = {"n": 6, "d": 5, "dtype": "float32", "classes": digest(PLAIN["classes"])}
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    if path.stem == "store-2":
        arrays |= {
            "obs/weight": np.array(COLUMNS["cost"], "<f8"),
            "obs/qid": np.array(COLUMNS["qid"], "<i8"),
            "obsm/labels/indptr": np.array(COLUMNS["label_indptr"], "<i8"),
            "obsm/labels/indices": np.array(COLUMNS["label_codes"], "<i4"),
        }
        digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    if path.stem == "store-3":
        digests["var/_index"] = digest(NAMES)
    if path.stem == "store-4":
        header["dtype"] = "float16"
        dense = sp.csr_array((PLAIN["data"], PLAIN["indices"], PLAIN["indptr"]), (6, 5)).toarray()
        digests = {name: digests[name] for name in ("obs/label/codes", "obs/_index")}
        digests["X"] = hashlib.sha256(dense.astype("<f2").tobytes()).hexdigest()
    with open_store(path) as store:
        assert store.fingerprint == digest({"header": header, "arrays": digests})


def test_names_and_encoding_are_those_that_were_written(path: Path) -> None:
    named = path.stem == "store-3"
    with open_store(path) as store:
        assert store.feature_names() == (NAMES if named else None)
        columns = (store.meta.get("encoding") or {"columns": []})["columns"]
        assert [column["name"] for column in columns] == ["x", "colour", "n"] * named


# -- models ----------------------------------------------------------------------------------------

MODELS = [
    "model-9",
    "model-9-hashed",
    "model-9-named",
    "model-9-sparse",
    "model-9-sequences",
    "model-9-fitted",
    "model-9-rows",
    "model-9-half",
]


def plain_coef(folder: Path, shape: tuple[int, int]) -> np.ndarray:
    if (folder / "coef-rows.npy").exists():
        coef = np.zeros(shape)
        coef[np.load(folder / "coef-rows.npy")] = np.load(folder / "coef.npy", allow_pickle=False)
        return coef
    if (folder / "coef.npy").exists():
        return np.load(folder / "coef.npy", allow_pickle=False)
    parts = [np.load(folder / f"coef-{name}.npy") for name in ("data", "indices", "indptr")]
    return sp.csr_array(tuple(parts), shape).toarray()


def hashed_columns(X: np.ndarray, bits: int, seed: int) -> np.ndarray:
    """The rows of `X` with feature f in the column and with the sign of its hash, as docs/formats.md says."""
    golden, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    result = np.zeros((len(X), 2**bits))
    start = mix(seed + golden & mask)
    for f, column in enumerate(X.T):
        h = mix(start + f * golden & mask)
        result[:, h >> 64 - bits] += column * (1 - 2 * (h % 2))
    return result


def transformed(X: np.ndarray, folder: Path, transforms: list[dict[str, Any]]) -> np.ndarray:
    """The rows as docs/formats.md says of the transforms that these models have."""
    for number, transform in enumerate(transforms):
        if transform["name"] == "bias":
            X = np.hstack([X, np.full((len(X), 1), transform["value"])])
        else:
            assert transform["name"] in ("idf", "scale")
            X = X * np.load(folder / f"transform-{number}.npy")
    return X


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_those_of_a_plain_product(name: str) -> None:
    folder = RELEASED / name
    record = json.loads((folder / "model.json").read_text())
    assert record["version"] == 9
    model = load_model(folder)
    assert model.classes_.tolist() == record["classes"]
    hashed = record["transforms"][0] if name == "model-9-hashed" else None
    width = record.get("n_features_in") or record["n_features"]
    width = 40 if hashed else width  # a hashed model takes any number of features
    X = np.random.default_rng(0).integers(-4, 5, (50, width)) / 4
    if hashed:
        columns = hashed_columns(X, hashed["bits"], hashed["seed"])
    else:
        columns = transformed(X, folder, record.get("transforms", []))
    coef = plain_coef(folder, (record["n_features"], len(record["classes"])))
    assert np.count_nonzero(coef)
    given: Any = X
    if (folder / "features.json").exists():
        names = json.loads((folder / "features.json").read_text())
        given = pd.DataFrame(X, columns=names)[names[::-1]]  # in another order
    scores = columns @ coef.astype(np.float64)
    np.testing.assert_allclose(model.decision_function(given), scores, rtol=1e-5, atol=1e-5)
    if name == "model-9-sequences":
        assert model.predict(given, np.arange(50) // 2).tolist() == best_pairs(folder, scores, model.classes_)
        return
    best = np.sort(scores, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-4
    assert clear.any()
    labels = model.classes_[scores.argmax(axis=1)]
    assert model.predict(given)[clear].tolist() == labels[clear].tolist()


def best_pairs(folder: Path, scores: np.ndarray, classes: np.ndarray) -> list[str]:
    """The labels of sequences of two rows, by the scores of all pairs of classes."""
    transitions = np.load(folder / "transitions.npy").astype(np.float64)
    assert np.count_nonzero(transitions)
    pairs = scores[::2, :, None] + scores[1::2, None, :] + transitions
    first, second = np.unravel_index(pairs.reshape(len(pairs), -1).argmax(axis=1), transitions.shape)
    found: list[str] = classes[np.stack([first, second], axis=1).ravel()].tolist()
    return found
