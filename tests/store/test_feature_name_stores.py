"""Names of features and the encoding are kept, checked, and read by anndata."""

from __future__ import annotations

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
