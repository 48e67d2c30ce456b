"""AnnData that anndata itself wrote is read, or refused with a message that says what to do."""

from __future__ import annotations

import json
import pickle
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
from store_problems import assert_rows_equal

from streamsvm.errors import SettingsError, StoreError
from streamsvm.store import open_store

LABELS = ["T cell", "B-Zelle ü", "NK"]
LABEL = {"label": "celltype"}


@pytest.fixture(params=few(["v2.zarr", "v3.zarr", "h5ad"], "h5ad"))
def target(request, tmp_path: Path) -> Path:
    return tmp_path / f"cells.{request.param}"


def cells(dtype: str = "f4", n: int = 120, d: int = 30, *, fractions: bool = False) -> anndata.AnnData:
    rng = np.random.default_rng(0)
    matrix = sp.random(n, d, 0.3, format="csr", random_state=rng, dtype=np.float64)
    matrix.data = np.ceil(matrix.data * 50)
    obs = pd.DataFrame(
        {
            "celltype": pd.Categorical(rng.choice(LABELS, n), categories=LABELS),
            "batch": pd.Categorical(rng.choice([3, 1, 2], n)),
            "depth": rng.integers(0, 9, n) * (1 / 3 if fractions else 1),
        },
        index=[f"cell-{i}" for i in range(n)],
    )
    return anndata.AnnData(matrix.astype(dtype), obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(d)]))


def write(adata: anndata.AnnData, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata advises against format 2
        if path.suffix == ".h5ad":
            adata.write_h5ad(path)
        else:
            with anndata.settings.override(zarr_write_format=2 if "v2" in path.name else 3):
                adata.write_zarr(path)


@pytest.mark.parametrize("stored", ["f4", "f8", "i8", "u2", "bool"])
def test_reads_what_anndata_wrote(target, stored):
    adata, given = cells(stored), "f8" if stored == "f8" else "f4"
    write(adata, target)
    with open_store(target, label="celltype") as store:
        assert not store.native
        assert (store.n_rows, store.n_features, store.nnz) == (120, 30, adata.X.nnz)
        assert store.dtype == np.dtype(given)
        assert list(store.classes) == adata.obs["celltype"].cat.categories.tolist()
        for start, stop in [(0, 120), (7, 30), (30, 30), (119, 120)]:
            rows = store.rows(start, stop)
            assert rows.data.dtype == np.dtype(given)
            assert rows.indices.dtype == np.int32
            codes = adata.obs["celltype"].cat.codes.to_numpy()[start:stop]
            assert_rows_equal(rows, adata.X[start:stop].astype(given), codes)
        store.verify()
        assert store.feature_names() == adata.var_names.tolist()
        assert store.index_base is None
        assert not store.shuffled
        assert store.meta == {"label": "celltype", "hold_out_by": None, "anndata": True}


def test_unsorted_rows_are_sorted_and_explicit_zeros_are_kept(target):
    adata = cells()
    adata.X.data[::3] = 0
    expected = adata.X.copy()
    for start, stop in zip(expected.indptr[:-1], expected.indptr[1:], strict=True):
        adata.X.indices[start:stop] = expected.indices[start:stop][::-1]
        adata.X.data[start:stop] = expected.data[start:stop][::-1]
    adata.X.has_sorted_indices = False
    write(adata, target)
    codes = adata.obs["celltype"].cat.codes.to_numpy()
    with open_store(target, label="celltype") as store:
        assert_rows_equal(store.rows(5, 100), expected[5:100], codes[5:100])


def test_unlabelled_data_is_read_if_no_labels_are_needed(target):
    adata = cells()
    del adata.obs["celltype"]
    adata.obs = adata.obs[[]]
    write(adata, target)
    with open_store(target, labelled=False) as store:
        assert (store.classes, store.n_classes, store.class_counts.tolist()) == ((), 0, [])
        assert_rows_equal(store.rows(3, 90), adata.X[3:90], np.full(87, -1))
        assert isinstance(store.fingerprint, str)
        store.verify()
    with pytest.raises(StoreError, match="the columns of obs are none; name the label column"):
        open_store(target)


# -- other matrices --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "share"), [("f2", 1.0), ("f4", 0.3), ("f8", 1.0), ("i4", 0.3), ("bool", 0.3)]
)
def test_a_dense_matrix_is_read_as_dense_rows_or_without_its_zeros(target, stored, share, monkeypatch):
    monkeypatch.setattr("streamsvm.store.matrices._PIECE", 100)  # several pieces a range
    adata = cells()
    values = adata.X.toarray()
    values[np.random.default_rng(1).random(values.shape) > share] = 0
    values = (values + (share == 1)).astype(stored)
    write(anndata.AnnData(values, obs=adata.obs), target)
    codes = adata.obs["celltype"].cat.codes.to_numpy()
    with open_store(target, label="celltype") as store:
        assert store.dense_rows == (share == 1)
        for start, stop in [(0, 120), (7, 30), (30, 30), (119, 120)]:
            expected = sp.csr_matrix(values[start:stop].astype(store.dtype))
            rows = store.rows(start, stop)
            assert rows.dense == store.dense_rows
            assert_rows_equal(rows, expected, codes[start:stop])
        store.verify()
        assert len(store.fingerprint) == 64


