"""Stores at addresses of fsspec (here in its memory) read as on the disk, in ranges or in chunks."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from run_files import model_bytes
from store_problems import make_dense_problem

from streamsvm import fit, load_model, predict, resume
from streamsvm.errors import StoreError
from streamsvm.info import inspect
from streamsvm.store import open_store

fsspec = pytest.importorskip("fsspec")
N, D = 400, 30


@pytest.fixture(scope="module", params=["h5ad", "gzip.h5ad", "v2.zarr", "v3.zarr"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    """A file of AnnData, and the address of its copy."""
    path = tmp_path_factory.mktemp("cells") / f"a.{request.param}"
    write(path)
    memory = fsspec.filesystem("memory")
    memory.put(str(path), f"/{path.name}", recursive=True)
    yield path, f"memory://{path.name}"
    memory.rm(f"/{path.name}", recursive=True)


def write(path: Path) -> None:
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.3, format="csr", random_state=rng, dtype=np.float32)
    types = pd.Categorical(np.where(X @ np.arange(D) > 70, "a", "b"))
    obs = pd.DataFrame({"type": types}, index=[f"c{i}" for i in range(N)])
    adata = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=[f"g{j}" for j in range(D)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.suffix == ".h5ad":
            adata.write_h5ad(path, compression="gzip" if "gzip" in path.name else None)
        else:
            with anndata.settings.override(zarr_write_format=int(path.name[3])):
                adata.write_zarr(path)


def test_an_address_reads_as_its_file_does(both: tuple[Path, str]) -> None:
    path, url = both
    with open_store(path, label="type") as local, open_store(url, label="type") as remote:
        assert remote.fingerprint == local.fingerprint
        assert str(remote.path) == url
        for found, expected in zip(remote.rows(3, 390), local.rows(3, 390), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert remote.names(5, 9).tolist() == local.names(5, 9).tolist()
        assert remote.feature_names() == local.feature_names()


def test_what_is_at_an_address_is_described_as_its_file_is(both: tuple[Path, str]) -> None:
    path, url = both
    for label in None, "type":
        assert inspect(url, label=label) == inspect(path, label=label)


def test_the_slashes_of_a_file_s_address_may_be_merged(both: tuple[Path, str]) -> None:
    path, _ = both
    for address in path.as_uri(), Path(path.as_uri()):
        with open_store(address, label="type") as store:
            assert store.n_rows == N
            assert str(store.path) == path.as_uri()


def test_the_query_of_an_address_is_not_of_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write(path)
    url = "memory://folder/a.h5ad?token=a.b/c"
    memory = fsspec.filesystem("memory")
    memory.pipe_file(url, path.read_bytes())
    with open_store(url, label="type") as store, open_store(path, label="type") as local:
        assert store.fingerprint == local.fingerprint
    assert inspect(url) == inspect(path)
    memory.rm(url)
    with pytest.raises(StoreError, match=r"a\.csv"):
        open_store("memory://folder/a.csv?name=a.h5ad", label="type")


def test_the_file_at_an_address_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []
    real = fsspec.AbstractFileSystem.open
    monkeypatch.setattr(
        fsspec.AbstractFileSystem,
        "open",
        lambda *args, **more: files.append(real(*args, **more)) or files[-1],
    )
    path = tmp_path / "a.h5ad"
    write(path)
    with open_store(path.as_uri(), label="type"):
        assert [file.closed for file in files] == [False]
    with pytest.raises(StoreError):
        open_store(path.as_uri(), label="absent")
    path.write_bytes(b"no HDF5")
    with pytest.raises(StoreError):
        open_store(path.as_uri(), label="type")
    assert [file.closed for file in files] == [True] * 3


def test_a_run_on_an_address_resumes_and_gives_the_same_model(both: tuple[Path, str], tmp_path: Path) -> None:
    path, url = both
    options = {"label": "type", "passes": 2, "block_rows": 90}
    fit(path, out=tmp_path / "local", **options)
    fit(
        Path(url), out=tmp_path / "remote", **options | {"passes": 1, "keep_duals": True}
    )  # merges the slashes
    resume(tmp_path / "remote", passes=2)
    for name in ("local", "remote"):
        coef = np.fromfile(tmp_path / name / "model/coef.npy", np.uint8)
        np.testing.assert_array_equal(coef, np.fromfile(tmp_path / "local/model/coef.npy", np.uint8))


@pytest.mark.parametrize("name", ["absent.h5ad", "absent.zarr"])
def test_an_address_without_a_store_is_one_line(name: str) -> None:
    with pytest.raises(StoreError, match=rf"memory://{name}: .*") as raised:
        open_store(f"memory://{name}", label="type")
    assert "\n" not in str(raised.value)
    with pytest.raises(StoreError, match="streamsvm\\[remote\\]"):
        open_store(f"nosuch://{name}", label="type")


# -- stores that streamsvm wrote -------------------------------------------------------------------


@pytest.fixture(params=["zarr", "h5", "dense.zarr", "dense.h5"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A store that streamsvm wrote, of several chunks, and the address of its copy."""
    path = tmp_path / f"a.{request.param}"
    if "dense" in request.param:
        problem = make_dense_problem(300, 14, "f2")
        problem.write(path, dtype="f2", chunk_nnz=64, meta={"shuffle_seed": 0})
    else:
        make_store(path, *make_problem(300, 14, 4))
    memory = fsspec.filesystem("memory")
    memory.put(str(path), f"/{path.name}", recursive=True)
    yield path, f"memory://{path.name}"
    memory.rm(f"/{path.name}", recursive=True)


