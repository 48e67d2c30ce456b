"""Stores with weights, several labels a row, and groups: what is written is read, by anndata too."""

from __future__ import annotations

from itertools import chain, combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from store_problems import (
    Problem,
    assert_rows_equal,
    make_full_problem,
)
from test_store_roundtrip import fingerprint, read_with_anndata

from streamsvm.errors import StoreError
from streamsvm.info import inspect
from streamsvm.store import open_store

COLUMNS = ("weight", "qid", "labels")
NONE = SimpleNamespace(indices=[], indptr=[])
SUBSETS = list(chain.from_iterable(combinations(COLUMNS, size) for size in (1, 2, 3)))


@pytest.fixture
def full() -> Problem:
    return make_full_problem()


def only(problem: Problem, columns: tuple[str, ...]) -> Problem:
    """The problem with some of its columns."""
    if "weight" not in columns:
        problem.weights = None
    if "qid" not in columns:
        problem.groups = None
    if "labels" not in columns:
        problem.indicator = None
    return problem


@pytest.mark.parametrize("columns", SUBSETS)
def test_any_range_of_rows_is_read_as_it_was_written(columns, full: Problem, tmp_path):
    problem, path = only(full, columns), tmp_path / "a.zarr"
    written = problem.write(path, cuts=[13, 60])
    assert written == fingerprint(problem, "f4", None)
    with open_store(path) as store:
        assert store.meta["columns"] == list(columns)
        assert store.meta["n_labels"] == (problem.indicator.nnz if "labels" in columns else 0)
        assert (store.weighted, store.grouped, store.multilabel) == tuple(c in columns for c in COLUMNS)
        assert store.fingerprint == written
        for start, stop in [(0, 90), (0, 0), (90, 90), (17, 61), (89, 90)]:
            rows = store.rows(start, stop)
            assert_rows_equal(rows, problem.matrix[start:stop], problem.labels[start:stop])
            assert all(array.flags.writeable and array.flags.c_contiguous for array in rows)
            for name, found, expected in (
                ("weight", rows.cost, problem.weights),
                ("qid", rows.qid, problem.groups),
            ):
                wanted = expected[start:stop] if name in columns else np.empty(0)
                np.testing.assert_array_equal(found, wanted)
            part = problem.indicator[start:stop] if "labels" in columns else NONE
            np.testing.assert_array_equal(rows.label_codes, part.indices)
            np.testing.assert_array_equal(rows.label_indptr, part.indptr)
        codes = problem.labels[problem.labels >= 0] if "labels" not in columns else problem.indicator.indices
        assert store.class_counts.tolist() == np.bincount(codes, minlength=4).tolist()
        store.verify()


@pytest.mark.parametrize("kind", ["none", "all"])
def test_rows_without_labels_and_with_all_of_them(kind, tmp_path):
    problem = only(make_full_problem(), ("labels",))
    dense = np.zeros((90, 4), np.int8) if kind == "none" else np.ones((90, 4), np.int8)
    problem.indicator = type(problem.indicator)(dense)
    problem.labels[:] = -1 if kind == "none" else 0
    path = tmp_path / "a.zarr"
    problem.write(path)
    with open_store(path) as store:
        assert np.diff(store.rows(0, 90).label_indptr).tolist() == [4 * (kind == "all")] * 90
        store.verify()
    assert (read_with_anndata(path).obsm["labels"].toarray() == dense).all()


def test_weights_are_named(full: Problem, tmp_path):
    path = tmp_path / "a.zarr"
    full.write(path)
    with open_store(path, sample_weight="weight") as store:
        np.testing.assert_array_equal(store.rows(0, 90).cost, full.weights)
    with pytest.raises(StoreError, match=r"no column of weights 'qid'; convert"):
        open_store(path, sample_weight="qid")
    only(full, ("labels",)).write(tmp_path / "b.zarr")
    with pytest.raises(StoreError, match=r"no column of weights 'weight'; convert"):
        open_store(tmp_path / "b.zarr", sample_weight="weight")


def test_info_describes_the_columns(full: Problem, tmp_path: Path, stored: Path):
    full.write(tmp_path / "full.zarr")
    found = inspect(tmp_path / "full.zarr", verify=True)
    assert found["weights"] == f"from {full.weights.min():g} to {full.weights.max():g}"
    assert found["labels_per_row"] == full.indicator.nnz / 90
    assert found["groups"] == 1 + np.count_nonzero(np.diff(full.groups))
    plain = inspect(stored)
    assert [plain[key] for key in ("weights", "labels_per_row", "groups")] == [None] * 3


# -- refused by the writer ---------------------------------------------------------------------------


def test_the_announced_number_of_labels_is_required(full: Problem, tmp_path):
    with pytest.raises(StoreError, match=r"\d+ of \d+ labels were given"):
        full.write(tmp_path / "a.h5", n_labels=full.indicator.nnz - 1)
    with pytest.raises(StoreError, match=r"of \d+ labels were given"):
        full.write(tmp_path / "b.h5", n_labels=full.indicator.nnz + 1)
