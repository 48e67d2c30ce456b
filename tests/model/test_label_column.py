"""A model knows in which column its labels were: evaluating new data needs no name of it."""

from __future__ import annotations

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from streamsvm_converters import convert

import streamsvm
from streamsvm.errors import InputError, StoreError

N = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training and test data as AnnData and as tables, and a run and a store of each; some have no label."""
    folder = tmp_path_factory.mktemp("label")
    rng = np.random.default_rng(0)
    for name in ("atlas", "query"):
        y = rng.integers(0, 3, N)
        X = rng.poisson(1, (N, 6)).astype(np.float32)
        X[np.arange(N), y] += 3
        types = np.array(["B", "NK", "T"], dtype=object)[y]
        types[:7] = None
        genes = [f"g{i}" for i in range(6)]
        obs = pd.DataFrame({"donor": "d", "type": types}, index=[f"c{i}" for i in range(N)])
        adata = anndata.AnnData(sp.csr_matrix(X), obs=obs, var=pd.DataFrame(index=genes))
        adata.write_h5ad(folder / f"{name}.h5ad")
        pd.DataFrame(X, columns=genes).assign(topic=types, donor="d").to_csv(
            folder / f"{name}.csv", index=False
        )
    convert([folder / "atlas.h5ad"], folder / "atlas.zarr", label="type")
    convert([folder / "atlas.csv"], folder / "topics.zarr", label="topic", drop=["donor"])
    settings = {"passes": 2, "C": 0.1, "memory": "100M", "transform": "none"}
    streamsvm.fit(folder / "atlas.h5ad", out=folder / "cells", label="type", **settings)
    streamsvm.fit(folder / "atlas.zarr", out=folder / "converted", **settings)
    streamsvm.fit(folder / "topics.zarr", out=folder / "topics", **settings)
    atlas = anndata.read_h5ad(folder / "atlas.h5ad")
    atlas = atlas[atlas.obs["type"].notna()].copy()
    streamsvm.fit(atlas, label="type", passes=1, C=0.1, transform="none").save(folder / "matrix")
    return folder


def share_right(run: Path, adata: anndata.AnnData) -> float:
    """The accuracy, from the coefficients alone."""
    model = streamsvm.load_model(run)
    adata = adata[adata.obs["type"].notna()]
    best = (adata.X @ model.weights()).argmax(axis=1)
    return float(np.mean(np.asarray(model.classes_)[best] == adata.obs["type"]))


@pytest.mark.parametrize("run", ["cells", "converted", "matrix"])
def test_anndata_is_evaluated_without_a_label(folder: Path, run: str) -> None:
    query = anndata.read_h5ad(folder / "query.h5ad")
    right = pytest.approx(share_right(folder / run, query))
    labelled = query[query.obs["type"].notna()].copy()
    for data in (folder / "query.h5ad", labelled):
        assert streamsvm.evaluate(folder / run, data).accuracy == right
    assert streamsvm.evaluate(folder / run, folder / "query.h5ad").unlabelled == 7
    assert streamsvm.calibrate(streamsvm.load_model(folder / run), folder / "query.h5ad").rows == N - 7
    # A store that was converted has its own column, and a name that is given counts.
    report = convert([folder / "query.h5ad"], folder / "query.zarr", like=folder / run, force=True)
    assert (report.n, report.unlabelled) == (N - 7, 7)
    assert streamsvm.evaluate(folder / run, folder / "query.zarr").accuracy == right
    query.obs = query.obs.rename(columns={"type": "kind"})
    query.write_h5ad(folder / "other.h5ad")
    assert streamsvm.evaluate(folder / run, folder / "other.h5ad", label="kind").accuracy == right
    for data, options, error, words in (
        (folder / "query.h5ad", {"label": "donor"}, StoreError, "none of the model's classes"),
        (folder / "other.h5ad", {}, StoreError, r"obsm has an entry 'type'; .*are .*kind.*label"),
        (query, {}, InputError, "obs has no column 'type'"),
    ):
        with pytest.raises(error, match=words):
            streamsvm.evaluate(folder / run, data, **options)


def test_tables_are_evaluated_without_a_label(folder: Path) -> None:
    found = streamsvm.evaluate(folder / "topics", folder / "query.csv")
    assert found == streamsvm.evaluate(folder / "topics", folder / "query.csv", label="topic")
    right = share_right(folder / "topics", anndata.read_h5ad(folder / "query.h5ad"))
    assert (found.accuracy, found.unlabelled) == (pytest.approx(right), 7)
    report = convert([folder / "query.csv"], folder / "topics-2.zarr", like=folder / "topics", force=True)
    assert (report.n, report.unlabelled) == (N - 7, 7)
    assert len(streamsvm.predict(folder / "topics", folder / "query.csv").labels) == N
