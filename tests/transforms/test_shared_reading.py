"""Threads that share the reading of rows for statistics: the same bits, errors and budget as one thread."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_store
from run_files import model_bytes

from streamsvm import fit
from streamsvm.base.threads import Threads
from streamsvm.data.rows import Rows
from streamsvm.errors import InputError, Interrupted
from streamsvm.store import Store, open_store
from streamsvm.store.joined import join_stores
from streamsvm.transforms import fitting, parse_transforms
from streamsvm.transforms.fitting import fit_transforms, raw_store

N, D = 400, 25
PLACE = fitting._PIECE_SHARE * fitting._NNZ_BYTES  # bytes of budget for each non-zero that is in memory
LOGS = "normalize=50,log1p,scale=std"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "_MIN_PIECE_NNZ", 1)


@pytest.fixture(scope="module")
def counts() -> sp.csr_array:
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.gamma(0.5, 2.0, size=D), size=(N, D)).astype(np.float32)
    X[7] = 0
    return sp.csr_array(X)


def write_anndata(path: Path, X: sp.csr_array, *, dense: bool = False) -> Path:
    """Write rows of two classes, named in the column `type`, as the package anndata writes them."""
    types = np.where(np.arange(X.shape[0]) % 3, "a", "b")
    obs = pd.DataFrame({"type": pd.Categorical(types)}, index=[f"c{i}" for i in range(len(types))])
    adata = anndata.AnnData(X.toarray() if dense else sp.csr_matrix(X), obs=obs)
    with warnings.catch_warnings(action="ignore"):  # anndata advises against format 2 of Zarr
        if path.suffix == ".h5ad":
            adata.write_h5ad(path, compression="gzip")
        else:
            adata.write_zarr(path)
    return path


@contextlib.contextmanager
def opened(kind: str, folder: Path, X: sp.csr_array) -> Iterator[Store]:
    """A store of `kind`, which has no statistics."""
    if kind.startswith("native"):
        labels = np.arange(X.shape[0], dtype=np.int32) % 3
        with open_store(make_store(folder / kind, X, labels, chunk_nnz=50)) as store:
            yield store
    elif kind == "two":
        parts = [write_anndata(folder / f"{at}.h5ad", X[rows]) for at, rows in enumerate(HALVES)]
        with join_stores([open_store(part, label="type") for part in parts]) as store:
            yield store
    else:
        path = write_anndata(folder / kind, X, dense="dense" in kind)
        with open_store(path, label="type") as store:
            yield store


HALVES = (slice(0, 150), slice(150, N))
KINDS = ("native.zarr", "a.h5ad", "dense.h5ad", "a.zarr", "two")


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_finds_the_same_bits(kind: str, tmp_path: Path, counts: sp.csr_array) -> None:
    dense = counts.toarray().astype(np.float64)
    logs = np.log1p(dense * 50 / np.maximum(dense.sum(axis=1, keepdims=True), 1))
    expected = 1 / np.where(logs.std(axis=0) > 0, logs.std(axis=0), 1)
    found, used = [], set()
    with opened(kind, tmp_path, counts) as store:
        values = store.chunk_rows * store.nnz / store.n_rows
        for pieces in (values / 3, 5 * values, 30 * values):
            for workers in (1, 2, 3):
                raw = raw_store(store, int(pieces * PLACE), workers=workers)
                *_, scale = fit_transforms(parse_transforms(LOGS), raw)[0].transforms
                found.append(scale.array)
                used.add(raw.workers)
    assert used == ({1} if "dense" in kind else {1, 2, 3})
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    assert {array.tobytes() for array in found} == {found[0].tobytes()}


def test_one_thread_at_a_time_reads_a_store_and_no_more_than_the_budget_is_in_memory(
    tmp_path: Path, counts: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, threads, pieces = threading.Lock(), set(), []
    inner = Store.rows

    def rows(store: Store, start: int, stop: int) -> Rows:
        assert reading.acquire(blocking=False)
        try:
            threads.add(threading.current_thread().name)
            found = inner(store, start, stop)
            pieces.append(len(found.data))
            return found
        finally:
            reading.release()

    with opened("native.zarr", tmp_path, counts) as store:
        for workers in (1, 3, 50):
            for room in (1, 400, 3000):
                raw = raw_store(store, room * PLACE, workers=workers)
                list(raw.sample)
                with monkeypatch.context() as patch:
                    patch.setattr(Store, "rows", rows)
                    fit_transforms(parse_transforms(LOGS), raw._replace(sample=[]))
                held = 1 if raw.workers == 1 else raw.workers + 2
                assert 1 <= raw.workers <= workers
                longest = max(max(pieces), 1)
                assert longest == D or held * longest <= max(room, D)  # a row is read as a whole
                assert raw.workers == 1 or longest > 50  # no piece is much shorter than a chunk
                pieces.clear()
    assert any("prefetch" in name for name in threads)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_first_row_that_cannot_be_transformed_is_named(
    tmp_path: Path, counts: sp.csr_array, workers: int
) -> None:
    dense, before = counts.toarray(), threading.enumerate()
    dense[[211, 260, 390], 3] = 0.5
    with opened("native.zarr", tmp_path, sp.csr_array(dense)) as store:
        raw = raw_store(store, 1000 * PLACE, workers=workers)
        assert raw.workers == workers
        with pytest.raises(InputError, match=r"native\.zarr: row 212 has the value 0\.5"):
            fit_transforms(parse_transforms("counts,idf"), raw)
    assert set(threading.enumerate()) <= set(before)


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_and_interruptions_are_those_of_the_caller_s_thread(
    tmp_path: Path, counts: sp.csr_array, workers: int
) -> None:
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        assert total == N
        seen.append(done)
        if done > N // 2:
            raise Interrupted("stopped")

    with opened("native.h5", tmp_path, counts) as store:
        raw = raw_store(store, 1500 * PLACE, progress, workers)
        with pytest.raises(Interrupted):
            fit_transforms(parse_transforms(LOGS), raw)
        assert not [each for each in threading.enumerate() if "prefetch" in each.name]
    assert seen == sorted(set(seen))
    assert seen[-2] <= N // 2 < seen[-1]


def test_workers_of_a_fit_share_the_reading_and_leave_the_same_run(
    tmp_path: Path, counts: sp.csr_array, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, used = write_anndata(tmp_path / "a.h5ad", counts), []
    inner = Threads.map_ahead

    def map_ahead(threads, *args):
        used.append(threads.number)
        return inner(threads, *args)

    monkeypatch.setattr(Threads, "map_ahead", map_ahead)
    for workers in (1, 2, 3):
        fit(path, out=tmp_path / str(workers), label="type", passes=1, transform=LOGS, workers=workers)
    assert used == [1, 2, 3]
    assert model_bytes(tmp_path / "1") == model_bytes(tmp_path / "2") == model_bytes(tmp_path / "3")
