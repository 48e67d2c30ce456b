"""The names of the rows of AnnData, of each kind that anndata writes."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from streamsvm import open_store
from streamsvm.errors import StoreError

TEXT = ["b", "a", "é\n", "c d"]
INDEXES = {
    "text": pd.Index(TEXT),
    "numbers": pd.Index([7, -3, 2**40, 0]),
    "categorical": pd.CategoricalIndex(["x", "y", "x", "z"], name="cell"),
    "nullable": pd.Index(TEXT, dtype="string"),
}


def write(path: Path, index: pd.Index) -> None:
    cells = anndata.AnnData(sp.csr_matrix(np.eye(4, dtype=np.float32)))
    cells.obs.index = index
    with warnings.catch_warnings(), anndata.settings.override(allow_write_nullable_strings=True):
        warnings.simplefilter("ignore")
        cells.write_h5ad(path) if path.suffix == ".h5ad" else cells.write_zarr(path)


@pytest.mark.parametrize("suffix", ["h5ad", "zarr"])
@pytest.mark.parametrize("kind", INDEXES)
def test_every_kind_of_index_is_read(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write(path, INDEXES[kind])
    with open_store(path, labelled=False) as store:
        names = store.names(0, 4)
        expected = [str(name) for name in INDEXES[kind]]
        assert names.tolist() == expected
        assert store.names(1, 3).tolist() == expected[1:3]
        assert len(store.names(2, 2)) == 0


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write(path, INDEXES["categorical"])
    with h5py.File(path, "r+") as file:
        file["obs/cell/codes"][2] = 3
    with open_store(path, labelled=False) as store, pytest.raises(StoreError, match="code 3 is out of range"):
        store.names(0, 4)
    with h5py.File(path, "r+") as file:
        del file["obs/cell/codes"]
        file["obs/cell/codes"] = np.zeros(5, np.int8)
    with open_store(path, labelled=False) as store, pytest.raises(StoreError, match="5 elements, expected 4"):
        store.names(0, 4)
