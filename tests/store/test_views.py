"""Stores made of other stores: every range of their rows is what the plain matrix says."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store

from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.data.rows import Rows, sparse_rows
from streamsvm.errors import StoreError, StreamsvmWarning
from streamsvm.store import Store, open_store, open_stores, views
from streamsvm.store.container import StoredArray
from streamsvm.store.joined import JoinedStore, join_stores
from streamsvm.store.ranges import lengths, numbers_in, span
from streamsvm.store.sliced import sliced
from streamsvm.store.views import Labelled
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.store import transformed

N, D = 300, 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    X, labels = make_problem(N, D, 3)
    with open_store(make_store(tmp_path / "a.h5", X, labels)) as opened:
        yield opened


def dense(rows: Rows, n_features: int) -> np.ndarray:
    rows = sparse_rows(rows, np.dtype("i4"))
    found = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.n_rows, n_features))
    assert found.has_canonical_format  # increasing in each row, as kernels need it
    np.testing.assert_allclose(rows.norm2, np.square(found.toarray().astype("f8")).sum(axis=1))
    return found.toarray()


def some_ranges(n: int) -> list[tuple[int, int]]:
    return [(0, 0), (0, 1), (n - 1, n), (0, n), *itertools.pairwise(range(0, n, max(1, n // 5)))]


def whole(store: Store) -> Rows:
    return store.rows(0, store.n_rows)


@pytest.mark.parametrize("slice_rows", [1, 7, 299, 300, 1000])
def test_slices_are_all_rows_once_and_keep_together(store: Store, slice_rows: int) -> None:
    view = sliced(store, slice_rows, seed=3)
    names = np.concatenate([store.names(0, N), [-1]])
    place = {name: at for at, name in enumerate(names.tolist())}
    order = [place[name] for name in view.names(0, N).tolist()]
    assert sorted(order) == list(range(N))
    for first, end in itertools.pairwise(view.units.rows.tolist()):
        assert order[first] % slice_rows == 0
        assert order[first:end] == list(range(order[first], order[first] + end - first))
    np.testing.assert_array_equal(view.units.offsets, whole(view).indptr[view.units.rows])
    if slice_rows < 50:
        assert order != sorted(order)
        assert order != [place[name] for name in sliced(store, slice_rows, seed=4).names(0, N).tolist()]


def cells(names: list[str], types: list[str], seed: int, path: Path) -> anndata.AnnData:
    rng = np.random.default_rng(seed)
    X = sp.random(40, len(names), 0.4, format="csr", random_state=rng, dtype=np.float32)
    obs = pd.DataFrame(
        {"type": pd.Categorical(rng.choice(types, 40)), "weight": rng.random(40)},
        index=[f"{seed}-{i}" for i in range(40)],
    )
    made = anndata.AnnData(X, obs=obs, var=pd.DataFrame(index=names))
    made.write_h5ad(path)
    return made


@pytest.mark.parametrize("join", ["inner", "outer"])
def test_files_are_joined_by_name_as_anndata_joins_them(tmp_path: Path, join: str) -> None:
    paths = [tmp_path / f"{i}.h5ad" for i in range(3)]
    parts = [
        cells(["a", "b", "c", "d"], ["T", "B"], 0, paths[0]),
        cells(["d", "x", "b"], ["NK", "B"], 1, paths[1]),
        cells(["b", "d", "c", "y"], ["B"], 2, paths[2]),
    ]
    expected = anndata.concat(parts, join=join, fill_value=0)
    few = "'a', 'c', 'x', ..."
    fate = {"inner": "left out", "outer": "0 in the other files"}[join]
    with pytest.warns(StreamsvmWarning) as warned:
        joined = open_stores(paths, join=join, label="type", sample_weight="weight")
    assert [str(w.message) for w in warned] == [f"features missing from some files: 4 of 6, {fate} ({few})"]
    with joined as store:
        assert (store.n_rows, store.classes) == (120, ("B", "NK", "T"))
        names = store.feature_names()
        assert sorted(names) == sorted(expected.var_names)
        np.testing.assert_array_equal(dense(whole(store), len(names)), expected[:, names].X.toarray())
        assert [store.classes[c] for c in store.labels(0, 120)] == expected.obs["type"].tolist()
        assert store.names(0, 120).tolist() == expected.obs_names.tolist()
        assert store.rows(0, 120).cost.tolist() == expected.obs["weight"].tolist()
        assert store.class_counts.tolist() == [(expected.obs["type"] == c).sum() for c in store.classes]
        fingerprint = store.fingerprint
    with (
        pytest.warns(StreamsvmWarning, match="4 of 6"),
        open_stores(paths[::-1], join=join, label="type", sample_weight="weight") as store,
    ):
        assert store.fingerprint != fingerprint


def test_files_that_cannot_be_joined_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.h5ad" for i in range(3)]
    cells(["a", "b"], ["T", "B"], 0, paths[0])
    cells(["x"], ["T", "B"], 1, paths[1])
    cells(["0", "1"], ["T", "B"], 2, paths[2])
    with pytest.raises(StoreError, match="no feature occurs in all of"):
        open_stores(paths[:2], label="type")
    with pytest.raises(StoreError, match=r"2\.h5ad has no feature names, but other"):
        open_stores(paths, label="type", join="outer")
    with pytest.raises(StoreError, match=r"'kind'.* name the label column with label="):
        open_stores(paths, label="kind")


@pytest.mark.parametrize(
    ("chunks", "share"), [(None, 0.4), ((7, 4), 0.9), ((7, 4), 0.4), ((100, 20), 0.9), ((1, 20), 0.9)]
)
def test_rows_of_a_dense_matrix_in_any_order_decode_a_row_of_chunks_once(
    tmp_path: Path, chunks: tuple[int, int] | None, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.store.matrices._PIECE", 50)
    rng = np.random.default_rng(0)
    values = (rng.random((100, 20)) * (rng.random((100, 20)) < share)).astype(np.float32)
    obs = pd.DataFrame({"type": pd.Categorical(rng.choice(["T", "B"], 100))}, map(str, range(100)))
    path = tmp_path / "a.h5ad"
    anndata.AnnData(values, obs=obs).write_h5ad(path, **({"compression": "gzip"} if chunks else {}))
    if chunks:
        with h5py.File(path, "r+") as file:
            attrs = dict(file["X"].attrs)
            del file["X"]
            file.create_dataset("X", data=values, chunks=chunks, compression="gzip").attrs.update(attrs)
    read: list[tuple[int, ...]] = []
    read_part = StoredArray.read_part
    monkeypatch.setattr(
        StoredArray, "read_part", lambda array, *part: read.append(part) or read_part(array, *part)
    )
    with open_store(path, label="type") as store:
        assert store.dense_rows == (share > 0.5)
        view = sliced(store, 3, seed=0)
        order = [int(name) for name in view.names(0, 100)]
        read.clear()
        np.testing.assert_array_equal(dense(whole(view), 20), values[order])
        bands = [(start // store.matrix.arrays["values"].chunk, first) for start, _, first, _ in read]
        assert len(bands) == len(set(bands))
        assert store.chunk_nnz <= (200 if chunks in [(7, 4), (1, 20)] else 2000)


def test_dense_rows_that_are_joined_with_others_become_sparse(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(30, 4)), rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.3)]
    names = [["a", "b", "c", "d"], ["e", "d", "a", "c", "x"]]
    for number, (X, columns) in enumerate(zip(values, names, strict=True)):
        obs = pd.DataFrame({"type": rng.choice(["T", "B"], len(X))}, index=np.arange(len(X)).astype(str))
        adata = anndata.AnnData(X.astype("f4"), obs=obs, var=pd.DataFrame(index=columns))
        adata.write_h5ad(tmp_path / f"{number}.h5ad")

    def opened(*numbers: int) -> Store:
        stores = [open_store(tmp_path / f"{number}.h5ad", label="type") for number in numbers]
        assert [store.dense_rows for store in stores] == [number == 0 for number in numbers]
        return join_stores(stores)

    with pytest.warns(StreamsvmWarning, match="left out"):
        mixed = opened(0, 1)
    with mixed as store:
        assert not store.dense_rows
        expected = np.concatenate([values[0][:, [0, 2, 3]], values[1][:, [2, 3, 1]]]).astype("f4")
        for start, stop in [*some_ranges(50), (25, 35)]:
            rows = store.rows(start, stop)
            assert rows.features.dtype == store.index_dtype
            np.testing.assert_array_equal(dense(rows, 3), expected[start:stop])
            assert (np.diff(store.indptr(start, stop)) >= np.diff(rows.indptr)).all()
    with opened(0, 0) as store:
        assert store.dense_rows
        assert whole(store).dense
        np.testing.assert_array_equal(dense(whole(store), 4), np.tile(values[0].astype("f4"), (2, 1)))


def labelled_rows(mask: np.ndarray, piece: int) -> Labelled:
    pieces = np.split(mask, range(piece, len(mask), piece))
    return Labelled([np.packbits(each) for each in pieces], np.cumsum([0, *map(np.count_nonzero, pieces)]))


def test_rows_with_a_label_are_found_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_PIECE_ROWS", 64)
    rng = np.random.default_rng(0)
    mask = rng.random(3000) < np.repeat(rng.choice([0, 0.3, 0.9, 1], 30), 100)
    view, rows = labelled_rows(mask, 64), np.flatnonzero(mask)
    edges = np.unique(rng.integers(0, len(rows), 100))
    cut = np.column_stack([edges[:-1], edges[1:]])
    for ranges in span(0, len(rows)), cut, cut[rng.permutation(len(cut))], cut[::-2], cut[:0], span(5, 5):
        found = view.ranges(ranges)
        np.testing.assert_array_equal(numbers_in(found), rows[numbers_in(ranges)])
        assert (lengths(found) > 0).all()
        gaps = np.count_nonzero(np.diff(rows[numbers_in(ranges)]) != 1)
        assert len(found) <= gaps + len(mask) / 64 + len(cut)


def test_rows_with_a_label_are_found_without_an_array_of_all_rows() -> None:
    mask = np.ones(2**21, bool)
    mask[::1000] = False
    view = labelled_rows(mask, 2**16)
    tracemalloc.start()
    view.ranges(span(0, int(view.before[-1])))
    assert tracemalloc.get_traced_memory()[1] < 2 * len(mask)
    tracemalloc.stop()


def test_what_joined_rows_need_is_what_any_of_them_needs(store: Store) -> None:
    """A block may begin at any row, and reading takes what that of the most demanding store does."""
    scaled = transformed(store, parse_transforms("l2"))
    assert scaled.extra_nnz_bytes > store.extra_nnz_bytes
    for stores in [store, scaled], [scaled, store]:
        assert JoinedStore(stores).extra_nnz_bytes == scaled.extra_nnz_bytes
    first = sliced(store, 7, seed=0)
    joined = JoinedStore([first, store])
    plan = make_plan(joined, dtype=store.dtype, columns=8, memory=10**7, keeps_duals=True, block_rows=50)
    assert cut_blocks(joined, plan).tolist() == list(range(0, 2 * N + 1, 50))
