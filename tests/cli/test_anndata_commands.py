"""Training on AnnData of others and predicting on more: names, no labels, rows in order of labels."""

from __future__ import annotations

import json
import warnings
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
    """A run over 600 cells, and queries of the other 300."""
    path = tmp_path_factory.mktemp("cells")
    adata, rng = cells(), np.random.default_rng(1)
    query = adata[600:].copy()
    adata[:600].copy().write_h5ad(path / "train.h5ad")
    query.write_h5ad(path / "query.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata tells what it will change
        query[:, rng.permutation(D)].copy().write_zarr(path / "reordered.zarr")
    bare = query[:, ::-1].copy()
    bare.obs = bare.obs[[]]
    bare.write_h5ad(path / "unlabelled.h5ad")
    names = query.var_names.to_numpy(dtype=object)
    names[:20] = [f"other{j}" for j in range(20)]
    query.var_names = names
    query.write_h5ad(path / "others.h5ad")
    (path / "text").write_text("T0 1:1 60:1\nT1 2:1\n")
    succeeds("fit", "train.h5ad", *LABEL, "--out", "run", "--C", 0.01, cwd=path)
    return path


def evaluated(folder: Path, data: str) -> float:
    return json.loads(succeeds("evaluate", "run", data, *LABEL, "--json", cwd=folder))["accuracy"]


def test_genes_in_another_order_are_matched_by_name(folder: Path) -> None:
    model, query = load_model(folder / "run"), cells()[600:]
    best = model.classes_[(query.X @ model.coef_.T).argmax(axis=1)]
    expected = (best == query.obs["type"]).mean()
    assert expected > 0.8
    for data in ("query.h5ad", "reordered.zarr"):
        assert evaluated(folder, data) == pytest.approx(expected)
        for memory in ("256M", "40M"):
            printed = succeeds("predict", "run", data, "--memory", memory, cwd=folder)
            assert printed.splitlines() == best.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reordered = anndata.read_zarr(folder / "reordered.zarr")
    assert model.predict(reordered).tolist() == best.tolist()


def test_a_query_needs_no_labels_to_be_predicted(folder: Path) -> None:
    scores = succeeds("predict", "run", "query.h5ad", "--scores", cwd=folder)
    for options in ((), LABEL):
        assert succeeds("predict", "run", "unlabelled.h5ad", "--scores", *options, cwd=folder) == scores
    assert "name its label column" in fails(1, "evaluate", "run", "unlabelled.h5ad", cwd=folder)


def aligned_accuracy(folder: Path, names: list[str]) -> float:
    """What plain NumPy predicts of the queries if their genes have these names."""
    model, query = load_model(folder / "run"), cells()[600:]
    X = np.zeros((query.n_obs, D))
    for j, name in enumerate(names):
        if name in model.feature_names_in_:
            X[:, list(model.feature_names_in_).index(name)] = query.X[:, j].toarray().ravel()
    return float((model.classes_[(X @ model.coef_.T).argmax(axis=1)] == query.obs["type"]).mean())


def test_other_genes_are_counted_and_left_out(folder: Path, tmp_path: Path) -> None:
    names = [f"other{j}" for j in range(20)] + [f"ENSG{j}" for j in range(20, D)]
    code, out, err = streamsvm("evaluate", "run", "others.h5ad", *LABEL, "--json", cwd=folder)
    assert (code, err.count("\n")) == (0, 1)
    assert "others.h5ad: 40 of the 60 features of the model found by name; 20 are missing" in err
    assert "20 are unknown to it and left out ('other0', 'other1', 'other2', ...)" in err
    assert json.loads(out)["accuracy"] == pytest.approx(aligned_accuracy(folder, names))
    assert "give data of the kind that it was trained on" in fails(1, "predict", "run", "text", cwd=folder)


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
