"""Weights in `obs` and several labels a row in `obsm`, of AnnData that anndata itself wrote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from test_anndata import cells, write

from streamsvm.errors import StoreError
from streamsvm.store import matrices, open_store
from streamsvm.store.ranges import span

NAMES = ["red", "grün", "blue, or so", "4", "never"]
KINDS = ["csr", "csr-float", "csr-unsorted", "dense", "dense-bool", "dataframe"]


@pytest.fixture(params=few(["v2.zarr", "v3.zarr", "h5ad"], "v3.zarr"))
def target(request, tmp_path: Path) -> Path:
    return tmp_path / f"cells.{request.param}"


def labelled(kind: str) -> tuple[anndata.AnnData, np.ndarray]:
    """AnnData with the entry `tags` in obsm, and the same as an array of zeros and ones."""
    adata, rng = cells(), np.random.default_rng(4)
    dense = (rng.random((120, 5)) < [0.5, 0.3, 0.7, 0.1, 0]).astype(np.int8)
    dense[[0, 50, 119]] = 0
    entry: Any = dense
    if kind.startswith("csr"):
        entry = sp.csr_matrix(dense, dtype=np.float64 if kind == "csr-float" else np.int64)
    if kind == "csr-unsorted":
        for begin, end in zip(entry.indptr[:-1], entry.indptr[1:], strict=True):
            entry.indices[begin:end] = entry.indices[begin:end][::-1].copy()
        entry.has_sorted_indices = False
        entry.data[5] = 0  # an entry that is stored, but says no
        row = int(np.searchsorted(entry.indptr, 5, "right")) - 1
        dense[row, entry.indices[5]] = 0
    if kind == "dense-bool":
        entry = dense.astype(bool)
    if kind == "dataframe":
        entry = pd.DataFrame(dense, columns=NAMES, index=adata.obs_names).assign(never=False)
    adata.obsm["tags"] = entry
    return adata, dense


@pytest.mark.parametrize("kind", KINDS)
def test_an_indicator_in_obsm_gives_several_labels_a_row(target, kind, monkeypatch):
    monkeypatch.setattr(matrices, "_PIECE", 64)
    adata, dense = labelled(kind)
    write(adata, target)
    with open_store(target, label="tags") as store:
        assert (store.multilabel, store.weighted, store.grouped) == (True, False, False)
        assert list(store.classes) == (NAMES if kind == "dataframe" else ["0", "1", "2", "3", "4"])
        assert store.class_counts.tolist() == dense.sum(axis=0).tolist()
        for start, stop in [(0, 120), (7, 60), (30, 30), (119, 120)]:
            rows = store.rows(start, stop)
            part = sp.csr_matrix(dense[start:stop])
            np.testing.assert_array_equal(rows.label_codes, part.indices)
            np.testing.assert_array_equal(rows.label_indptr, part.indptr)
            first = [int(np.argmax(row)) if row.any() else -1 for row in dense[start:stop]]
            assert rows.labels.tolist() == store.labels(start, stop).tolist() == first
            assert (rows.label_codes.dtype, rows.label_indptr.dtype) == (np.int32, np.int64)
            np.testing.assert_array_equal(rows.data, adata.X[start:stop].data)
            assert (store.sizes(span(start, stop)).labels >= np.diff(rows.label_indptr)).all()
        assert store.n_labels >= dense.sum()
        store.verify()


def test_weights_are_a_column_of_numbers(target):
    adata = cells()
    rng = np.random.default_rng(1)
    columns = {
        "w": rng.exponential(size=120),
        "small": rng.random(120).astype("f4"),
        "kept": rng.random(120) < 0.5,
    }
    for name, values in columns.items():
        adata.obs[name] = values
    write(adata, target)
    for name in [*columns, "depth"]:
        with open_store(target, label="celltype", sample_weight=name) as store:
            assert store.weighted
            assert not store.multilabel
            cost = store.rows(3, 90).cost
            assert cost.dtype == np.float64
            np.testing.assert_array_equal(cost, adata.obs[name].to_numpy()[3:90].astype("f8"))
    with open_store(target, label="celltype") as store:
        assert not store.weighted
        assert len(store.rows(0, 120).cost) == 0


def test_the_fingerprint_depends_on_weights_and_labels(tmp_path):
    def fingerprint(kind="csr", label="tags", weight=None, change=lambda a: None, suffix="h5ad"):
        adata, _ = labelled(kind)
        adata.obs["w"] = np.arange(120)
        change(adata)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{suffix}"
        write(adata, path)
        with open_store(path, label=label, sample_weight=weight) as store:
            return store.fingerprint

    def other_label(adata):
        adata.obsm["tags"].data[7] = 0

    def other_weight(adata):
        adata.obs["w"] = np.arange(120) + (np.arange(120) == 80)

    base = fingerprint()
    assert fingerprint("dense") == fingerprint("csr-float", suffix="v2.zarr") == base
    assert fingerprint(change=other_weight) == base  # they are not read
    changed = [fingerprint(change=other_label), fingerprint(label="celltype"), fingerprint("dataframe")]
    changed += [fingerprint(weight="w"), fingerprint(weight="w", change=other_weight)]
    changed += [fingerprint(label="celltype", weight="w"), fingerprint(weight="depth")]
    assert len({base, *changed}) == 8


def with_weights(values: Any) -> anndata.AnnData:
    adata, _ = labelled("dense")
    adata.obs["w"] = values
    return adata


def with_tags(change: Callable[[np.ndarray], Any]) -> anndata.AnnData:
    adata, dense = labelled("dense")
    adata.obsm["tags"] = change(dense)
    return adata


WEIGHTS, TAGS = {"label": "celltype", "sample_weight": "w"}, {"label": "tags"}
NOWHERE = r"obs has no column '.*'; it has .* Nor has obsm such a matrix"
# AnnData, how it is opened, and the message.
REFUSED: list[tuple[anndata.AnnData, dict[str, str], str]] = [
    (
        with_weights(np.where(np.arange(120) == 17, np.nan, 1.0)),
        WEIGHTS,
        "row 17 has the weight nan in obs co",
    ),
    (
        with_weights(np.where(np.arange(120) == 17, -2, 1)),
        WEIGHTS,
        r"row 17 has the weight -2\.0 in obs colum",
    ),
    (with_weights(np.where(np.arange(120) == 17, np.inf, 1)), WEIGHTS, "row 17 has the weight inf"),
    (with_weights(pd.Categorical(["1"] * 120)), WEIGHTS, r"'w' does not hold numbers; in .*astype\(float\)"),
    (with_weights(["1.5"] * 120), WEIGHTS, r"column 'w' does not hold numbers"),
    (with_weights(pd.array([1, None] * 60, dtype="Int64")), WEIGHTS, r"column 'w' does not hold numbers"),
    (labelled("csr")[0], WEIGHTS, r"no column 'w' of weights; it has celltype, batch, depth"),
    (with_tags(lambda d: d * 2), TAGS, r"obsm/tags, row .*: 2 is neither 0 nor 1"),
    (with_tags(lambda d: sp.csr_matrix(d * 0.5)), TAGS, r"obsm/tags, row .*: 0\.5 is neither 0 nor 1"),
    (with_tags(lambda d: np.where(d == 1, np.nan, 0)), TAGS, r"obsm/tags, row .*: nan is neither 0 nor 1"),
    (with_tags(lambda d: d.astype("i8") * (2**31 + 1)), TAGS, r"row .*: 2147483649 cannot be represented"),
    (with_tags(lambda d: d * (1 + 1e-12)), TAGS, r"row .*: 1\.000000000001 is neither 0 nor 1"),
    (with_tags(sp.csc_matrix), TAGS, r"obsm/tags is CSC.*in Python .*tocsr"),
    (with_tags(lambda d: np.zeros((120, 2, 2))), TAGS, r"has shape \(120, 2, 2\), expected two axes"),
    (with_tags(lambda d: np.zeros((120, 0))), TAGS, r"the shape \[120, 0\]; expected 120 rows, and a column"),
    *((labelled("csr")[0], {"label": name}, NOWHERE) for name in ("nothing", "../obs", ".", "tags/data")),
]
DAMAGED = [
    ("indices", 3, 5, r"obsm/tags/indices, chunk 0: label code 5 is out of range"),
    ("indices", 3, -1, r"label code -1 is out of range"),
    ("indices", "again", None, r"obsm/tags, row \d+: a label occurs twice"),
    ("indptr", 60, -1, r"the row pointers are not in order"),
    ("indptr", 0, 1, r"row pointer 0 is not 0"),
    ("indptr", 120, 3, r"row pointer 120 is not"),
    ("", "shape", [120, 2**60], r"expected 120 rows, and a column for each class"),
]


def test_columns_that_are_no_weights_or_indicators_are_refused(tmp_path):
    def refused(path: Path, options: dict[str, str], reason: str) -> None:
        with pytest.raises(StoreError, match=reason), open_store(path, **options) as store:
            store.rows(0, 120)

    for number, (adata, options, reason) in enumerate(REFUSED):
        write(adata, tmp_path / f"{number}.v3.zarr")
        refused(tmp_path / f"{number}.v3.zarr", options, reason)
    adata, dense = labelled("csr")
    first = int(adata.obsm["tags"].indptr[np.argmax(dense.sum(axis=1) > 1)])  # of the first row with several
    for number, (name, element, value, reason) in enumerate(DAMAGED):
        path = tmp_path / f"{number}.h5ad"
        write(adata, path)
        with h5py.File(path, "r+") as file:
            array = file[f"obsm/tags/{name}"]
            if element == "shape":
                array.attrs["shape"] = value
            elif element == "again":
                array[first + 1] = array[first]
            else:
                array[element] = value
        refused(path, TAGS, reason)
