"""Weights and names of rows in `obs`, and several labels a row in `obsm`, of AnnData that anndata wrote."""

from __future__ import annotations

import warnings
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
    columns = {"w": rng.exponential(size=120), "small": rng.random(120).astype("f4")}
    columns["kept"] = rng.random(120) < 0.5
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


def test_the_fingerprint_depends_on_the_content_and_not_on_the_container(tmp_path):
    def fingerprint(kind="csr", change=lambda a: None, suffix="h5ad", label="tags", weight=None):
        adata = change(made := labelled(kind)[0]) or made
        adata.obs["w"] = adata.obs["depth"] + 1
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{suffix}"
        write(adata, path)
        with open_store(path, label=label, sample_weight=weight) as store:
            return store.fingerprint

    def in_x(adata):
        adata.X.data[-1] += 1

    def in_float64(adata):
        adata.X = adata.X.astype("f8")

    def of_type(adata):
        adata.obs["celltype"] = adata.obs["celltype"].cat.rename_categories({"NK": "nk"})

    def of_row(adata):
        adata.obsm["tags"].data[7] = 0

    def of_depth(adata):
        adata.obs.loc["cell-80", "depth"] += 1

    def of_name(adata):
        adata.var_names = ["x", *adata.var_names[1:]]

    base = fingerprint()
    assert fingerprint("dense") == fingerprint("csr-float", suffix="v2.zarr") == base
    assert fingerprint(suffix="v3.zarr") == fingerprint(change=of_depth) == base  # which is not read
    changed = [fingerprint(change=change) for change in (in_x, in_float64, of_row, of_name)]
    changed += [fingerprint(change=lambda adata: adata[:119].copy()), fingerprint("dataframe")]
    changed += [fingerprint(label=label) for label in ("celltype", "batch")]
    changed += [fingerprint(label="celltype", change=of_type), fingerprint(label="celltype", weight="w")]
    changed += [fingerprint(weight=name) for name in ("w", "depth")]
    assert len({base, *changed, fingerprint(weight="w", change=of_depth)}) == 14


def with_weights(values: Any) -> anndata.AnnData:
    adata, _ = labelled("dense")
    adata.obs["w"] = values
    return adata


def with_tags(change: Callable[[np.ndarray], Any]) -> anndata.AnnData:
    adata, dense = labelled("dense")
    adata.obsm["tags"] = change(dense)
    return adata


WEIGHTS, TAGS = {"label": "celltype", "sample_weight": "w"}, {"label": "tags"}
NOWHERE = r"neither obs nor obsm has an entry '.*'; the columns of obs are"
# AnnData, how it is opened, and the message.
REFUSED: list[tuple[anndata.AnnData, dict[str, str], str]] = [
    *(
        (with_weights(np.where(np.arange(120) == 17, weight, 1)), WEIGHTS, f"row 18 has the weight {weight}")
        for weight in (np.nan, -2.0, np.inf)
    ),
    (
        with_weights(pd.Categorical(["1"] * 120)),
        WEIGHTS,
        r"'w' does not hold numbers; convert .*astype\(float\)",
    ),
    (with_weights(["1.5"] * 120), WEIGHTS, r"column 'w' does not hold numbers"),
    (with_weights(pd.array([1, None] * 60, dtype="Int64")), WEIGHTS, r"column 'w' does not hold numbers"),
    (labelled("csr")[0], WEIGHTS, r"no weight column 'w'; its columns are celltype, batch, depth"),
    (with_tags(lambda d: d * 2), TAGS, r"obsm/tags, row .*: 2 is neither 0 nor 1"),
    (with_tags(lambda d: sp.csr_matrix(d * 0.5)), TAGS, r"obsm/tags, row .*: 0\.5 is neither 0 nor 1"),
    (with_tags(lambda d: np.where(d == 1, np.nan, 0)), TAGS, r"obsm/tags, row .*: nan is neither 0 nor 1"),
    (with_tags(lambda d: d.astype("i8") * (2**31 + 1)), TAGS, r"row .*: 2147483649 cannot be represented"),
    (with_tags(lambda d: d * (1 + 1e-12)), TAGS, r"row .*: 1\.000000000001 is neither 0 nor 1"),
    (with_tags(sp.csc_matrix), TAGS, r"obsm/tags is CSC.*tocsr.* in Python"),
    (with_tags(lambda d: np.zeros((120, 2, 2))), TAGS, r"\(120, 2, 2\); it must have two dimensions"),
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
        write(adata, tmp_path / f"{number}-refused.h5ad")
        refused(tmp_path / f"{number}-refused.h5ad", options, reason)
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


TEXT = ["b", "a", "é\n", "c d"]
INDEXES = {
    "text": pd.Index(TEXT),
    "numbers": pd.Index([7, -3, 2**40, 0]),
    "categorical": pd.CategoricalIndex(["x", "y", "x", "z"], name="cell"),
    "nullable": pd.Index(TEXT, dtype="string"),
}


def write_index(path: Path, index: pd.Index) -> None:
    cells = anndata.AnnData(sp.csr_matrix(np.eye(4, dtype=np.float32)))
    cells.obs.index = index
    with warnings.catch_warnings(), anndata.settings.override(allow_write_nullable_strings=True):
        warnings.simplefilter("ignore")
        cells.write_h5ad(path) if path.suffix == ".h5ad" else cells.write_zarr(path)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("kind", INDEXES)
def test_every_kind_of_index_is_read(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_index(path, INDEXES[kind])
    with open_store(path, labelled=False) as store:
        names = store.names(0, 4)
        expected = [str(name) for name in INDEXES[kind]]
        assert names.tolist() == expected
        assert store.names(1, 3).tolist() == expected[1:3]
        assert len(store.names(2, 2)) == 0


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    for codes, words in ([0, 1, 3, 2], "code 3 is out of range"), ([0] * 5, "5 elements instead of 4"):
        write_index(path, INDEXES["categorical"])
        with h5py.File(path, "r+") as file:
            del file["obs/cell/codes"]
            file["obs/cell/codes"] = np.array(codes, np.int8)
        with open_store(path, labelled=False) as store, pytest.raises(StoreError, match=words):
            store.names(0, 4)
