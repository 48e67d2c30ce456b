"""Runs over AnnData keep the names of features; rows in order of labels are told of."""

from __future__ import annotations

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import fails, streamsvm, succeeds

from streamsvm import load_model

N, D, K = 900, 60, 4
LABEL = ("--label", "type")


def cells() -> anndata.AnnData:
    rng = np.random.default_rng(0)
    types = rng.integers(K, size=N)
    rates = rng.gamma(0.5, size=(K, D))
    X = sp.csr_matrix(np.log1p(rng.poisson(rates[types])).astype(np.float32))
    obs = pd.DataFrame({"type": pd.Categorical([f"T{t}" for t in types])}, index=[f"c{i}" for i in range(N)])
    return anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"ENSG{j}" for j in range(D)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over 600 cells, and text."""
    path = tmp_path_factory.mktemp("cells")
    cells()[:600].copy().write_h5ad(path / "train.h5ad")
    (path / "text").write_text("T0 1:1 60:1\nT1 2:1\n")
    succeeds("fit", "train.h5ad", *LABEL, "--out", "run", "--C", 0.01, cwd=path)
    return path


def test_text_cannot_be_made_like_a_model_with_names(folder: Path, tmp_path: Path) -> None:
    like = ("--like", "run", "--index-base", 1, "--out", tmp_path / "like.h5")
    for command in ("convert", "online"):
        assert "the features of run have names" in fails(1, command, "text", *like, cwd=folder)
    classes = ("--like", "run", "--hash-bits", 6, "--out", tmp_path / "hashed")  # takes the classes alone
    succeeds("online", "text", *classes, cwd=folder)


def test_a_run_resumes_only_with_the_names_it_began_with(folder: Path, tmp_path: Path) -> None:
    adata = anndata.read_h5ad(folder / "train.h5ad")
    words = ("fit", folder / "train.h5ad", *LABEL, "--out", "run", "--passes", 2)
    succeeds(*words, cwd=tmp_path)
    adata.var_names = adata.var_names[::-1]
    adata.write_h5ad(tmp_path / "renamed.h5ad")
    resume = ("resume", "run", "--passes", 3, "--store")
    assert "has changed" in fails(1, *resume, "renamed.h5ad", cwd=tmp_path)
    succeeds(*resume, folder / "train.h5ad", cwd=tmp_path)
    assert load_model(tmp_path / "run").feature_names_in_.tolist() == adata.var_names[::-1].tolist()


def test_text_sorted_by_label_is_told_of_as_it_streams(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{c} {c + 1}:1 {rng.integers(9, 20)}:0.5\n" for c in range(5) for _ in range(300)]
    (tmp_path / "sorted").write_text("".join(lines))
    code, out, err = streamsvm("online", "sorted", "--out", "run", cwd=tmp_path)
    assert (code, err.count("\n")) == (0, 1)
    assert "the rows come in groups of alike labels" in err
    assert "shuffle" in err
    assert "progressive accuracy -" in out
    rng.shuffle(lines)
    (tmp_path / "shuffled").write_text("".join(lines))
    assert "progressive accuracy 0." in succeeds("online", "shuffled", "--out", "shuffled-run", cwd=tmp_path)
