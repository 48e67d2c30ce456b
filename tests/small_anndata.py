"""AnnData with rows of two classes, as files and folders."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import scipy.sparse as sp


def write_anndata(path: Path, X: sp.csr_array, *, dense: bool = False) -> Path:
    """Write rows of two classes, named in the column `type`, as the package anndata writes them."""
    n, d = X.shape
    obs = pd.DataFrame({"type": pd.Categorical(np.where(np.arange(n) % 3, "a", "b"))})
    obs.index = pd.Index([f"c{i}" for i in range(n)])
    matrix = X.toarray() if dense else sp.csr_matrix(X)
    adata = anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(d)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata advises against format 2 of Zarr
        if path.suffix == ".h5ad":
            adata.write_h5ad(path, compression="gzip" if "gzip" in path.name else None)
        else:
            adata.write_zarr(path)
    return path
