"""Names of features and the encoding are kept, checked, and read by anndata."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from store_problems import Problem, assert_rows_equal, make_problem
from test_store_roundtrip import read_with_anndata

from streamsvm.errors import StoreError
from streamsvm.store import open_store

NAMES = [f"gene {i}" if i % 3 else f"é={i}" for i in range(40)]
ENCODING = {"kind": "columns", "columns": [{"name": "a", "type": "number"}]}


@pytest.fixture
def problem() -> Problem:
    return make_problem(d=40)


def test_names_and_encoding_come_back(problem: Problem, tmp_path: Path) -> None:
    path = tmp_path / "named.zarr"
    problem.write(path, feature_names=NAMES, encoding=ENCODING)
    with open_store(path) as store:
        assert store.feature_names() == NAMES
        assert store.meta["encoding"] == ENCODING
        assert_rows_equal(store.rows(0, 90), problem.matrix, problem.labels)
        store.verify()
    assert read_with_anndata(path).var_names.tolist() == NAMES
    problem.write(tmp_path / "encoded.zarr", encoding=ENCODING)
    with open_store(tmp_path / "encoded.zarr") as store:
        assert store.feature_names() is None
        store.verify()


def test_the_names_are_in_the_fingerprint_and_only_they_change_it(problem: Problem, tmp_path: Path) -> None:
    """Computed here with hashlib and json alone."""
    plain = problem.write(tmp_path / "plain.zarr")
    encoded = problem.write(tmp_path / "encoded.zarr", encoding=ENCODING)
    named = problem.write(tmp_path / "named.zarr", feature_names=NAMES)
    assert plain == encoded != named == problem.write(tmp_path / "named.h5", feature_names=NAMES)

    def digest(content) -> str:
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    arrays = {
        "X/data": problem.matrix.data.astype("<f4"),
        "X/indices": problem.matrix.indices.astype("<i4"),
        "X/indptr": problem.matrix.indptr.astype("<i8"),
        "obs/label/codes": problem.labels.astype("<i4"),
        "obs/_index": problem.names.astype("<i8"),
    }
    header = {"n": 90, "d": 40, "dtype": "float32", "classes": digest(list(problem.classes))}
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}
    assert plain == digest({"header": header, "arrays": digests})
    assert named == digest({"header": header, "arrays": {**digests, "var/_index": digest(NAMES)}})


def test_other_names_than_those_on_record_are_an_error(problem: Problem, tmp_path: Path) -> None:
    problem.write(tmp_path / "a.zarr", feature_names=NAMES)
    problem.write(tmp_path / "b.zarr", feature_names=NAMES[::-1])
    for file in ("zarr.json", "c/0"):
        (tmp_path / "a.zarr/var/_index" / file).write_bytes(
            (tmp_path / "b.zarr/var/_index" / file).read_bytes()
        )
    with open_store(tmp_path / "a.zarr") as store:
        with pytest.raises(StoreError, match="var/_index, chunk 0: the names of the features are not those"):
            store.feature_names()
        with pytest.raises(StoreError, match="the names of the features are not those"):
            store.verify()


def test_names_must_be_distinct_and_one_for_each_feature(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="distinct"):
        problem.write(tmp_path / "a.zarr", feature_names=["a"] * 40)
    with pytest.raises(ValueError, match="one name for each"):
        problem.write(tmp_path / "b.zarr", feature_names=NAMES[:-1])