@pytest.mark.parametrize("filled", [1024 * 3, 1024 * 3 - 1])
def test_a_sample_says_whether_most_values_of_a_dense_matrix_are_0(filled, tmp_path):
    values = np.zeros((5000, 6), "f4")
    in_sample = np.concatenate([np.arange(128) + first for first in np.linspace(0, 4872, 8, dtype=int)])
    values[np.setdiff1d(np.arange(5000), in_sample)] = 1  # which say nothing
    values[in_sample[np.arange(filled) % 1024], np.arange(filled) // 1024] = 1
    obs = pd.DataFrame({"celltype": np.tile(["a", "b"], 2500)}, index=np.arange(5000).astype(str))
    anndata.AnnData(values, obs=obs).write_h5ad(tmp_path / "a.h5ad")
    with open_store(tmp_path / "a.h5ad", label="celltype") as store:
        assert store.dense_rows == (filled == 1024 * 3)
        assert store.rows(40, 90).dense == store.dense_rows


def test_layers_raw_and_obsm_are_read_with_features_of_their_own(target):
    """Entries of obsm have features with numbers, unless a dataframe names them."""
    adata = cells()
    adata.raw = anndata.AnnData(adata.X * 2, var=pd.DataFrame(index=[f"r{j}" for j in range(30)]))
    adata = adata[:, 5:].copy()
    latent = np.random.default_rng(0).normal(size=(120, 6))
    frame = pd.DataFrame(latent[:, :3], adata.obs_names, ["a", "b", "c"]).astype({"b": "float32"})
    adata.layers.update({"counts": adata.X * 3, "dense": adata.X.toarray() * 4})
    adata.obsm.update({"half": latent.astype(np.float16), "frame": frame, "counts": adata.X[:, :4]})
    write(adata, target)
    genes, codes = adata.var_names.tolist(), adata.obs["celltype"].cat.codes.to_numpy()[10:20]
    for options, matrix, names, dtype in [
        ({}, adata.X, genes, "f4"),
        ({"layer": "counts"}, adata.layers["counts"], genes, "f4"),
        ({"layer": "dense"}, adata.layers["dense"], genes, "f4"),
        ({"raw": True}, adata.raw.X, adata.raw.var_names.tolist(), "f4"),
        ({"obsm": "counts"}, adata.obsm["counts"], None, "f4"),
        ({"obsm": "half"}, adata.obsm["half"].astype("f4"), None, "f4"),
        ({"obsm": "frame"}, frame.to_numpy(), frame.columns.tolist(), "f8"),
    ]:
        with open_store(target, **LABEL, **options) as store:
            assert (store.feature_names(), store.dtype) == (names, dtype)
            assert store.dense_rows == (options.get("obsm") in ("half", "frame"))
            assert_rows_equal(store.rows(10, 20), sp.csr_matrix(matrix[10:20]), codes)
    adata.obsm["frame"]["kind"], adata.obsm["complex"] = "x", latent * 1j
    write(adata, target)
    for options, error, words in [
        ({"layer": "count"}, StoreError, "no layer 'count'; available: counts, dense"),
        ({"layer": "counts", "raw": True}, SettingsError, "layer and raw"),
        ({"obsm": "X_umap"}, StoreError, "no obsm 'X_umap'; available: complex, counts, frame, half"),
        ({"obsm": "half", "raw": True}, SettingsError, "raw and obsm both name a matrix"),
        *(({"obsm": name}, StoreError, "does not hold numbers") for name in ("frame", "complex")),
    ]:
        with pytest.raises(error, match=words):
            open_store(target, **LABEL, **options)


# -- labels and names ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["b", "a", "ü"], ["a", "b", "ü"]),
        ([10, -2, 9], ["-2", "9", "10"]),
        ([True, False, True], ["False", "True"]),
        (pd.array([10, None, 9], dtype="Int64"), ["9", "10"]),
        (pd.array([True, None, False], dtype="boolean"), ["False", "True"]),
        (pd.Categorical([10, None, 9]), ["9", "10"]),
        (pd.Categorical(["b", "a", None], categories=["b", "a", "unused"]), ["b", "a", "unused"]),
    ],
    ids=str,
)
def test_labels_of_any_kind(target, values, classes, monkeypatch):
    """Rows without one are left out; the others are those that pandas has."""
    monkeypatch.setattr("streamsvm.store.views._PIECE_ROWS", 25)
    adata = cells()
    picked = np.random.default_rng(3).integers(3, size=120)
    column = pd.Series(values)[picked]
    adata.obs["label"] = column.set_axis(adata.obs_names)
    write(adata, target)
    known = adata.obs["label"].notna().to_numpy()
    texts = adata.obs["label"][known].astype(str).to_numpy()
    with open_store(target, label="label") as store:
        assert list(store.classes) == classes
        assert (store.n_rows, store.unlabelled) == (known.sum(), (~known).sum())
        n = store.n_rows
        for start, stop in [(0, n), (7, 30), (30, 30), (n - 1, n), (0, 1)]:
            codes = [classes.index(text) for text in texts[start:stop]]
            assert_rows_equal(store.rows(start, stop), adata.X[known][start:stop], codes)
            assert store.names(start, stop).tolist() == adata.obs_names[known][start:stop].tolist()
            sizes = np.diff(adata.X[known][start:stop].indptr)
            np.testing.assert_array_equal(np.diff(store.indptr(start, stop)), sizes)
        assert store.class_counts.tolist() == [(texts == name).sum() for name in classes]
        store.verify()


