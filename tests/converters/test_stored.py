"""AnnData and matrices of SciPy and NumPy become stores of the rows that these libraries read themselves."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from stored_rows import stored
from streamsvm_converters import convert, open_reader
from streamsvm_converters.kinds import stored as reader_module

from streamsvm.errors import InputError, PlanError, SettingsError, StoreError, StreamsvmWarning
from streamsvm.store import open_store

N, D = 300, 40
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*zarr:UserWarning"),  # of anndata, about its next version
    pytest.mark.filterwarnings("ignore::scipy.sparse.SparseEfficiencyWarning"),
]
TYPES = np.random.default_rng(1).choice(["T", "B", "NK"], N).astype(object)
TYPES[7::50] = None
LABELLED = np.flatnonzero(TYPES != None)  # noqa: E711


@pytest.fixture
def X() -> sp.csr_matrix:
    X = sp.random(N, D, 0.2, format="csr", random_state=np.random.default_rng(0), dtype=np.float32)
    X.data[X.indptr[5] : X.indptr[6]] = 0
    X.eliminate_zeros()
    return X


@pytest.fixture
def cells(X: sp.csr_matrix) -> anndata.AnnData:
    obs = pd.DataFrame({"type": pd.Categorical(TYPES)}, index=[f"c{i}" for i in range(N)])
    return anndata.AnnData(X, obs, pd.DataFrame(index=[f"g{i}" for i in range(D)]))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the labels of all rows; rows are read in small pieces."""
    monkeypatch.setattr(reader_module, "_VALUES_PER_READ", 500)
    monkeypatch.chdir(tmp_path)
    Path("y.txt").write_text("\n".join(str(label or "") for label in TYPES))
    return tmp_path


def shuffled(X: sp.csr_matrix, kind: str) -> Any:
    """The matrix in a format of SciPy; unsorted and with duplicates where the format may have them."""
    if kind not in ("coo", "csr", "csc"):
        return X.asformat(kind)
    coo = X.tocoo()
    order = np.random.default_rng(1).permutation(2 * coo.nnz)
    rows, columns = (np.concatenate([each, each])[order] for each in (coo.row, coo.col))
    halves = np.concatenate([coo.data * 0.25, coo.data * 0.75])[order]
    if kind == "coo":
        return sp.coo_matrix((halves, (rows, columns)), X.shape)
    major, minor, shape = (rows, columns, X.shape) if kind == "csr" else (columns, rows, X.shape)
    order = np.argsort(major, kind="stable")
    pointers = np.searchsorted(major[order], np.arange(shape[kind == "csc"] + 1))
    return (sp.csr_matrix if kind == "csr" else sp.csc_matrix)((halves[order], minor[order], pointers), shape)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_every_sparse_format_is_the_same_matrix(X, kind: str) -> None:
    X = X.astype(float)
    sp.save_npz("x.npz", shuffled(X, kind), compressed=kind != "csr")
    report = convert(["x.npz"], "a.zarr", labels="y.txt", shuffle=False, dtype="float64")
    matrix, labels, _ = stored("a.zarr")
    np.testing.assert_allclose(matrix, X.toarray()[LABELLED], rtol=1e-15)
    assert labels == TYPES[LABELLED].tolist()
    found = (report.n, report.d, report.nnz, report.empty_rows, report.unlabelled, report.index_base)
    assert found == (len(LABELLED), D, X[LABELLED].nnz, 1, N - len(LABELLED), None)


def test_files_are_joined_though_one_is_csc(cells) -> None:
    """Stores join files; only a conversion takes a CSC file too. A row with an unknown label is named."""
    first, second = cells[:100, :30].copy(), cells[100:, 10:][:, ::-1].copy()
    first.X = first.X.tocsc()
    second.obs["type"] = second.obs["type"].cat.rename_categories({"T": "new"})
    first.write_h5ad("a.h5ad")
    second.write_zarr("b.zarr")
    with pytest.warns(StreamsvmWarning, match="^features missing from some files: 20 of 40, left out"):
        convert(["a.h5ad", "b.zarr"], "out.zarr", label="type", shuffle=False)
    wanted = anndata.concat([first, second], join="inner")[LABELLED]
    found, labels, names = stored("out.zarr")
    np.testing.assert_array_equal(found, wanted[:, names].X.toarray())
    assert labels == wanted.obs["type"].tolist()
    convert(["a.h5ad"], "like.zarr", label="type")
    unknown = rf"b\.zarr, row {TYPES[100:].tolist().index('T') + 1}: label 'new' is not among the 3 known"
    with pytest.warns(StreamsvmWarning), pytest.raises(InputError, match=unknown):
        convert(["a.h5ad", "b.zarr"], "no.zarr", label="type", like="like.zarr")


