"""Stores and AnnData in a bucket of S3, served by moto on loopback."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chunked_anndata import LABELS, N, make, write
from helpers import make_store
from run_files import model_bytes

from streamsvm import fit
from streamsvm.errors import StoreError
from streamsvm.info import inspect
from streamsvm.store import open_store

s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder whose files are in ``s3://bucket``."""
    folder, adata = tmp_path_factory.mktemp("bucket"), make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(folder / "cells.h5ad")
    for kind in ("v2", "shards"):
        write(folder / f"{kind}.zarr", kind, chunk=100)
    for name in ("native.zarr", "native.h5"):
        make_store(folder / name, adata.X, LABELS, dtype="float32", chunk_nnz=1024)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        host, port = server.get_host_and_port()
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        files = s3fs.S3FileSystem()
        files.mkdir("bucket")
        for path in folder.iterdir():
            files.put(str(path), f"bucket/{path.name}", recursive=True)
        yield folder
    server.stop()


@pytest.mark.filterwarnings("ignore:.*rows are 'a'")
@pytest.mark.parametrize("name", ["cells.h5ad", "v2.zarr", "shards.zarr", "native.zarr", "native.h5"])
def test_a_bucket_reads_as_its_files_do(bucket: Path, name: str, tmp_path: Path) -> None:
    url, options = f"s3://bucket/{name}", {"label": None if "native" in name else "type"}
    assert {**inspect(url, **options), "path": ""} == {**inspect(bucket / name, **options), "path": ""}
    with open_store(url, **options) as store:
        np.testing.assert_array_equal(store.rows(0, N).data, make().X.data)
    fit(url, out=tmp_path / "remote", passes=2, **options)
    fit(bucket / name, out=tmp_path / "local", passes=2, **options)
    assert model_bytes(tmp_path / "remote") == model_bytes(tmp_path / "local")


def test_what_is_not_there_is_one_line(bucket: Path) -> None:
    for name in ("absent.h5ad", "absent.zarr"):
        with pytest.raises(StoreError, match=rf"s3://bucket/{name}: nothing is there") as raised:
            open_store(f"s3://bucket/{name}", label="type")
        assert "\n" not in str(raised.value)


@pytest.mark.filterwarnings("ignore:.*rows are 'a'")
def test_a_chunk_that_is_not_there_is_named(bucket: Path) -> None:
    files = s3fs.S3FileSystem()
    files.rm("bucket/v2.zarr/X/data/3")
    with pytest.raises(StoreError, match=r"array X/data, chunk 3: the chunk is missing"):
        inspect("s3://bucket/v2.zarr", verify=True)
    files.put(str(bucket / "v2.zarr/X/data/3"), "bucket/v2.zarr/X/data/3")


@pytest.mark.parametrize("name", ["cells.h5ad", "v2.zarr"])
def test_credentials_that_are_missing_are_named(
    bucket: Path, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(s3fs.S3FileSystem, "cachable", False)
    with pytest.raises(StoreError, match="Unable to locate credentials; set AWS_PROFILE, or") as raised:
        open_store(f"s3://bucket/{name}", label="type")
    assert "later" not in str(raised.value)
