"""Dense matrices become dense stores: every value as NumPy rounds it, in the order of sparse ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from stored_rows import stored
from streamsvm_converters import convert, waiting_rows
from streamsvm_converters.kinds import stored as reader_module

from streamsvm.errors import InputError, PlanError, SettingsError, StoreError
from streamsvm.store import open_store

N, D = 500, 24


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_VALUES_PER_READ", 700)
    monkeypatch.setattr(waiting_rows, "_VALUES_PER_BATCH", 900)


@pytest.fixture
def X() -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(N, D))
    X[5], X[np.abs(X) < 0.3] = 0, 0
    return X


@pytest.fixture
def y() -> np.ndarray:
    return np.random.default_rng(1).choice(["b", "a", "10"], N)


@pytest.fixture
def folder(tmp_path: Path, X: np.ndarray, y: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rows in some kinds of files that hold dense rows, and once as a sparse matrix."""
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "packed.npz", X=X, y=y)
    np.save(tmp_path / "y.npy", y)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(X))
    obs = pd.DataFrame({"y": pd.Categorical(y)}, index=[f"c{i}" for i in range(N)])
    cells = anndata.AnnData(X, obs, pd.DataFrame(index=[f"g{j}" for j in range(D)]))
    cells.obsm["latent"] = X
    cells.write_h5ad(tmp_path / "x.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


INPUTS: dict[str, dict[str, Any]] = {
    "x.npy": {"labels": "y.npy"},
    "packed.npz": {"label": "y"},
    "obsm of x.h5ad": {"label": "y", "obsm": "latent"},
}


@pytest.mark.parametrize(("name", "dtype"), [*zip(INPUTS, ["float16", "float32", "float64"], strict=True)])
def test_every_kind_of_dense_file_becomes_a_dense_store(folder, X, y, name: str, dtype: str) -> None:
    report = convert([name.split()[-1]], "s.zarr", dtype=dtype, shuffle=False, chunk_nnz=300, **INPUTS[name])
    matrix, labels, names = stored("s.zarr")
    np.testing.assert_array_equal(matrix, X.astype(dtype))
    assert names is None
    assert labels == y.tolist()
    assert (report.n, report.d, report.nnz, report.empty_rows) == (N, D, N * D, 1)
    with open_store("s.zarr") as store:
        assert (store.meta["dtype"], store.dense_rows) == (dtype, True)
        found = store.statistics()
    np.testing.assert_array_equal(found.count, np.count_nonzero(X, axis=0))
    np.testing.assert_allclose(found.mean, X.astype(dtype).astype(float).mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("memory", [2**30, 2**17])
def test_the_order_is_that_of_csr_whatever_the_memory(folder, X, memory: int) -> None:
    """Buckets of 16 KB are split; a store of the same rows in CSR has the same names and columns."""
    Path("w.txt").write_text("".join(f"{i % 7 / 4}\n" for i in range(N)))
    options: dict[str, Any] = {"chunk_nnz": 300, "seed": 3, "weights": "w.txt"}
    convert(["x.npy"], "dense.h5", labels="y.npy", memory=memory, **options)
    convert(["sparse.npz"], "csr.h5", labels="y.npy", **options)
    with open_store("dense.h5") as dense, open_store("csr.h5") as csr:
        names = dense.names(0, N)
        assert names.tolist() == csr.names(0, N).tolist() != list(range(N))
        np.testing.assert_array_equal(dense.rows(0, N).matrix, X[names].astype(np.float32))
        np.testing.assert_array_equal(dense.labels(0, N), csr.labels(0, N))
        np.testing.assert_array_equal(dense.weights(0, N), names % 7 / 4)
        for found, expected in zip(dense.statistics().moments, csr.statistics().moments, strict=True):
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("suffix", ["zarr", "h5"])
def test_the_bytes_depend_on_neither_memory_nor_threads(folder, suffix: str) -> None:
    def contents(name: str, **options: Any) -> dict[str, bytes]:
        convert(["x.npy"], name, labels="y.npy", dtype="float16", chunk_nnz=300, **options)
        files = [Path(name), *Path(name).rglob("*")]
        return {str(p.relative_to(name)): p.read_bytes() for p in files if p.is_file()}

    whole = contents(f"a.{suffix}", threads=1)
    for number, options in enumerate([{"threads": 3}, {"memory": 2**17}, {"memory": 2**16, "threads": 2}]):
        assert contents(f"{number}.{suffix}", **options) == whole


# -- what becomes CSR ------------------------------------------------------------------------------


def test_what_is_mostly_zeros_or_partly_sparse_becomes_csr(folder, X, y) -> None:
    zeros = np.where(np.arange(D) < 8, X, 0)
    np.save("zeros.npy", zeros)
    np.savez("zeros.npz", X=zeros, y=y)
    cells = anndata.read_h5ad("x.h5ad")
    cells.X = sp.csr_matrix(X)
    cells.write_h5ad("sparse.h5ad")
    cases: list[tuple[list[str], list[np.ndarray], bool]] = [
        (["zeros.npy"], [zeros], False), (["x.npz", "zeros.npz"], [X, zeros], False),
        (["zeros.npz", "x.npz"], [zeros, X], False), (["x.h5ad", "sparse.h5ad"], [X, X], False),
        (["x.h5ad", "x.h5ad"], [X, X], True),
    ]  # fmt: skip
    for number, (inputs, parts, dense) in enumerate(cases):
        given = {"labels": "y.npy"} if inputs == ["zeros.npy"] else {"label": "y"}
        convert(inputs, f"{number}.h5", shuffle=False, **given)
        np.testing.assert_array_equal(stored(f"{number}.h5")[0], np.vstack(parts).astype("f4"))
        with open_store(f"{number}.h5") as store:
            assert store.dense_rows == dense
        if not dense:
            with pytest.raises(SettingsError, match=r"dtype float16 is only for dense.* becomes CSR"):
                convert(inputs, "no.h5", dtype="float16", **given)
    assert not Path("no.h5").exists()


def test_rows_of_very_many_features_become_csr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "CHUNK_NNZ", D - 1)
    np.savez(tmp_path / "x.npz", X=np.ones((9, D)), y=np.arange(9) % 2)
    convert([tmp_path / "x.npz"], tmp_path / "a.h5", label="y")
    with open_store(tmp_path / "a.h5") as store:
        assert not store.dense_rows


# -- like, and rows that are not finite ------------------------------------------------------------


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_becomes_infinite_in_float16_is_named(folder, X) -> None:
    X[7, 3] = 65520
    np.save("x.npy", X)
    with pytest.raises(InputError, match=r"x\.npy, row 8, column 4: 65520.0 is not finite in float16"):
        convert(["x.npy"], "s.h5", dtype="float16", labels="y.npy")
    assert convert(["x.npy"], "t.h5", labels="y.npy").n == N  # in float32 it is finite
    signals = X.astype(np.float32)
    signals.view(np.uint32)[7, 3] = 0x7FA00000  # NaN that signals
    np.save("x.npy", signals)
    with pytest.raises(StoreError, match="row 8: a value is not finite"):
        convert(["x.npy"], "s.h5", dtype="float64", labels="y.npy")


def test_too_little_memory_for_a_chunk_of_one_row(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((20, 200)), y=np.arange(20) % 2)
    with pytest.raises(PlanError, match="too small to write chunks of 200 values") as caught:
        convert([tmp_path / "x.npz"], tmp_path / "s.h5", label="y", chunk_nnz=8, memory=128 * 199)
    assert caught.value.needed_memory == 128 * 200


# -- columns of lists ------------------------------------------------------------------------------


def test_lists_with_other_columns_say_what_is_used(folder, X, y) -> None:
    pq.write_table(pa.table({"n": range(N), "v": list(X), "y": y}), "x.parquet")
    report = convert(["x.parquet"], "s.h5", label="y")
    assert report.notes == ("the features are the numbers in column 'v'; other columns are ignored",)
    assert convert(["x.parquet"], "t.h5", label="y", drop=["v"]).d == 1  # the column n
    convert(["x.parquet"], "u.h5", labels="y.npy", shuffle=False)
    assert stored("u.h5")[1] == np.load("y.npy").tolist()
