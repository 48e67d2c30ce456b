"""Addresses: what is there is copied once, and the copy is read as any other file."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import make_problem, make_store
from run_files import model_bytes
from streamsvm_converters import convert

import streamsvm
from streamsvm.base import durable
from streamsvm.errors import Interrupted, RunError, SettingsError, StoreError
from streamsvm.store import addresses
from streamsvm.store.addresses import copy_address

fsspec = pytest.importorskip("fsspec")
MEMORY = fsspec.filesystem("memory")


def in_memory(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        MEMORY.rm(f"/{path.name}", recursive=True)
    MEMORY.put(str(path), f"/{path.name}", recursive=True)
    return f"memory://{path.name}"


@contextlib.contextmanager
def in_a_bucket(path: Path) -> Iterator[str]:
    s3fs, moto = pytest.importorskip("s3fs"), pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        s3fs.S3FileSystem.clear_instance_cache()  # of the server before
        files = s3fs.S3FileSystem()
        bucket = path.parent.name.replace("_", "-")
        files.mkdir(bucket)
        files.put(str(path), f"{bucket}/{path.name}", recursive=True)
        files.call_s3("put_object", Bucket=bucket, Key=f"{path.name}/")  # as the console marks folders
        yield f"s3://{bucket}/{path.name}"
    server.stop()


@contextlib.contextmanager
def on_the_web(path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=path.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{path.name}?token=a/b.csv"
        server.shutdown()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(120, 14, 4))


@pytest.fixture
def url(store: Path) -> str:
    return in_memory(store)


def files_of(path: Path, found: Callable[[Path], Any] = Path.read_bytes) -> dict[str, Any]:
    """The content of each file, or something else of it."""
    return {str(each.relative_to(path)): found(each) for each in [path, *path.rglob("*")] if each.is_file()}


def refused(patch: pytest.MonkeyPatch, name: str, value: Any, url: str, cache: Path) -> str:
    """The line of the error of a copy while a function of fsspec's memory is another one."""
    patch.setattr(type(MEMORY), name, value)
    with pytest.raises(StoreError) as raised:
        copy_address(url, cache)
    return str(raised.value)


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("put", "suffix"),
    [(in_memory, "zarr"), (in_memory, "h5"), (in_a_bucket, "zarr"), (in_a_bucket, "h5"), (on_the_web, "h5")],
)
def test_a_copy_has_the_bytes_at_its_address_and_is_made_once(put: Any, suffix: str, tmp_path: Path) -> None:
    path = make_store(tmp_path / f"b.{suffix}", *make_problem(60, 14, 4))
    with contextlib.ExitStack() as stack:
        found = put(path)
        url = found if isinstance(found, str) else stack.enter_context(found)
        copy = Path(copy_address(url, tmp_path / "cache"))
        assert copy.name == path.name
        assert files_of(copy) == files_of(path)
        before = files_of(tmp_path / "cache", durable.file_identity)
        assert copy_address(url, tmp_path / "cache") == str(copy)
        assert files_of(tmp_path / "cache", durable.file_identity) == before