# -- refused ---------------------------------------------------------------------------------------


def changed(stored: str = "f4", **changes: Any) -> anndata.AnnData:
    """The cells with other values of X in order, or of its indices."""
    adata = cells(stored)
    for name, (at, value) in changes.items():
        {"data": adata.X.data, "indices": adata.X.indices}[name][at] = value
    return adata


def with_infinity(added: int) -> anndata.AnnData:
    """The cells as a dense matrix; with 1 added, it is read as dense rows."""
    values = cells().X.toarray() + np.float32(added)
    values[40, 3] = np.inf
    return anndata.AnnData(values, obs=cells().obs)


def hdf5(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    """Return a function that changes a file by h5py."""

    def spoil(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)

    return spoil


def element(name: str, at: int, value: int) -> Callable[[Path], None]:
    """Return a function that sets an element of an array."""
    return hdf5(lambda file: file[name].__setitem__(at, value))


def replaced(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def change_it(file: h5py.File) -> None:
        inner = f"{name}/values" if isinstance(file[name], h5py.Group) else name  # text of newer anndata
        values = file[inner][()]
        del file[inner]
        file[inner] = change(values)

    return hdf5(change_it)


def large_chunks(file: h5py.File) -> None:
    del file["X/data"]
    file["X"].create_dataset("data", (2**60,), "f4", chunks=(2**28 + 1,))


ROW = {row: int(cells().X.indptr[row]) for row in (33, 40)}
CSC = anndata.AnnData(cells().X.tocsc(), obs=cells().obs)
# AnnData, how it is opened, and the message of opening it or of reading all.
REFUSED: list[tuple[anndata.AnnData, dict[str, Any], str]] = [
    (cells(), {}, "the columns of obs are celltype, batch, depth; name the label column"),
    (
        cells(),
        {"label": "cell"},
        "neither obs nor obsm has an entry 'cell'; the columns of obs are celltype, batch",
    ),
    (anndata.AnnData(obs=cells().obs), LABEL, "AnnData has no X"),
    (cells(), {**LABEL, "raw": True}, "AnnData has no raw"),
    (anndata.AnnData(cells().X.astype("c8"), obs=cells().obs), LABEL, "of a supported type"),
    (CSC, LABEL, r"X is CSC.*`convert"),
    (cells(fractions=True), {"label": "depth"}, r"'depth' contains floating-point numbers.*astype\(str\)"),
    (changed(data=(ROW[40], np.nan)), LABEL, "data, row 41"),
    (changed("i8", data=(50, 2**24 + 1)), LABEL, "element 50: 16777217 cannot be represented as float32; st"),
    (changed(indices=(ROW[33] + 1, cells().X.indices[ROW[33]])), LABEL, "indices, row 34: .*sum_duplicates"),
    *((with_infinity(added), LABEL, "X, row 41: a value is") for added in (0, 1)),
]
# Changes of the file, and the message.
DAMAGED: list[tuple[Callable[[Path], None], str]] = [
    (element("X/indices", 100, 30), r"array X/indices, row \d+: index 30 is out of range"),
    (element("X/indices", 100, -1), r"array X/indices, row \d+: index -1 is out of range"),
    (element("X/indptr", 60, 10**6), "X/indptr, chunk 0"),
    (element("X/indptr", 120, 5), "row pointer 120 is not"),
    (replaced("X/indices", lambda values: values[:100]), "X/indices has 100 elements instead of"),
    (hdf5(large_chunks), "X/data has chunks of 1,073,741,828 bytes, but at most"),
    (hdf5(lambda file: file.pop("var")), "var is not a dataframe"),
    (replaced("var/_index", lambda values: values[:29]), "has 29 elements instead of 30"),
]


def read_all(path: Path, options: dict[str, Any]) -> None:
    with open_store(path, **options) as store:
        store.feature_names()
        store.verify()


def test_what_cannot_be_read_is_refused(target, tmp_path):
    for number, (adata, options, reason) in enumerate(REFUSED):
        path = target.with_name(f"{number}-{target.name}")
        write(adata, path)
        with pytest.raises(StoreError, match=reason):
            read_all(path, options)
    for number, (spoil, reason) in enumerate(DAMAGED):
        path = tmp_path / f"{number}.h5ad"
        write(cells(), path)
        spoil(path)
        with pytest.raises(StoreError, match=reason):
            read_all(path, LABEL)


@pytest.mark.parametrize("name", ["obs/celltype/categories", "X/data"])
def test_a_pickle_is_never_loaded(name, tmp_path):
    """Zarr 2 lets a store name pickle as its codec; opening an untrusted store must execute nothing."""
    path = tmp_path / "a.v2.zarr"
    write(cells(), path)
    mark = tmp_path / "executed"

    class Payload:
        def __reduce__(self):
            return (Path.touch, (mark,))

    raw = json.loads((path / name / ".zarray").read_text())
    raw |= {"filters": [{"id": "pickle", "protocol": 5}], "compressor": None}
    (path / name / ".zarray").write_text(json.dumps(raw))
    (path / name / "0").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(StoreError, match="pickle"), open_store(path, label="celltype") as store:
        store.rows(0, 9)
    assert not mark.exists()


@pytest.mark.parametrize("name", few(["v2.zarr", "v3.zarr"], "v2.zarr"))
def test_damage_raises_only_store_errors(name, tmp_path):
    """Without checksums a changed value may go unnoticed, but nothing other than StoreError is raised."""
    path = tmp_path / name
    write(cells(), path)
    files = sorted(p for p in path.rglob("*") if p.is_file() and "var" not in p.parts)
    refused = 0
    for case in range(60):
        rng = np.random.default_rng(case)
        target = rng.choice(files)
        content = target.read_bytes()
        at = int(rng.integers(len(content)))
        flipped = bytes([content[at] ^ rng.integers(1, 256)]) + content[at + 1 :]
        target.write_bytes(content[:at] + (b"" if case % 5 == 0 else flipped))
        try:
            with open_store(path, label="celltype") as store:
                rows = store.rows(0, store.n_rows)
                assert np.isfinite(rows.data).all()
                assert not len(rows.indices) or rows.indices.max() < store.n_features
                assert rows.labels.min() >= 0
                assert isinstance(store.fingerprint, str)
        except StoreError:
            refused += 1
        target.write_bytes(content)
    assert refused > 12


@pytest.mark.parametrize("how", ["raw", "virtual", "link"])
def test_arrays_stored_in_other_files_are_not_read(how, tmp_path):
    """Otherwise an untrusted file could refer to any file of this machine."""
    path, other = tmp_path / "a.h5ad", tmp_path / "other.h5"
    write(cells(), path)
    with h5py.File(path, "a") as file, h5py.File(other, "w") as source:
        values = source["data"] = file["X/data"][:]
        del file["X/data"]
        if how == "raw":
            (tmp_path / "raw").write_bytes(values.tobytes())
            external = [(str(tmp_path / "raw"), 0, values.nbytes)]
            file.create_dataset("X/data", values.shape, values.dtype, external=external)
        elif how == "virtual":
            virtual = h5py.VirtualLayout(values.shape, values.dtype)
            virtual[:] = h5py.VirtualSource(other, "data", values.shape)
            file.create_virtual_dataset("X/data", virtual)
        else:
            file["X/data"] = h5py.ExternalLink(other, "data")
    with pytest.raises(StoreError, match="X/data is stored in another file"):
        open_store(path, label="celltype")
