"""`predict` and `evaluate` as a user runs them on AnnData and text: tables, several files."""

from __future__ import annotations

from pathlib import Path

import anndata
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import fails, succeeds
from test_anndata_commands import LABEL, cells

from streamsvm import load_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict")
    adata = cells()
    adata[:600].copy().write_h5ad(path / "train.h5ad")
    adata.layers["other"] = sp.csr_matrix(adata.X[::-1])
    adata[600:].copy().write_h5ad(path / "query.h5ad")
    succeeds("fit", "train.h5ad", *LABEL, "--out", "run", "--C", 0.01, cwd=path)
    return path


def labels_of(folder: Path, X: sp.csr_matrix) -> list[str]:
    model = load_model(folder / "run")
    return model.classes_[(X @ model.coef_.T).argmax(axis=1)].tolist()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_several_files_make_one_table(folder: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"p.{suffix}"
    said = succeeds("predict", "run", "query.h5ad", "train.h5ad", "--out", out, cwd=folder)
    assert f"900 predictions: {out}" in said
    table = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    adata = cells()
    assert table["file"].tolist() == ["query.h5ad"] * 300 + ["train.h5ad"] * 600
    assert table["row"].tolist() == [*adata.obs_names[600:], *adata.obs_names[:600]]
    assert table["label"].tolist() == labels_of(folder, sp.vstack([adata.X[600:], adata.X[:600]]))
    lines = succeeds("predict", "run", "query.h5ad", "train.h5ad", cwd=folder).splitlines()
    assert lines == table["label"].tolist()


def test_rows_of_text_are_numbers(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a 1:1\nb 2:1\na 1:2\nb 2:2\n")
    succeeds("convert", "text", "--out", "s.zarr", cwd=tmp_path)
    succeeds("fit", "s.zarr", "--out", "run", cwd=tmp_path)
    (tmp_path / "bare").write_text(" 1:1\n 2:1\n 1:3\n")  # a blank in the place of a label
    succeeds("predict", "run", "bare", "text", "--out", "p.csv", cwd=tmp_path)
    table = pd.read_csv(tmp_path / "p.csv")
    assert table["row"].tolist() == [0, 1, 2, 0, 1, 2, 3]
    assert table["label"].tolist() == ["a", "b", "a", "a", "b", "a", "b"]
    succeeds(
        "predict", "run", "s.zarr", "--out", "shuffled.csv", cwd=tmp_path
    )  # with the numbers of the text
    shuffled = pd.read_csv(tmp_path / "shuffled.csv").sort_values("row")
    assert shuffled["label"].tolist() == ["a", "b", "a", "b"]
    (tmp_path / "nan").write_text("a 1:1\nb 2:nan\n")
    assert "nan, line 2" in fails(1, "predict", "run", "nan", cwd=tmp_path)


def test_what_makes_no_sense_changes_nothing(folder: Path) -> None:
    names = sorted(path.name for path in folder.iterdir())
    for code, words in (
        (2, ("query.h5ad", "query.h5ad")),
        (2, ("query.h5ad", "--out", "p.csv", "--threshold", 0)),
        (1, ("absent.h5ad", "--out", "p.csv")),
        (1, ("query.h5ad", "--obsm", "X_no")),
    ):
        fails(code, "predict", "run", *words, cwd=folder)
    assert sorted(path.name for path in folder.iterdir()) == names


def test_a_layer_is_scored_if_it_is_named(folder: Path) -> None:
    lines = succeeds("predict", "run", "query.h5ad", "--layer", "other", cwd=folder).splitlines()
    layer = anndata.read_h5ad(folder / "query.h5ad").layers["other"]
    assert lines == labels_of(folder, layer) != labels_of(folder, cells()[600:].X)
