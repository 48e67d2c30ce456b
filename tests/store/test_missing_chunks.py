"""Missing chunks: an error, except in dense matrices, of which zarr leaves out zeros."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from anndata.experimental import write_dispatched

from streamsvm.errors import StoreError, StreamsvmWarning
from streamsvm.info import inspect
from streamsvm.store import open_store

N, D, CHUNK = 400, 20, 50
LABELS = np.sort(np.random.default_rng(1).permutation(np.repeat([0, 1, 2], [130, 145, 125])))
KINDS = ("v2", "v3", "shards")  # a shard has two chunks


def make() -> anndata.AnnData:
    """Rows of three types, sorted by type; each has several values, none of them 0."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 1, (N, D)) * (rng.uniform(size=(N, D)) < 0.4)
    X[np.arange(N), LABELS] = 2
    X[:, -1] = 1
    types = pd.Categorical(np.array(["a", "b", "c"])[LABELS])
    obs = pd.DataFrame({"type": types}, index=[f"c{i}" for i in range(N)])
    var = pd.DataFrame(index=[f"g{j}" for j in range(D)])
    return anndata.AnnData(sp.csr_matrix(X.astype("f4")), obs=obs, var=var, layers={"dense": X.astype("f4")})


def write(path: Path, kind: str) -> None:
    """Write the rows in chunks, including chunks of zeros."""
    version = 2 if kind == "v2" else 3

    def in_chunks(write_func: Any, group: Any, key: str, elem: Any, dataset_kwargs: Any, iospec: Any) -> None:
        options = dict(dataset_kwargs)
        chunked = iospec.encoding_type in ("csr_matrix", "array", "categorical", "string-array")
        if chunked and key != "obs/type/categories":
            dense = getattr(elem, "ndim", 1) == 2 and iospec.encoding_type == "array"
            options["chunks"] = (CHUNK, 8) if dense else (CHUNK,)
            is_sharded = kind == "shards"  # newer anndata would choose shards by itself
            options["shards"] = tuple(2 * size for size in options["chunks"]) if is_sharded else None
        write_func(group, key, elem, dataset_kwargs=options)

    with (
        warnings.catch_warnings(action="ignore"),
        anndata.settings.override(zarr_write_format=version),
        zarr.config.set({"array.write_empty_chunks": True}),
    ):
        group = zarr.open_group(path, mode="w", zarr_format=version)
        write_dispatched(group, "/", make(), callback=in_chunks)
        zarr.consolidate_metadata(group.store)


def chunk(kind: str, array: str, *place: int) -> str:
    """The name of the file of a chunk, or of a shard."""
    names = list(map(str, place))
    return f"{array}/{'.'.join(names)}" if kind == "v2" else f"{array}/c/{'/'.join(names)}"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for kind in KINDS:
        write(folder / f"{kind}.zarr", kind)
    return folder


@pytest.fixture(params=KINDS)
def copied(request: pytest.FixtureRequest, written: Path, tmp_path: Path) -> tuple[Path, str]:
    return Path(shutil.copytree(written / f"{request.param}.zarr", tmp_path / "a.zarr")), request.param


def read(path: Path, **options: str) -> list[str]:
    """Open a store and read all rows; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StreamsvmWarning)
        with open_store(path, **{"label": "type"} | options) as store:
            store.fingerprint  # noqa: B018 reads all row pointers and labels
            np.testing.assert_array_equal(store.rows(0, N).labels, store.labels(0, N))
            store.feature_names()
            store.rows(0, N)
    return [str(each.message) for each in caught if issubclass(each.category, StreamsvmWarning)]


def test_a_lost_chunk_of_a_sparse_matrix_of_labels_or_of_names_is_an_error(copied: tuple[Path, str]) -> None:
    path, kind = copied
    assert read(path) == []
    names = "var/_index/values" if (path / "var/_index/values").exists() else "var/_index"  # of newer anndata
    for array in ("X/data", "X/indices", "X/indptr", "obs/type/codes", "obs/type/categories", names):
        files = sorted((path / chunk(kind, array, 0)).parent.glob("[0-9]*"), key=lambda file: int(file.name))
        for file in {files[0], files[-1]}:
            file.rename(path / "aside")
            number = int(file.name) * (2 if kind == "shards" and array != "obs/type/categories" else 1)
            expected = rf"array {array}, chunk {number}: the chunk is missing; copy the whole store again, or"
            with pytest.raises(StoreError, match=expected):
                read(path)
            if array != names:  # they are only described
                with pytest.raises(StoreError, match=expected):
                    inspect(path, verify=True)
            (path / "aside").rename(file)


def test_lost_chunks_of_a_dense_matrix_are_one_warning(copied: tuple[Path, str]) -> None:
    path, kind = copied
    assert read(path, layer="dense") == []
    for row in 1, 3:
        (path / chunk(kind, "layers/dense", row, 1)).unlink()
    [line] = read(path, layer="dense")
    assert "array layers/dense lacks chunks, which are read as zeros; copy" in line
    expected = make().layers["dense"]
    size = CHUNK * (2 if kind == "shards" else 1), 8 * (2 if kind == "shards" else 1)
    for row in 1, 3:
        expected[row * size[0] : (row + 1) * size[0], size[1] : 2 * size[1]] = 0
    warned = pytest.warns(StreamsvmWarning, match="lacks chunks")
    with warned, open_store(path, label="type", layer="dense") as store:
        rows = store.rows(0, N)
    found = np.zeros_like(expected)
    found[np.repeat(np.arange(N), np.diff(rows.indptr)), rows.indices] = rows.data
    np.testing.assert_array_equal(found, expected)


def test_what_was_not_all_there_is_not_called_verified(written: Path, tmp_path: Path) -> None:
    assert inspect(written / "v3.zarr", verify=True)["verified"] is True
    shutil.copytree(written / "v3.zarr", tmp_path / "a.zarr")
    shutil.rmtree(tmp_path / "a.zarr/X")
    (tmp_path / "a.zarr/layers/dense").rename(tmp_path / "a.zarr/X")
    (tmp_path / "a.zarr" / chunk("v3", "X", 1, 1)).unlink()
    with pytest.warns(StreamsvmWarning, match="lacks chunks"):
        found = inspect(tmp_path / "a.zarr", verify=True, label="type")
    assert found["verified"] == "only the chunks that are there"


@pytest.mark.parametrize("filters", [{}, {"compression": "gzip"}])
def test_a_chunk_of_hdf5_that_was_never_written_is_an_error(tmp_path: Path, filters: dict[str, str]) -> None:
    for array in ("X/data", "X/indices", "X/indptr", "obs/type/codes"):
        path = tmp_path / "a.h5ad"
        make().write_h5ad(path)
        with h5py.File(path, "r+") as file:
            values, attributes = file[array][:], dict(file[array].attrs)
            del file[array]
            made = file.create_dataset(array, values.shape, values.dtype, chunks=(CHUNK,), **filters)
            made.attrs.update(attributes)
            made[:CHUNK], made[2 * CHUNK :] = values[:CHUNK], values[2 * CHUNK :]
        with pytest.raises(StoreError, match=f"array {array}, chunk 1: the chunk is missing"):
            read(path)
