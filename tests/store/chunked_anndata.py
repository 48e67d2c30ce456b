"""AnnData of rows sorted by their label, written by anndata as Zarr in chunks of a chosen length."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr
from anndata.experimental import write_dispatched

N, D, CHUNK = 400, 20, 50
LABELS = np.sort(np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [130, 145, 125])))


def make() -> anndata.AnnData:
    """Rows of three types; each has several values, none of them 0."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 1, (N, D)) * (rng.uniform(size=(N, D)) < 0.4)
    X[np.arange(N), LABELS] = 2
    X[:, -1] = 1
    obs = pd.DataFrame(
        {"type": pd.Categorical(np.array(["a", "b", "c"])[LABELS])}, index=[f"c{i}" for i in range(N)]
    )
    var = pd.DataFrame(index=[f"g{j}" for j in range(D)])
    adata = anndata.AnnData(sp.csr_matrix(X.astype(np.float32)), obs=obs, var=var)
    adata.layers["dense"] = X.astype(np.float32)
    return adata


def write(path: Path, kind: str = "v3", *, chunk: int = CHUNK, empty_chunks: bool = False) -> Path:
    """Write it in chunks: `kind` is "v2", "v3" or "shards" (of two chunks)."""
    version = 2 if kind == "v2" else 3

    def in_chunks(write_func: Any, group: Any, key: str, elem: Any, dataset_kwargs: Any, iospec: Any) -> None:
        dense = getattr(elem, "ndim", 1) == 2
        chunked = iospec.encoding_type in ("csr_matrix", "array", "categorical", "string-array")
        options = dict(dataset_kwargs)
        if chunked and key != "obs/type/categories":
            options["chunks"] = (chunk, 8) if dense and iospec.encoding_type == "array" else (chunk,)
            if kind == "shards":
                options["shards"] = tuple(2 * size for size in options["chunks"])
        write_func(group, key, elem, dataset_kwargs=options)

    with (
        warnings.catch_warnings(),
        anndata.settings.override(zarr_write_format=version),
        zarr.config.set({"array.write_empty_chunks": empty_chunks}),
    ):
        warnings.simplefilter("ignore")
        group = zarr.open_group(path, mode="w", zarr_format=version)
        write_dispatched(group, "/", make(), callback=in_chunks)
        zarr.consolidate_metadata(group.store)
    return path


def chunk(kind: str, array: str, *place: int) -> str:
    """The name of the file of a chunk, or of a shard."""
    return (
        f"{array}/{'.'.join(map(str, place))}" if kind == "v2" else f"{array}/c/{'/'.join(map(str, place))}"
    )
