"""Servers on loopback that fail: they are asked again, given up in time, and quoted."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from chunked_anndata import LABELS, N, make, write
from helpers import make_store
from http_faults import Fault, FaultyServer, served

from streamsvm import fit, tune
from streamsvm.errors import RunError, StoreError
from streamsvm.store import Store, open_store

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
from streamsvm.store import remote_files

STORES = {"cells.h5ad": "type", "cells.zarr": "type", "native.zarr": None, "native.h5": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AnnData and stores of the same rows."""
    folder, adata = tmp_path_factory.mktemp("stores"), make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata.write_h5ad(folder / "cells.h5ad")
    write(folder / "cells.zarr")
    for name in ("native.zarr", "native.h5"):
        make_store(folder / name, adata.X, LABELS, dtype="float32", chunk_nnz=1024)
    return folder


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setattr(remote_files, "RETRY_DELAYS", (0.0,) * 6)
    with served(folder) as server:
        yield server


def opened(url: str) -> Store:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*rows are 'a'")
        return open_store(url, label=STORES[url.rpartition("/")[2]])


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *itertools.product(["cells.h5ad", "cells.zarr"], [500, 503, 429, "reset", "cut"]),
        *itertools.product(["native.h5", "native.zarr"], [503, "cut"]),
        ("cells.h5ad", "short"),
    ],
)
def test_what_fails_a_few_times_is_read(server: FaultyServer, name: str, fault: Fault) -> None:
    failures: Counter[tuple[str, str]] = Counter()

    def fail(method: str, path: str) -> Fault:
        failures[method, path] += 1
        lasting = failures[method, path] > 2 or (method == "HEAD" and fault == "short")
        return None if lasting else fault

    server.fault = fail
    with opened(f"{server.url}/{name}") as store:
        rows = store.rows(0, N)
        np.testing.assert_array_equal(rows.data, make().X.data)
    assert max(failures.values()) > 2


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    ("fault", "said"),
    [(503, "the server answered 503 Service Unavailable, 7 times"), ("cut", "not completed, 7 times")],
)
def test_what_fails_for_good_is_what_the_server_said(
    server: FaultyServer, name: str, fault: Fault, said: str
) -> None:
    server.fault = lambda method, path: fault if method == "GET" and "json" not in path else None
    with pytest.raises(StoreError, match=said) as raised, opened(f"{server.url}/{name}") as store:
        store.rows(0, N)
    message = str(raised.value)
    assert "\n" not in message
    assert not any(word in message for word in ("damaged", "convert"))
    assert max(Counter(server.requests).values()) == 7


@pytest.mark.parametrize("fault", [503, "reset", 404, 403])
def test_the_first_request_s_failure_is_named(server: FaultyServer, fault: Fault) -> None:
    server.fault = lambda method, path: fault
    said = {503: "503 Service Unavailable", "reset": "reset by peer|disconnected", 404: "404", 403: "403"}
    for name in ("cells.h5ad", "cells.zarr"):
        if (name, fault) == ("cells.zarr", 404):
            continue
        with pytest.raises(StoreError, match=said[fault]):
            opened(f"{server.url}/{name}")


def test_a_silent_server_is_given_up(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 2 * remote_files.TIMEOUT <= 60
    monkeypatch.setattr(remote_files, "TIMEOUT", 0.05)
    server.fault = lambda method, path: "silent"
    for name in ("cells.h5ad", "cells.zarr"):
        server.requests.clear()
        with pytest.raises(StoreError, match=r"the server sent nothing for 0\.05 seconds"):
            opened(f"{server.url}/{name}")
        assert max(Counter(server.requests).values()) == 1


@pytest.mark.parametrize("file", ["X/data/c/3", "X/indices/c/3", "X/indptr/c/3", "obs/type/codes/c/3"])
def test_a_chunk_that_is_lost_in_a_later_pass_is_an_error(server: FaultyServer, file: str) -> None:
    with opened(f"{server.url}/cells.zarr") as store:
        store.rows(0, N)
        server.fault = lambda method, path: 404 if path.endswith(file) else None
        array, number = file.split("/c/")
        with pytest.raises(
            StoreError, match=rf"array {array}, chunk {number}: the chunk is missing"
        ) as raised:
            store.rows(0, N)
    assert str(raised.value).endswith(", and was there when it was read before; try again, or copy it here")


def test_a_chunk_that_is_found_later_is_an_error(server: FaultyServer) -> None:
    """Else what was trained on before would not be what is trained on now."""
    server.fault = lambda method, path: 404 if path.endswith("layers/dense/c/3/1") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = open_store(f"{server.url}/cells.zarr", label="type", layer="dense")
        with store:
            store.rows(0, N)
            server.fault = lambda method, path: None
            with pytest.raises(StoreError, match="the chunk is there, and was missing"):
                store.rows(0, N)


@pytest.mark.parametrize("lasts", [False, True])
def test_the_command_ends_as_it_should_whichever_request_fails(server: FaultyServer, lasts: bool) -> None:
    """And not by a signal, when Python ends."""
    code = (
        "from streamsvm.store import remote_files\n"
        "remote_files.RETRY_DELAYS = (0,)\n"
        "from streamsvm_cli.main import run\n"
        "run()\n"
    )
    command = [sys.executable, "-c", code, "info", "--label", "type", f"{server.url}/cells.h5ad"]
    for failing in itertools.count():  # a request that fails
        server.requests.clear()
        server.fault = lambda method, path, failing=failing: (
            503 if (n := len(server.requests) - 1) == failing or (lasts and n > failing) else None
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=100)
        reached = len(server.requests) > failing
        assert (done.returncode, done.stderr.count("\n")) == ((1, 1) if lasts and reached else (0, 0)), done
        assert ("503 Service Unavailable" in done.stderr) == (lasts and reached)
        if not reached:
            break
    assert failing >= 2


def test_an_error_of_a_program_is_no_server_s() -> None:
    """It is given on, and not repeated."""
    calls = []

    def mistaken(fail: Callable[[], object]) -> None:
        calls.append(fail)
        fail()

    for fail, kind in (
        (lambda: len(1), TypeError),
        (lambda: {}["a"], KeyError),
        (lambda: 1 / 0, ArithmeticError),
    ):
        with pytest.raises(kind):
            remote_files.ask(mistaken, fail)
    assert len(calls) == 3


def test_fetches_of_two_threads_do_not_turn_the_collector_on_for_one_another(server: FaultyServer) -> None:
    """The second would begin while the first is there, and still be there when that one has ended."""
    file = remote_files.open_file(f"{server.url}/cells.h5ad")
    second = threading.Thread(target=file.cache.fetcher, args=(0, 1))
    second_began, first_ended = threading.Event(), threading.Event()
    collects: list[bool] = []

    def look(method: str, path: str) -> Fault:
        if not second.is_alive():
            second.start()
            second_began.wait(0.2)
        else:
            second_began.set()
            first_ended.wait(0.2)
        collects.append(gc.isenabled())
        return None

    server.fault = look
    file.cache.fetcher(0, 1)
    first_ended.set()
    second.join()
    assert collects == [False, False]
    assert gc.isenabled()
    file.close()


def test_the_folder_of_a_run_is_looked_at_first(server: FaultyServer, tmp_path: Path) -> None:
    url = f"{server.url}/cells.zarr"
    (tmp_path / "file").write_text("")
    for train in (fit, tune):
        with pytest.raises(RunError, match="does not exist"):
            train(url, label="type", out=tmp_path / "absent/run")
        with pytest.raises(RunError, match="not a folder"):
            train(url, label="type", out=tmp_path / "file")
    assert server.requests == []