def test_what_does_not_fit_in_memory_twice_is_refused_with_python_that_rewrites_it(cells, X) -> None:
    few = {"chunk_nnz": 16, "memory": 2**15, "shuffle": False}
    sp.save_npz("sparse.npz", X.tocoo())
    np.savez_compressed("dense.npz", X=X.toarray(), y=TYPES.astype(str))
    cells.layers["counts"] = X.tocsc()
    cells.write_h5ad("c.h5ad")
    cells.write_zarr("c.zarr")
    options: dict[str, dict[str, Any]] = {
        "sparse.npz": {"labels": "y.txt"}, "dense.npz": {"label": "y"},
        "c.h5ad": {"label": "type", "layer": "counts"}, "c.zarr": {"label": "type", "layer": "counts"},
    }  # fmt: skip
    new = {"sparse.npz": "by-rows.h5ad", "dense.npz": "X.npz", "c.h5ad": "c.h5ad", "c.zarr": "c.zarr"}
    for name, given in options.items():
        convert([name], "large.zarr", force=True, shuffle=False, **given)
        with pytest.raises(PlanError, match=rf"{name}.*needs twice as much .*run `.*` in Python") as caught:
            convert([name], "small.zarr", force=True, **few, **given)
        assert caught.value.needed_memory >= 2 * (X.nnz * 8 if name != "dense.npz" else X.toarray().nbytes)
        lines = str(caught.value).split("`")[1]
        exec(f"import anndata, h5py; labels = given; {lines}", {"given": pd.Categorical(TYPES)})
        given = given if name != "sparse.npz" else {"label": "label"}
        convert([new[name]], "small.zarr", force=True, **few, **given)
        with open_store("large.zarr") as large, open_store("small.zarr") as small:
            rows = [store.rows(0, len(LABELLED)) for store in (large, small)]
        np.testing.assert_array_equal(rows[0].data, rows[1].data)
        np.testing.assert_array_equal(rows[0].indices, rows[1].indices)


def test_what_cannot_be_converted_is_named(cells, X) -> None:
    y = np.where(TYPES == None, "", TYPES).astype(str)  # noqa: E711
    cells.write_h5ad("a.h5ad")
    convert(["a.h5ad"], "store.zarr", label="type")
    bad = X.copy()
    bad.data[3], row = np.inf, int(np.searchsorted(X.indptr, 3, "right")) - 1
    cells.X = bad.tocsc()
    cells.write_h5ad("inf.h5ad")
    cells.obsm["several"] = pd.get_dummies(cells.obs["type"]).set_axis(["a", "b", "c"], axis=1).astype(int)
    cells.write_h5ad("several.h5ad")
    sp.save_npz("inf.npz", bad.tocsc())
    np.savez_compressed("x.npz", X=X.toarray(), y=y)
    np.savez_compressed("wide.npz", X=np.ones((N, D + 1)), y=y)
    np.savez_compressed("objects.npz", X=np.full((N, D), None), y=y)
    refused: list[tuple[str, type[Exception], str, dict[str, Any]]] = [
        ("a.h5ad", SettingsError, "text does not apply to AnnData", {"text": "body"}),
        ("a.h5ad", SettingsError, "on_error does not apply to AnnData", {"on_error": "skip"}),
        ("store.zarr", InputError, r"store\.zarr is already a store", {}),
        ("several.h5ad", InputError, "has several labels per row", {"label": "several"}),
        ("inf.h5ad", StoreError, f"row {row + 1}: a value is not finite", {"label": "type"}),
        ("inf.npz", StoreError, f"row {row + 1}: a value is not finite", {"labels": "y.txt"}),
        ("x.npz", SettingsError, "on_error does not apply to a .npz archive", {"on_error": "skip"}),
        ("x.npz", InputError, "matrix without labels.*labels=.*label=", {}),
        ("x.npz", InputError, "label and labels cannot be combined", {"label": "y", "labels": "y.txt"}),
        ("objects.npz", InputError, "damaged or truncated .*pickle", {"label": "y"}),
        ("wide.npz", InputError, "41 features, but store.zarr has 40", {"label": "y", "like": "store.zarr"}),
    ]  # fmt: skip
    for name, error, words, options in refused:
        with pytest.raises(error, match=words) as caught:
            convert([name], "out.zarr", **options)
        assert "\n" not in str(caught.value)
    assert not Path("out.zarr").exists()


def in_npy(header: str, content: bytes = bytes(8 * N * D)) -> bytes:
    """An array in NumPy's format 2.0, byte by byte."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + content


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (300, 40), }"
MALFORMED = ("[" * 60000, HEADER.replace("300", str(10**10)), HEADER.replace("<f8", "|O"))


def test_damage_of_an_archive_is_one_line(X) -> None:
    def refused(words: str, **options: Any) -> None:
        with pytest.raises((InputError, StoreError), match=words) as caught:
            list(open_reader(["x.npz"], **{"labelled": False} | options))
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400

    for header in MALFORMED:
        with zipfile.ZipFile("x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("X.npy", in_npy(header))
        Path("labels").write_bytes(in_npy(header.replace(", 40", "").replace("(300)", "(300,)")))
        refused(r"x\.npz is damaged or truncated")
        np.savez_compressed("x.npz", np.eye(N))
        refused("labels", labelled=True, labels="labels")
    sp.save_npz("x.npz", X)
    whole, parts = Path("x.npz").read_bytes(), dict(np.load("x.npz"))
    damages: list[dict[str, Any]] = [
        {"indices": parts["indices"] + D}, {"indptr": parts["indptr"][::-1]}, {"data": parts["data"][1:]},
        {"format": np.array([b"csr", b"csr"])}, {"format": np.array([], "S3")}, {"shape": np.array("abc")},
        {"shape": np.array([np.nan, 40])}, {"shape": np.array([N, D, 1])},
    ]  # fmt: skip
    for change in damages:
        np.savez("x.npz", **{**parts, **change})
        refused(r"x\.npz is (damaged|a sparse matrix with)")
    Path("x.npz").write_bytes(whole[: len(whole) // 2])
    refused(r"x\.npz is damaged or truncated")