def test_a_store_at_an_address_reads_as_its_file_does(written: tuple[Path, str]) -> None:
    path, url = written
    assert {**inspect(url), "path": ""} == {**inspect(path), "path": ""}
    with open_store(path) as local, open_store(url) as remote:
        assert remote.fingerprint == local.fingerprint
        for found, expected in zip(remote.rows(3, 290), local.rows(3, 290), strict=True):
            np.testing.assert_array_equal(found, expected)
        several = np.array([(200, 260), (0, 7), (7, 80)])
        for found, expected in zip(remote.read(several), local.read(several), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert remote.names(5, 99).tolist() == local.names(5, 99).tolist()
        remote.verify()


def test_runs_on_stores_at_addresses(written: tuple[Path, str], tmp_path: Path) -> None:
    """To train on, to validate and to calibrate with, and to predict."""
    path, url = written
    valid = tmp_path / "v.zarr"
    if "dense" in path.name:
        make_dense_problem(60, 14).write(valid, meta={"shuffle_seed": 0})
    else:
        make_store(valid, *make_problem(60, 14, 4, seed=1))
    options = {"passes": 2, "block_rows": 90, "keep_duals": True}
    local = fit(path, out=tmp_path / "local", valid=path, **options)
    remote = fit(url, out=tmp_path / "remote", valid=Path(url), **options)
    assert model_bytes(tmp_path / "remote") == model_bytes(tmp_path / "local")
    assert [each["valid_accuracy"] for each in remote.history] == [
        each["valid_accuracy"] for each in local.history
    ]
    assert resume(tmp_path / "remote", passes=3).dual == resume(tmp_path / "local", passes=3).dual
    for name, each in (("calibrated", url), ("other", path)):
        fit(valid, out=tmp_path / name, calibrate=each)
    found = load_model(tmp_path / "calibrated").temperature
    assert found == load_model(tmp_path / "other").temperature
    labels = predict(tmp_path / "local", url).labels
    np.testing.assert_array_equal(labels, predict(tmp_path / "local", path).labels)


@pytest.mark.parametrize("written", ["dense.zarr"], indirect=True)
@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("X/c.2.0", "flip", "array X, chunk 2: "),
        ("X/c.2.0", "delete", "array X, chunk 2: the chunk is missing"),
        ("X/c.2.0", "another", "array X, chunk 2: .*not the one that was written here"),
        ("X/crc32c", "delete", "the checksums of the chunks are missing"),
    ],
)
def test_damage_of_a_dense_store_at_an_address_is_found(
    written: tuple[Path, str], file: str, change: str, problem: str
) -> None:
    test_damage_at_an_address_is_found(written, file, change, problem)


@pytest.mark.parametrize("written", ["zarr"], indirect=True)
@pytest.mark.parametrize(
    ("file", "change", "problem"),
    [
        ("X/data/c/2", "flip", "array X/data, chunk 2: "),
        ("X/data/c/2", "delete", "array X/data, chunk 2: the chunk is missing"),
        ("X/indices/c/1", "another", "array X/indices, chunk 1: .*not the one that was written here"),
        ("obs/_index/c/0", "delete", "array obs/_index, chunk 0: the chunk is missing"),
        ("X/data/crc32c", "delete", "the checksums of the chunks are missing"),
        ("X/data/crc32c", "flip", "not the checksums that the store's record names"),
        ("X/data/zarr.json", "another", "X/data has other metadata than the store recorded"),
    ],
)
def test_damage_at_an_address_is_found(
    written: tuple[Path, str], file: str, change: str, problem: str
) -> None:
    path, url = written
    memory, place = fsspec.filesystem("memory"), f"/{path.name}/{file}"
    content = bytearray(memory.cat_file(place))
    memory.rm(place)
    if change == "flip":
        content[0] ^= 1
    elif change == "another":
        other = place.replace("X/data", "X/indices").replace("c/1", "c/0").replace("c.2", "c.1")
        content = bytearray(memory.cat_file(other))
    if change != "delete":
        memory.pipe_file(place, bytes(content))
    with pytest.raises(StoreError, match=problem):
        read_all(url)


def read_all(url: str) -> None:
    with open_store(url) as store:
        store.rows(0, store.n_rows)
        store.names(0, store.n_rows)
