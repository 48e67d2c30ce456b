"""Dense matrices in .npy and .npz files are read where they lie, with labels from a file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from store_problems import assert_rows_equal

from streamsvm import open_store
from streamsvm.errors import InputError, SettingsError, StoreError
from streamsvm.store import array_file
from streamsvm.store.open import open_stores

N, D = 300, 12


X = np.random.default_rng(0).normal(size=(N, D))
y = np.random.default_rng(1).integers(0, 12, N)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_file, "_PIECE", 20 * D)
    monkeypatch.setattr(array_file, "_PAGE", 20 * 8)


@pytest.mark.parametrize(
    ("dtype", "order"), [("<f2", "C"), ("<f4", "F"), ("<f8", "C"), (">f4", "C"), ("i2", "F"), ("?", "C")]
)
def test_any_order_and_type_of_numbers_is_read(tmp_path: Path, dtype: str, order: Any) -> None:
    values = (X * 3 if np.dtype(dtype).kind == "f" else np.abs(X) * 10 + 1).astype(dtype, order)
    np.save(tmp_path / "X.npy", values)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", X=values, y=y)
    wanted = values.astype("f8" if dtype == "<f8" else "f4")
    numbers = np.r_[250:300, 5:45, 100:101]
    for name, given in ("X.npy", {"labels": tmp_path / "y.npy"}), ("both.npz", {"label": "y"}):
        with open_store(tmp_path / name, **given) as store:
            assert (store.n_rows, store.n_features, store.facts.dense_rows) == (N, D, True)
            assert store.dtype == wanted.dtype
            assert store.label_dtype == "int64"
            assert not store.shuffled
            rows = store.read(np.array([(250, 300), (5, 45), (100, 101)]))
            np.testing.assert_array_equal(rows.matrix, wanted[numbers])
            np.testing.assert_array_equal(np.array(store.classes, int)[rows.labels], y[numbers])
            assert list(store.classes) == sorted(store.classes, key=int)
            assert store.feature_names() is None
            store.verify()


def test_a_matrix_of_mostly_zeros_has_sparse_rows(tmp_path: Path) -> None:
    some = np.where(np.abs(X) < 1, 0, X)
    np.save(tmp_path / "X.npy", some)
    np.save(tmp_path / "y.npy", y)
    with open_store(tmp_path / "X.npy", labels=tmp_path / "y.npy") as store:
        codes = np.array([store.classes.index(str(label)) for label in y])
        assert_rows_equal(store.rows(3, 60), scipy.sparse.csr_matrix(some[3:60]), codes[3:60])


LABELS: list[tuple[Any, list[str], list[str], str]] = [
    (np.array(["b", "a", "ü", ""]), ["b", "a", "ü"], ["a", "b", "ü"], "str"),
    (np.array([2.0, np.nan, 10, -1]), ["2", "10", "-1"], ["-1", "2", "10"], "int64"),
    (np.array([True, False, True]), ["True", "False", "True"], ["False", "True"], "str"),
    ("+1\n 1.0\nNA\n-1\n", ["1", "1", "-1"], ["-1", "1"], "int64"),
    ("b\na\n\nb", ["b", "a", "b"], ["a", "b"], "str"),
]


def test_labels_have_names_in_order_and_a_type(tmp_path: Path) -> None:
    for labels, known, classes, dtype in LABELS:
        np.save(tmp_path / "X.npy", X[: 4 if isinstance(labels, str) else len(labels)])
        file = tmp_path / ("y.txt" if isinstance(labels, str) else "y.npy")
        file.write_text(labels) if isinstance(labels, str) else np.save(file, labels)
        with open_store(tmp_path / "X.npy", labels=file) as store:
            assert (list(store.classes), store.label_dtype) == (classes, dtype)
            assert [store.classes[code] for code in store.labels(0, store.n_rows)] == known


def test_the_fingerprint_is_of_values_at_both_ends_and_of_labels(tmp_path: Path) -> None:
    def fingerprint(X: np.ndarray, y: np.ndarray) -> str:
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", y)
        with open_store(tmp_path / "X.npy", labels=tmp_path / "y.npy") as store:
            return store.fingerprint

    last, other = X.copy(), y.copy()
    last[-1, -1] += 1
    other[150] = (other[150] + 1) % 12
    found = {fingerprint(*given) for given in ((X, y), (last, y), (X, other), (X.astype("f4"), y))}
    assert len(found) == 4
    assert fingerprint(X, y) in found


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    good, other, path = tmp_path / "y.npy", tmp_path / "other.npy", tmp_path / "X.npy"
    header = np.lib.format.magic(1, 0) + b"\x50\0{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}"
    whole = io.BytesIO()
    np.save(whole, X)
    np.save(good, y)
    refusals: list[tuple[Any, Any, dict[str, Any], type, str]] = [
        (X * 1j, None, {"labels": good}, StoreError, "values of type complex128"),
        (X.astype(object), None, {"labels": good}, StoreError, "values of type object"),
        (X[0], None, {"labels": good}, StoreError, r"shape \(12,\) instead of \(rows, features\)"),
        (X[:, :0], None, {"labels": good}, StoreError, r"instead of \(rows, features\)"),
        (header.ljust(90), None, {"labels": good}, StoreError, r"\(-1, -1\) instead of \(rows"),
        (X[:-1], None, {"labels": good}, InputError, r"has the shape \(300,\), but .* has 299 rows"),
        (X, None, {}, InputError, "matrix without labels"),
        (X, None, {"label": "y"}, InputError, "no array 'y'; it has one array, without a name"),
        (X, None, {"labels": tmp_path / "absent"}, InputError, "absent cannot be read"),
        (X, None, {"labels": good, "layer": "counts"}, StoreError, "a matrix file has no layers"),
        (X, y.astype(object), {"labels": other}, InputError, "holds pickled Python objects"),
        (X, np.r_[2.0**60, y[1:]], {"labels": other}, InputError, "row 1: the value cannot be a label"),
        (whole.getvalue()[:-8], None, {"labels": good}, StoreError, "truncated"),
        (whole.getvalue() + b"\0", None, {"labels": good}, StoreError, "longer than its header says"),
        (X, good.read_bytes() + b"\0", {"labels": other}, InputError, "longer than its header says"),
        (b"\x93NUMPY\x01\x00\xff\xff{", None, {"labels": good}, StoreError, "its header cannot be read"),
        (b"\x93NUMPY\x09\x00", None, {"labels": good}, StoreError, "its header cannot be read"),
        (X, b"\x93NUMPY\x09\x00", {"labels": other}, InputError, "its header cannot be read"),
    ]
    for matrix, labels, given, error, words in refusals:
        for file, content in (path, matrix), (other, labels):
            file.write_bytes(content) if isinstance(content, bytes) else np.save(file, content)
        with pytest.raises(error, match=words):
            open_store(path, **given)
    with pytest.raises(StoreError, match="does not exist"):
        open_store(tmp_path / "absent.npy", labels=good)
    with pytest.raises(SettingsError, match="labels applies to one matrix"):
        open_stores([path, path], labels=str(good))
    infinite = X.copy()
    infinite[70, 3] = np.inf
    np.save(path, infinite)
    with open_store(path, labels=good) as store, pytest.raises(StoreError, match="X, row 71: a value is not"):
        store.rows(60, 80)


def test_archives_that_cannot_be_read_where_they_lie_name_convert(tmp_path: Path) -> None:
    path, sparse = tmp_path / "X.npz", scipy.sparse.csr_matrix(X)
    archives: list[tuple[Callable[[], object], str, type, str]] = [
        (lambda: np.savez_compressed(path, X=X, y=y), "y", StoreError, r"compressed or sparse.*convert"),
        (lambda: scipy.sparse.save_npz(path, sparse), "y", StoreError, r"compressed or sparse.*convert"),
        (lambda: np.savez(path, X=X, Z=X, y=y), "y", StoreError, r"2 two-dimensional arrays instead of one"),
        (lambda: np.savez(path, X=X, y=y), "z", InputError, "no array 'z'; it has X, y"),
        (lambda: path.write_bytes(path.read_bytes()[:-30]), "y", StoreError, "damaged or truncated"),
    ]
    for write, label, error, words in archives:
        write()
        with pytest.raises(error, match=words):
            open_store(path, label=label)


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    with open_store(tmp_path / "X.npy", labels=tmp_path / "y.npy") as store:
        os.truncate(tmp_path / "X.npy", 1000)
        with pytest.raises(StoreError, match="the file was written to"):
            store.rows(100, 300)
