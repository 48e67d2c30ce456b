"""What is written is read: by streamsvm in any ranges, and by anndata, which shares no code with it."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from anndata.io import sparse_dataset
from store_problems import Problem, assert_rows_equal, make_dense_problem, make_full_problem, make_problem

from streamsvm.errors import StoreError
from streamsvm.store import layout, open_store


@pytest.fixture(params=["zarr", "h5ad"])
def suffix(request) -> str:
    return request.param


def read_with_anndata(path: Path, **options) -> anndata.AnnData:
    read = anndata.io.read_zarr if path.suffix == ".zarr" else anndata.io.read_h5ad
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "The 'future.infer_string' option")  # which anndata reads
        adata = read(path, **options)
    # Text for every row and feature would take more space than the rows: the index consists of numbers, and
    # anndata warns that it converts them to text. There must be no other warning.
    assert {str(warning.message) for warning in caught} <= {"Transforming to str index."}
    return adata


@pytest.mark.parametrize(
    ("suffix", "codec", "dtype"),
    [
        ("zarr", "fast", "f4"), ("zarr", "small", "f8"), ("zarr", "fast", "full f4"), ("h5ad", "fast", "f8"),
        ("zarr", "none", "dense f2"), ("h5ad", "small", "dense f4"), ("h5ad", "none", "dense f8"),
    ],
)  # fmt: skip
def test_any_range_of_rows_is_read_as_it_was_written(suffix, codec, dtype, tmp_path):
    kind, dtype = dtype.split() if " " in dtype else ("", dtype)
    dense, full = kind == "dense", kind == "full"
    problem = make_full_problem() if full else (make_dense_problem if dense else make_problem)(dtype=dtype)
    path = tmp_path / f"a.{suffix}"
    written = problem.write(path, codec=codec, dtype=dtype, meta={"shuffle_seed": 7, "sources": [3]})
    with open_store(path) as store:
        assert (store.n_rows, store.n_features) == problem.matrix.shape
        assert (store.nnz, store.n_classes) == (90 * 40 if dense else problem.matrix.nnz, 4)
        assert (store.dense_rows, store.native, store.shuffled) == (dense, True, True)
        assert {key: store.meta[key] for key in ("codec", "sources", "normalisation")} == {
            "codec": codec, "sources": [3], "normalisation": None
        }  # fmt: skip
        assert (store.weighted, store.grouped, store.multilabel) == (full,) * 3
        assert store.meta["n_labels"] == (problem.indicator.nnz if full else 0)
        assert np.dtype(store.meta["dtype"]) == dtype
        assert (store.classes, store.dtype) == (problem.classes, problem.matrix.dtype)
        assert (store.index_base, store.fingerprint) == (1, written)
        codes = problem.indicator.indices if full else problem.labels
        assert store.class_counts.tolist() == np.bincount(codes, minlength=4).tolist()
        for start, stop in [(0, 90), (0, 0), (90, 90), (0, 1), (17, 61), (44, 47), (89, 90)]:
            rows = store.rows(start, stop)
            assert_rows_equal(rows, problem.matrix[start:stop], problem.labels[start:stop])
            arrays = [array for array in rows if array is not None]
            assert all(array.flags.writeable and array.flags.c_contiguous for array in arrays)
            np.testing.assert_array_equal(store.names(start, stop), problem.names[start:stop])
            np.testing.assert_array_equal(store.indptr(start, stop), rows.indptr)
            np.testing.assert_array_equal(store.norms(start, stop), rows.norm2)
            if full:
                np.testing.assert_array_equal(rows.cost, problem.weights[start:stop])
                np.testing.assert_array_equal(rows.qid, problem.groups[start:stop])
                np.testing.assert_array_equal(rows.label_codes, problem.indicator[start:stop].indices)
                np.testing.assert_array_equal(rows.label_indptr, problem.indicator[start:stop].indptr)
        store.verify()
        for start, stop in [(-1, 3), (3, 2), (0, 91)]:
            with pytest.raises(IndexError):
                store.rows(start, stop)


KINDS: dict[str, Callable[[], Problem]] = {
    "sparse": make_problem,
    "all columns": make_full_problem,
    "dense": lambda: make_dense_problem(dtype="f2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_anndata_reads_a_store(kind, suffix, tmp_path):
    problem, path = KINDS[kind](), tmp_path / f"a.{suffix}"
    names = [f"gene {j}" if j % 3 else f"é={j}" for j in range(40)]
    dtype = "f2" if problem.dense else "f4"
    problem.write(path, dtype=dtype, statistics=True, feature_names=names)
    adata = read_with_anndata(path)
    assert (isinstance(adata.X, np.ndarray), adata.X.dtype) == (problem.dense, dtype)
    dense = problem.matrix.toarray()
    np.testing.assert_array_equal(adata.X if problem.dense else adata.X.toarray(), dense)
    assert adata.obs["label"].cat.codes.tolist() == problem.labels.tolist()
    assert adata.obs["label"].cat.categories.tolist() == list(problem.classes)
    assert adata.obs_names.tolist() == [str(name) for name in problem.names]
    assert adata.var_names.tolist() == names
    assert adata.var["nonzeros"].tolist() == np.count_nonzero(dense, axis=0).tolist()
    if problem.dense:
        counts = adata.uns["streamsvm"]["class_counts"]
        assert counts.tolist() == np.bincount(problem.labels, minlength=4).tolist()
    with open_store(path) as store:
        assert store.feature_names() == names
    if problem.indicator is not None:
        assert adata.obs.columns.tolist() == ["label", "weight", "qid", "hold_out_by"]
        np.testing.assert_array_equal(adata.obs["weight"], problem.weights)
        np.testing.assert_array_equal(adata.obs["qid"], problem.groups)
        np.testing.assert_array_equal(adata.obs["hold_out_by"], problem.hold_out_by)
        assert (adata.obsm["labels"] != problem.indicator).nnz == 0


@pytest.mark.parametrize("make", [make_problem, make_full_problem, make_dense_problem])
def test_the_files_do_not_depend_on_batch_sizes(make, tmp_path: Path):
    problem = make()
    rng = np.random.default_rng(1)
    problem.write(tmp_path / "whole.zarr")
    expected = contents(tmp_path / "whole.zarr")
    for case in range(5):
        cuts = np.sort(rng.integers(0, 91, rng.integers(1, 60))).tolist()
        path = tmp_path / f"{case}.zarr"
        problem.write(path, cuts=cuts)
        assert contents(path) == expected


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(problem: Problem, dtype: str, names: list[str] | None) -> str:
    """As docs/formats.md defines it, by hashlib and json alone."""
    matrix = problem.matrix
    content = (
        {"X": matrix.toarray().astype(dtype)} if problem.dense else {"X/data": matrix.data.astype(dtype)}
    )
    if not problem.dense:
        content |= {"X/indices": matrix.indices.astype("<i4"), "X/indptr": matrix.indptr.astype("<i8")}
    content |= {"obs/label/codes": problem.labels.astype("<i4"), "obs/_index": problem.names.astype("<i8")}
    if problem.weights is not None:
        content["obs/weight"] = problem.weights.astype("<f8")
    if problem.groups is not None:
        content["obs/qid"] = problem.groups.astype("<i8")
        content["obs/hold_out_by"] = problem.hold_out_by.astype("<i8")
    if problem.indicator is not None:
        content["obsm/labels/indptr"] = problem.indicator.indptr.astype("<i8")
        content["obsm/labels/indices"] = problem.indicator.indices.astype("<i4")
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in content.items()}
    digests |= {} if names is None else {"var/_index": digest(names)}
    n, d = matrix.shape
    header = {"n": n, "d": d, "dtype": np.dtype(dtype).name, "classes": digest(list(problem.classes))}
    return digest({"header": header, "arrays": digests})


@pytest.mark.parametrize(
    ("problem", "dtype", "names"),
    [
        (make_problem(), "f4", None),
        (make_problem(), "f4", [f"é{j}" for j in range(40)]),
        (make_full_problem(), "f4", None),
        (make_dense_problem(dtype="f2"), "f2", None),
    ],
)
def test_the_fingerprint_depends_on_the_content_alone(problem, dtype, names, tmp_path: Path):
    variants = [("zarr", "fast", 100), ("zarr", "none", 7), ("zarr", "small", 10**6)]
    variants += [("h5", "fast", 33), ("hdf5", "none", 100), ("h5ad", "small", 2**18)]
    found = {
        problem.write(
            tmp_path / f"{i}.{suffix}", codec=codec, chunk_nnz=chunk, meta={"any": i}, dtype=dtype,
            feature_names=names, encoding={"kind": "any"} if i % 2 else None,
        )
        for i, (suffix, codec, chunk) in enumerate(variants)
    }  # fmt: skip
    assert found == {fingerprint(problem, dtype, names)}


def test_stores_without_rows_features_or_values(suffix, tmp_path):
    for n, d in (0, 0), (0, 5), (5, 0), (5, 3):
        labels = np.arange(n, dtype=np.int32) % 2
        labels[:1] = -1  # unknown
        problem = Problem(sp.csr_matrix((n, d), dtype=np.float32), labels, ("a", "b"), np.arange(n))
        path = tmp_path / f"{n}-{d}.{suffix}"
        problem.write(path)
        with open_store(path) as store:
            assert_rows_equal(store.rows(0, n), problem.matrix, labels)
            assert store.class_counts.sum() == max(n - 1, 0)
            store.verify()
        adata = read_with_anndata(path)
        assert adata.shape == (n, d)
        assert adata.obs["label"].cat.codes.tolist() == labels.tolist()


def test_very_wide_matrices_have_int64_indices_and_no_var(tmp_path):
    for d, dtype in ((2**31 - 1, np.int32), (2**31, np.int64), (2**40, np.int64)):
        indices = np.array([5, d - 2, d - 1], dtype)
        matrix = sp.csr_matrix((np.ones(3, np.float32), indices, [0, 1, 3]), shape=(2, d))
        path = tmp_path / f"{d}.zarr"
        Problem(matrix, np.zeros(2, np.int32), ("a",), np.arange(2)).write(path)
        with open_store(path) as store:
            rows = store.rows(0, 2)
            assert store.index_dtype == rows.indices.dtype == dtype
            np.testing.assert_array_equal(rows.indices, indices)
            store.verify()
        read = sparse_dataset(zarr.open_group(path, mode="r")["X"]).to_memory()
        assert read.shape == (2, d)
        np.testing.assert_array_equal(read.indices, indices)
        assert sum(p.stat().st_size for p in path.rglob("*") if p.is_file()) < 10**5


def test_every_chunk_is_fetched_once(tmp_path, monkeypatch):
    problem = make_problem(n=3000, d=100, density=0.1)
    path = tmp_path / "a.zarr"
    problem.write(path, chunk_nnz=1000)
    names = {file.stat().st_ino: str(file.relative_to(path)) for file in path.rglob("c/*")}
    fetched: list[str] = []
    read = os.preadv

    def counting(descriptor, *args):
        fetched.append(names[os.fstat(descriptor).st_ino])
        return read(descriptor, *args)

    with open_store(path) as store:
        monkeypatch.setattr(os, "preadv", counting)
        for start in range(0, 3000, 300):  # also by reads that go on, though row pointers overlap
            part = slice(start, start + 300)
            assert_rows_equal(store.rows(start, start + 300), problem.matrix[part], problem.labels[part])
        assert len(fetched) == len(set(fetched)) > 30
        fetched.clear()
        store.rows(500, 1500)
    first, last = problem.matrix.indptr[500] // 1000, (problem.matrix.indptr[1500] - 1) // 1000
    assert last - first >= 8
    for name in ("data", "indices"):
        wanted = [f"X/{name}/c/{chunk}" for chunk in range(first, last + 1)]
        assert sorted(key for key in fetched if key.startswith(f"X/{name}/")) == sorted(wanted)
    assert len(fetched) == len(set(fetched))


def test_the_chunk_length_of_per_row_arrays_follows_that_of_the_values():
    sizes = {"n": 10**9, "nnz": 10**11, "chunk_nnz": 2**18}
    assert layout.chunk_length(layout.DATA, 10**11, **sizes) == 2**18
    assert layout.chunk_length(layout.INDPTR, 10**9 + 1, **sizes) == 2**15
    assert layout.chunk_length(layout.WEIGHT, 10**9, **sizes) == 2**15
    assert layout.chunk_length(layout.LABELS_CODES, 4 * 10**9, **sizes) == 2**17
    assert layout.chunk_length(layout.CODES, 500, n=500, nnz=10**6, chunk_nnz=2**18) == 500
    for d, rows in (1, 2**18), (384, 682), (2**18, 1), (2**20, 1):  # of a dense store
        assert layout.chunk_length(layout.MATRIX, 10**9 * d, **sizes) == rows * d
    assert layout.chunk_length(layout.MATRIX, 7 * 384, n=7, nnz=7 * 384, chunk_nnz=2**18) == 7 * 384


# -- refused by the writer ----------------------------------------------------------------------------


def test_the_announced_numbers_of_rows_and_values_are_required(tmp_path):
    full = make_full_problem()
    for number, (sizes, words) in enumerate(
        [
            ({"nnz": full.matrix.nnz - 1}, r"it had .*\d+ non-zeros \(expected \d+"),
            ({"n": 91}, "rows .expected 91"),
            ({"n_labels": full.indicator.nnz - 1}, r"it had .*\d+ labels \(expected \d+"),
            ({"n_labels": full.indicator.nnz + 1}, r"labels \(expected \d+"),
        ]
    ):
        path = tmp_path / f"{number}.zarr"
        with pytest.raises(StoreError, match=words):
            full.write(path, **sizes)
        with pytest.raises(StoreError, match="conversion did not finish"):
            open_store(path)


REFUSED_VALUES = [  # in row 1 of a CSR and of a dense store
    (np.nan, "f4"),
    (np.inf, "dense f2"),
    (65520.0, "dense f2"),  # the first that becomes infinite
    (1e39, "f4"),
    (1e200, "f8"),
]


@pytest.mark.filterwarnings("error")
def test_the_writer_refuses_values_that_are_not_finite_and_norms_that_overflow(tmp_path):
    for value, dtype in REFUSED_VALUES:
        for make in (make_dense_problem, make_problem) if " " not in dtype else (make_dense_problem,):
            problem = make(dtype="f8")
            column = problem.matrix[1].indices[0]
            problem.matrix[1, column] = value
            place = f"row {problem.names[1] + 1} of the input: a value is not finite"
            with pytest.raises(StoreError, match=place):
                problem.write(tmp_path / f"{value}-{dtype}-{make.__name__}.zarr", dtype=dtype.split()[-1])


def test_weights_are_named(tmp_path):
    full = make_full_problem()
    full.write(tmp_path / "a.zarr")
    with open_store(tmp_path / "a.zarr", sample_weight="weight") as store:
        np.testing.assert_array_equal(store.rows(0, 90).cost, full.weights)
    make_problem().write(tmp_path / "b.zarr")
    for name, column in ("a", "qid"), ("b", "weight"):
        with pytest.raises(StoreError, match=rf"no weight column '{column}'; convert"):
            open_store(tmp_path / f"{name}.zarr", sample_weight=column)
