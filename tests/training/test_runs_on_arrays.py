"""Runs on dense matrices in .npy files are those on the same rows as AnnData, and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import plain_fit as fit
from streamsvm_converters import convert

import streamsvm
from streamsvm import FitResult, evaluate, load_model, open_store, predict
from streamsvm.errors import InputError, RunError, SettingsError, StoreError

N = 3000
OPTIONS: dict[str, Any] = {"passes": 2, "block_rows": 500, "loss": "ww", "C": 1.0, "dtype": "float32"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix whose rows are sorted by label, as files and as AnnData."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.integers(0, 4, N))
    X = (rng.normal(size=(4, 10))[y] + rng.normal(size=(N, 10))).astype(np.float16)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "F.npy", np.asfortranarray(X))
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "y.txt").write_text("\n".join(map(str, y)))
    obs = pd.DataFrame({"label": pd.Categorical(y)}, [f"r{i}" for i in range(N)])
    adata = anndata.AnnData(X.astype(np.float32), obs)
    adata.obsm["X_scVI"] = X
    adata.write_h5ad(tmp_path / "a.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(*data: Any, **options: Any) -> FitResult:
    return fit(*data, **(OPTIONS | options))


def test_a_run_is_the_same_on_files_and_on_anndata(folder: Path) -> None:
    trained("a.h5ad", out="run", label="label", slice_rows=100)
    trained("a.h5ad", out="latent", label="label", obsm="X_scVI", slice_rows=100)
    result = trained("X.npy", out="npy", labels="y.npy", valid="F.npy", valid_labels="y.txt", slice_rows=100)
    trained("F.npy", out="fortran", labels="y.txt", slice_rows=100)
    for dtype in "float16", "float32":
        convert(["X.npy"], f"{dtype}.zarr", labels="y.npy", shuffle=False, dtype=dtype, chunk_nnz=600)
        trained(f"{dtype}.zarr", out=dtype, slice_rows=100)
        assert evaluate(dtype, f"{dtype}.zarr").accuracy == evaluate(dtype, "X.npy", labels="y.npy").accuracy
    X, y = np.load("X.npy").astype(np.float32), np.load("y.npy")
    accuracy = float(np.mean(load_model("run").predict(X) == y))
    table = pa.table({"text": ["?"] * N, "vector": list(X), "label": y})
    pq.write_table(table, "t.parquet", row_group_size=400)
    with pa.ipc.new_stream("t.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=400)
    for name in "t.arrow", "t.parquet":
        of_lists = trained(name, out=name[2:], label="label", slice_rows=100, valid="t.arrow")
        assert of_lists.valid_accuracy == evaluate(name[2:], name, labels="y.txt").accuracy == accuracy
    wanted = load_model("run").coef_
    for run in "latent", "npy", "fortran", "float16", "float32", "arrow", "parquet":
        np.testing.assert_array_equal(load_model(run).coef_, wanted)
    assert result.valid_accuracy == accuracy == evaluate("npy", "X.npy", labels="y.npy").accuracy > 0.8
    np.testing.assert_array_equal(predict("npy", "F.npy").labels[:, 0], load_model("npy").predict(X))


def test_weights_of_rows_are_in_a_file_of_their_own(folder: Path) -> None:
    adata = anndata.read_h5ad("a.h5ad")
    weights = np.random.default_rng(3).integers(0, 4, N)
    adata.obs["w"] = weights
    adata.write_h5ad("w.h5ad")
    np.save("w.npy", weights)
    Path("w.txt").write_text("\n".join(f"{weight}.0" for weight in weights))
    trained("w.h5ad", out="run", label="label", sample_weight="w", slice_rows=100)
    for name in "npy", "txt":
        result = trained("X.npy", out=f"run-{name}", labels="y.npy", weights=f"w.{name}", slice_rows=100)
        np.testing.assert_array_equal(load_model(result.model).coef_, load_model("run").coef_)
        assert result.unweighted_rows == np.count_nonzero(weights == 0)
    streamsvm.resume("run-npy", passes=3)
    np.save("w.npy", weights + 1)
    with pytest.raises(RunError, match="changed"):
        streamsvm.resume("run-npy", passes=4)


def test_a_run_on_a_dense_store_resumes(folder: Path) -> None:
    convert(["X.npy"], "s.h5", labels="y.npy", dtype="float16", chunk_nnz=600)
    for run, passes in ("run", 2), ("three", 3):
        result = trained("s.h5", out=run, passes=passes, transform=["scale=std", "bias"], valid="s.h5")
    streamsvm.resume("run", passes=3)
    np.testing.assert_array_equal(load_model("run").coef_, load_model("three").coef_)
    labels = np.load("y.npy")
    assert result.valid_accuracy == np.mean(load_model("three").predict(np.load("X.npy")) == labels) > 0.8
    with open_store("s.h5") as store:
        names = store.names(0, N)
    np.testing.assert_array_equal(predict("run", "s.h5").labels, predict("run", "X.npy").labels[names])


def test_other_held_out_data_have_labels_of_their_own(folder: Path) -> None:
    """And not those of the data before, which were of other rows."""
    y = np.load("y.npy")
    np.save("X2.npy", np.load("X.npy")[::-1]), np.save("y2.npy", y[::-1])
    trained("X.npy", out="run", labels="y.npy", valid="X.npy", valid_labels="y.npy")
    with pytest.raises(StoreError, match="matrix without labels; specify the labels with valid_labels="):
        streamsvm.resume("run", passes=3, valid="X2.npy")
    streamsvm.resume("run", passes=3, valid="X.npy")  # the same
    other = streamsvm.resume("run", passes=4, valid="X2.npy", valid_labels="y2.npy")
    assert other.valid_accuracy == evaluate("run", "X.npy", labels="y.npy").accuracy
    streamsvm.convert("X2.npy", "b.zarr", labels="y2.npy")
    of_store = streamsvm.resume("run", passes=5, valid="b.zarr")
    assert of_store.valid_accuracy == evaluate("run", "X.npy", labels="y.npy").accuracy


REFUSED: list[tuple[dict[str, Any], type, str]] = [
    ({"valid_labels": "y.npy"}, SettingsError, "valid_labels has no effect without valid"),
    ({"valid": "X.npy"}, StoreError, "matrix without labels; specify the labels with valid_labels="),
    ({"weights": "short.npy"}, InputError, r"has the shape \(2999,\); pass one weight per row \(3,000\)"),
    ({"weights": "less.npy"}, InputError, "row 2: the weight -1.0 is invalid; use numbers >= 0"),
    ({"weights": "nan.npy"}, InputError, "row 1: the weight nan"),
    ({"weights": "w"}, InputError, "w has values that are not numbers"),
]


def test_labels_and_weights_that_make_no_sense_are_refused(folder: Path) -> None:
    np.save("short.npy", np.ones(N - 1))
    np.save("less.npy", np.r_[1.0, -1.0, np.ones(N - 2)])
    np.save("nan.npy", np.r_[np.nan, np.ones(N - 1)])
    Path("w").write_text("1\nx\n")
    for options, error, words in REFUSED:
        with pytest.raises(error, match=words):
            trained("X.npy", out="run", labels="y.npy", **options)
    with pytest.raises(SettingsError, match="labels does not apply to a matrix in memory"):
        trained(np.load("X.npy"), np.load("y.npy"), labels="y.npy")
    with pytest.raises(StoreError, match=r"has its own labels and weights.*omit weights"):
        trained("a.h5ad", out="run", label="label", weights="w")
    assert not Path("run").exists()