def test_a_copy_of_unknown_version_serves_the_process_that_made_it(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_VERSIONS", ())
    copy = copy_address(url, tmp_path)
    assert copy_address(url, tmp_path) == copy
    monkeypatch.setattr(addresses, "_PROCESS", "another")
    assert copy_address(url, tmp_path) != copy


def test_an_interrupted_copy_goes_on(
    store: Path, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_BATCH", 5)

    def stop(stage: str, done: int, total: int | None) -> None:
        if done > sum(map(len, files_of(store).values())) / 2:
            raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        copy_address(url, tmp_path, stop)
    begun = files_of(tmp_path, durable.file_identity)
    assert 0 < len(begun) < len(files_of(store))
    assert files_of(Path(copy_address(url, tmp_path))) == files_of(store)
    assert files_of(tmp_path, durable.file_identity).items() > begun.items()
    assert list(tmp_path.glob(".*")) == []


def test_nothing_is_kept_of_a_file_with_another_length_or_without_room(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(self: Any, path: str, to: str, **more: Any) -> None:
        Path(to).write_bytes(self.cat(path)[:-1])

    with monkeypatch.context() as patch:
        assert "bytes; try again" in refused(patch, "get_file", cut, url, tmp_path)
        patch.setattr(durable, "free_bytes", lambda path: 1000)
        said = refused(patch, "get_file", cut, url, tmp_path)
        assert f"KiB, but the disk of {tmp_path} has 1 KiB free; choose another folder with cache=..." in said
    assert files_of(tmp_path) == {}


def test_a_copy_writes_nowhere_else(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(copy_address(url, tmp_path / "cache"))
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(copy / "obs")
    (copy / "obs").symlink_to(tmp_path / "elsewhere")
    listings = [{f"/a.zarr/{name}": {"size": 1}} for name in ("../../x", "/x")]
    for listed in (MEMORY.find("/a.zarr", detail=True), *listings):
        find = lambda *args, listed=listed, **more: listed  # noqa: E731
        said = refused(monkeypatch, "find", find, url, tmp_path / "cache")
        assert "would be copied outside" in said
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "needs", "said"),
    [
        ("memory://absent.zarr", "fsspec", "the address does not exist"),
        ("memory://absent.h5ad", "fsspec", "the address does not exist"),
        ("nosuch://a.zarr", "fsspec", r"streamsvm\[remote\]"),
        ("http://127.0.0.1:9/a.zarr", "aiohttp", "web servers do not list folders"),
        ("http://127.0.0.1:9/a.h5ad", "aiohttp", "[Cc]onnect.*; check the address"),
    ],
)
def test_what_cannot_be_copied_is_one_line(url: str, needs: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    with pytest.raises(StoreError, match=f"^{url}: .*{said}.*$") as raised:
        copy_address(url, tmp_path / "cache")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "cache").exists()


# -- runs, and others that read --------------------------------------------------------------------


def test_a_run_resumes_with_an_empty_cache_but_not_with_changed_content(
    store: Path, url: str, tmp_path: Path
) -> None:
    valid = make_store(tmp_path / "v.zarr", *make_problem(60, 14, 4, seed=1))
    options = {"passes": 1, "keep_duals": True}
    streamsvm.fit(store, out=tmp_path / "local", valid=valid, **options)
    valid_url = in_memory(valid)
    for again in (False, True):
        streamsvm.fit(url, out=tmp_path / "run", valid=valid_url, resume_or_start=again, **options)
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert [record["store"]["path"], record["settings"]["valid"]] == [[url], valid_url]
    run = shutil.move(tmp_path / "run", tmp_path / "moved")
    shutil.rmtree(run / "cache")
    streamsvm.resume(run, passes=2)
    assert {path.name for path in (run / "cache").glob("*/*")} == {"a.zarr", "v.zarr"}
    found = streamsvm.resume(run, passes=3, cache=tmp_path / "cache")
    assert {path.name for path in (tmp_path / "cache").glob("*/*")} == {"a.zarr", "v.zarr"}
    local = streamsvm.resume(tmp_path / "local", passes=3)
    assert model_bytes(run) == model_bytes(tmp_path / "local")
    assert found.valid_accuracy == local.valid_accuracy
    in_memory(make_store(tmp_path / "a.zarr", *make_problem(120, 14, 4, seed=1)))
    with pytest.raises(RunError, match=rf"the store {url} has changed since"):
        streamsvm.resume(run, passes=4)
    with pytest.raises(RunError, match=rf"different data from that in {url}"):
        streamsvm.fit(url, out=run, valid=valid_url, resume_or_start=True, **options)


def test_refusals_come_before_the_address_is_read(tmp_path: Path) -> None:
    absent = "memory://absent.zarr"
    with pytest.raises(SettingsError, match=f"cache is required to copy {absent} for a cluster; set cache="):
        streamsvm.fit(absent, out=tmp_path / "run", splits=2, cluster="tcp://127.0.0.1:9")
    with pytest.raises(RunError, match="does not exist"):
        streamsvm.fit(absent, out=tmp_path / "absent/run")
    assert list(tmp_path.iterdir()) == []


def test_others_read_a_temporary_copy(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_temporary", lambda: str(tmp_path / "temporary"))
    text = tmp_path / "a.txt"
    text.write_text("1 1:1 2:0.5\n2 2:1\n" * 20)
    results = {}
    for name, data, rows in (("local", store, text), ("copied", in_memory(store), in_memory(text))):
        run, online = tmp_path / f"{name}/run", tmp_path / f"{name}/online"
        run.parent.mkdir()
        streamsvm.fit(rows, out=run, passes=1)
        streamsvm.online(data, out=online)
        results[name] = [
            model_bytes(run),
            model_bytes(online),
            streamsvm.evaluate(online, data).accuracy,
            streamsvm.calibrate(online, data).temperature,
            streamsvm.predict(run, rows).labels.tolist(),
            convert([rows], run.parent / "c.zarr").fingerprint,
            streamsvm.plan(data),
            streamsvm.open_store(data).fingerprint,
            streamsvm.resume(online).rows,
        ]
    assert results["local"] == results["copied"]
    assert {path.name for path in (tmp_path / "temporary").glob("*/*")} == {"a.zarr", "a.txt"}


def test_a_command_deletes_its_temporary_copy(store: Path, tmp_path: Path) -> None:
    command, env = [sys.executable, "-m", "streamsvm", "info", store.as_uri()], {"TMPDIR": str(tmp_path)}
    assert b"rows" in subprocess.run(command, env=os.environ | env, check=True, capture_output=True).stdout
    assert list(tmp_path.iterdir()) == []
