"""AnnData becomes a store: any matrix, one or several files, as anndata itself reads and joins them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from streamsvm_converters import convert
from streamsvm_converters.kinds import anndata as kind

from streamsvm.errors import InputError, SettingsError, StoreError, StreamsvmWarning
from streamsvm.store import open_store

N, D = 300, 40
pytestmark = pytest.mark.filterwarnings("ignore:.*zarr:UserWarning")  # of anndata, about its next version
MATRICES: dict[str, Callable[[Any], Any]] = {
    "csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda X: X.toarray(),
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "_VALUES_PER_READ", 500)


@pytest.fixture
def cells() -> anndata.AnnData:
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.2, format="csr", random_state=rng, dtype=np.float32)
    types = rng.choice(["T", "B", "NK"], N).astype(object)
    types[7::50] = None
    obs = pd.DataFrame({"type": pd.Categorical(types)}, index=[f"c{i}" for i in range(N)])
    return anndata.AnnData(X, obs, pd.DataFrame(index=[f"g{i}" for i in range(D)]))


def write(cells: anndata.AnnData, path: Path) -> Path:
    cells.write_h5ad(path) if path.suffix == ".h5ad" else cells.write_zarr(path)
    return path


def check(path: Path, wanted: anndata.AnnData) -> None:
    """Assert that a store has the rows, labels and names of AnnData."""
    with open_store(path) as store:
        rows = store.rows(0, store.n_rows)
        X = sp.csr_array((rows.data, rows.indices, rows.indptr), (store.n_rows, store.n_features))
        names = store.feature_names()
        assert sorted(names or []) == sorted(wanted.var_names)
        values = wanted[:, names].X
        values = values.toarray() if sp.issparse(values) else np.asarray(values)
        np.testing.assert_array_equal(X.toarray(), np.nan_to_num(values))
        assert [store.classes[code] for code in rows.labels] == wanted.obs["type"].astype(str).tolist()
        store.verify()


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
def test_rows_are_those_of_anndata(cells, matrix: str, suffix: str, tmp_path: Path) -> None:
    cells.X = MATRICES[matrix](cells.X)
    path = write(cells, tmp_path / f"a.{suffix}")
    report = convert([path], tmp_path / "out.h5", label="type", shuffle=False)
    labelled = cells[cells.obs["type"].notna()]
    check(tmp_path / "out.h5", labelled)
    assert (report.n, report.unlabelled) == (len(labelled), N - len(labelled))
    with open_store(tmp_path / "out.h5") as store:
        assert store.names(0, store.n_rows).tolist() == np.flatnonzero(cells.obs["type"].notna()).tolist()


@pytest.mark.parametrize("matrix", MATRICES)
def test_layers_and_raw(cells, matrix: str, tmp_path: Path) -> None:
    cells = cells[cells.obs["type"].notna()].copy()
    counts = sp.csr_matrix(cells.X.multiply(10).ceil())
    cells.layers["counts"] = MATRICES[matrix](counts)
    cells.raw = anndata.AnnData(MATRICES[matrix](counts * 2), cells.obs, cells.var)
    few = cells[:, :10].copy()
    path = write(few, tmp_path / "a.h5ad")
    convert([path], tmp_path / "layer.zarr", label="type", layer="counts", shuffle=False)
    check(tmp_path / "layer.zarr", anndata.AnnData(few.layers["counts"], few.obs, few.var))
    convert([path], tmp_path / "raw.zarr", label="type", raw=True, shuffle=False)
    check(tmp_path / "raw.zarr", anndata.AnnData(counts * 2, cells.obs, cells.var))


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_several_files_are_joined_as_anndata_joins_them(cells, join: Any, tmp_path: Path) -> None:
    cells = cells[cells.obs["type"].notna()].copy()
    first, second = cells[:100, :30].copy(), cells[100:, 10:][:, ::-1].copy()
    first.X = first.X.tocsc()
    second.obs["type"] = second.obs["type"].cat.rename_categories({"T": "new"})
    paths = [write(first, tmp_path / "a.h5ad"), write(second, tmp_path / "b.zarr")]
    chosen = {} if join == "inner" else {"join": join}  # the default
    fate = {"inner": "left out", "outer": "taken as 0 where they are missing"}[join]
    with pytest.warns(
        StreamsvmWarning, match=rf"^20 of 40 features are not in all files and {fate} \('g0', "
    ):
        convert(paths, tmp_path / "out.zarr", label="type", shuffle=False, **chosen)
    check(tmp_path / "out.zarr", anndata.concat([first, second], join=join))


def test_files_of_the_same_features_in_another_order_are_joined_without_a_word(cells, tmp_path: Path) -> None:
    cells = cells[cells.obs["type"].notna()].copy()
    first, second = cells[:100].copy(), cells[100:, ::-1].copy()
    paths = [write(first, tmp_path / "a.h5ad"), write(second, tmp_path / "b.h5ad")]
    convert(paths, tmp_path / "out.zarr", label="type", shuffle=False)
    check(tmp_path / "out.zarr", cells)


def test_files_that_cannot_be_joined_are_refused(cells, tmp_path: Path) -> None:
    first, second, third = cells[:, :5].copy(), cells[:, 5:9].copy(), cells[:, :4].copy()
    third.var_names = [str(i) for i in range(4)]
    paths = [write(part, tmp_path / f"{i}.h5ad") for i, part in enumerate((first, second, third))]
    with pytest.raises(StoreError, match=r"no feature is in all of .*join='outer'"):
        convert(paths[:2], tmp_path / "out.zarr", label="type")
    with pytest.raises(StoreError, match=r"2\.h5ad does not name its features"):
        convert(paths, tmp_path / "out.zarr", label="type", join="outer")
    with pytest.raises(SettingsError, match="join must be inner or outer, not 'left'"):
        convert(paths[:2], tmp_path / "out.zarr", label="type", join="left")


def test_like_matches_by_name(cells, tmp_path: Path) -> None:
    cells = cells[cells.obs["type"].notna()].copy()
    train = write(cells[:, :30].copy(), tmp_path / "train.h5ad")
    convert([train], tmp_path / "train.zarr", label="type")
    query = cells[:50, 20:][:, ::-1].copy()
    report = convert(
        [write(query, tmp_path / "query.h5ad")], tmp_path / "query.zarr", label="type", shuffle=False,
        like=tmp_path / "train.zarr",
    )  # fmt: skip
    assert report.d == 30
    assert report.unseen_features == query[:, [f"g{i}" for i in range(30, 40)]].X.nnz
    assert any("10 of the 30 features" in note for note in report.notes)
    with open_store(tmp_path / "query.zarr") as store:
        rows = store.rows(0, 50)
        X = sp.csr_array((rows.data, rows.indices, rows.indptr), (50, 30)).toarray()
    assert not X[:, :20].any()
    np.testing.assert_array_equal(X[:, 20:], cells[:50, 20:30].X.toarray())


def test_what_cannot_be_converted_is_named(cells, tmp_path: Path) -> None:
    path = write(cells, tmp_path / "a.h5ad")
    with pytest.raises(SettingsError, match="text does not apply to AnnData"):
        convert([path], tmp_path / "out.zarr", label="type", text="body")
    convert([path], tmp_path / "out.zarr", label="type")
    with pytest.raises(InputError, match=r"out\.zarr is a store already"):
        convert([tmp_path / "out.zarr"], tmp_path / "again.zarr")
    cells.X = cells.X.tocsc()
    cells.X.data[3] = np.inf
    with pytest.raises(InputError, match=r"row .*, column .*: inf is not finite"):
        convert([write(cells, tmp_path / "b.h5ad")], tmp_path / "b.zarr", label="type")
