"""Matrices of SciPy and NumPy become stores, in whatever format; a damaged one is named."""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from streamsvm_converters import convert, open_reader
from streamsvm_converters.description import describe_file
from streamsvm_converters.kinds import matrix as matrix_module

from streamsvm.errors import InputError
from streamsvm.store import open_store

N, D = 300, 40


@pytest.fixture
def problem() -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sp.random(N, D, 0.2, format="csr", random_state=rng)
    X.data[X.indptr[5] : X.indptr[6]] = 0
    X.eliminate_zeros()
    return X, rng.choice(["b", "a", "10"], N)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_module, "_VALUES_PER_READ", 700)


def stored(path: Path) -> tuple[np.ndarray, list[str]]:
    with open_store(path) as store:
        rows = store.rows(0, store.n_rows)
        X = sp.csr_array((rows.data, rows.indices, rows.indptr), (store.n_rows, store.n_features))
        return X.toarray(), [store.classes[code] for code in rows.labels]


def in_format(X: sp.csr_matrix, kind: str) -> Any:
    """The matrix in a format of SciPy; unsorted, with duplicates and zeros where the format may have them."""
    rng = np.random.default_rng(1)
    coo = X.tocoo()
    if kind == "coo":
        order = rng.permutation(2 * coo.nnz)
        parts = [np.concatenate([each, each])[order] for each in (coo.row, coo.col)]
        halves = np.concatenate([coo.data * 0.25, coo.data * 0.75])[order]
        return sp.coo_matrix((halves, tuple(parts)), X.shape)
    found = X.asformat(kind, copy=True)
    for major in range(len(found.indptr) - 1):
        own = slice(found.indptr[major], found.indptr[major + 1])
        order = rng.permutation(own.stop - own.start)
        found.indices[own], found.data[own] = found.indices[own][order], found.data[own][order]
    found.has_sorted_indices = False
    return found


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
@pytest.mark.parametrize("compressed", [True, False])
def test_every_sparse_format_is_the_same_matrix(problem, kind: str, compressed: bool, tmp_path: Path) -> None:
    X, y = problem
    sp.save_npz(tmp_path / "x.npz", in_format(X, kind), compressed=compressed)
    np.save(tmp_path / "y.npy", y)
    report = convert(
        [tmp_path / "x.npz"], tmp_path / "a.zarr", labels=tmp_path / "y.npy", shuffle=False, dtype="float64"
    )
    matrix, labels = stored(tmp_path / "a.zarr")
    np.testing.assert_allclose(matrix, sp.load_npz(tmp_path / "x.npz").toarray(), rtol=1e-15)
    assert labels == y.tolist()
    assert (report.n, report.d, report.nnz, report.empty_rows) == (N, D, X.nnz, 1)
    assert report.index_base is None


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "bool", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_arrays_of_any_type(problem, dtype: str, order: Any, tmp_path: Path) -> None:
    X = (problem[0].toarray() * 8).astype(dtype)
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    (tmp_path / "y.txt").write_text("\n".join(problem[1]) + "\n")
    convert([tmp_path / "x.npy"], tmp_path / "a.zarr", labels=tmp_path / "y.txt", shuffle=False)
    matrix, labels = stored(tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix, X.astype(np.float32))
    assert labels == problem[1].tolist()


def test_labels_may_be_another_array_and_some_missing(problem, tmp_path: Path) -> None:
    y = np.where(np.arange(N) % 10 == 0, np.nan, np.arange(N) % 3)
    np.savez(tmp_path / "x.npz", X=problem[0].toarray(), y=y)
    report = convert([tmp_path / "x.npz"], tmp_path / "a.zarr", label="y", shuffle=False)
    matrix, labels = stored(tmp_path / "a.zarr")
    assert report.unlabelled == 30
    np.testing.assert_array_equal(matrix, problem[0].toarray().astype(np.float32)[np.arange(N) % 10 != 0])
    assert labels == [str(i % 3) for i in range(N) if i % 10]
    with pytest.raises(InputError, match=r"has no array 'z'; it has 'X', 'y'"):
        convert([tmp_path / "x.npz"], tmp_path / "b.zarr", label="z")
    with pytest.raises(InputError, match=r"its labels are missing.*labels=.*label="):
        convert([tmp_path / "x.npz"], tmp_path / "b.zarr")


def test_several_matrices_are_one(problem, tmp_path: Path) -> None:
    X, y = problem
    for name, part in ("a", slice(0, 100)), ("b", slice(100, N)):
        np.savez(tmp_path / f"{name}.npz", X=X[part].toarray(), y=y[part])
    convert([tmp_path / "a.npz", tmp_path / "b.npz"], tmp_path / "a.zarr", label="y", shuffle=False)
    matrix, labels = stored(tmp_path / "a.zarr")
    np.testing.assert_array_equal(matrix, X.toarray().astype(np.float32))
    assert labels == y.tolist()


@pytest.mark.parametrize("kind", ["csr", "csc", "dense"])
def test_values_that_are_not_finite_are_named_or_skipped(problem, kind: str, tmp_path: Path) -> None:
    X, y = problem
    dense = X.toarray()
    dense[7, 3], dense[9, 0] = np.nan, 1e39
    if kind == "dense":
        np.savez(tmp_path / "x.npz", dense)
    else:
        sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(dense).asformat(kind))
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(InputError, match=r"x\.npz, row 8, column 4: nan is not finite"):
        convert([tmp_path / "x.npz"], tmp_path / "a.zarr", labels=tmp_path / "y.npy")
    report = convert(
        [tmp_path / "x.npz"], tmp_path / "a.zarr", labels=tmp_path / "y.npy", on_error="skip", shuffle=False
    )
    assert (report.skipped, len(report.first_errors)) == (2, 2)
    kept = ~np.isin(np.arange(N), [7, 9])
    np.testing.assert_array_equal(stored(tmp_path / "a.zarr")[0], dense[kept].astype(np.float32))


def test_unlabelled_rows_are_read_without_files_left_behind(problem, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "x.npz", problem[0].tocsc())
    reader = open_reader([tmp_path / "x.npz"], labelled=False, folder=tmp_path)
    assert sum(rows.n_rows for rows, _ in reader) == N
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz"]


def test_damaged_and_foreign_arrays_are_named(problem, tmp_path: Path) -> None:
    X, y = problem
    np.save(tmp_path / "y.npy", y)

    def refused(name: str, message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            convert([tmp_path / name], tmp_path / "a.zarr", labels=tmp_path / "y.npy")
        assert "\n" not in str(caught.value)

    sp.save_npz(tmp_path / "x.npz", X)
    content = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "short.npz").write_bytes(content[: len(content) // 2])
    refused("short.npz", "short.npz is a damaged or truncated zip archive")
    np.save(tmp_path / "x.npy", X.toarray())
    (tmp_path / "short.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:900])
    refused("short.npy", "short.npy is damaged or truncated")
    np.save(tmp_path / "objects.npy", np.array([[object()]]), allow_pickle=True)
    refused("objects.npy", "holds Python objects, a pickle, which is not read")
    sp.save_npz(tmp_path / "dia.npz", sp.eye(N, format="dia"))
    refused("dia.npz", r"a 'dia' matrix of SciPy, which is not read; .*tocsr")
    np.save(tmp_path / "flat.npy", np.zeros(5))
    refused("flat.npy", "has 0 arrays of two axes, not one")
    np.save(tmp_path / "text.npy", np.array([["a", "b"]]))
    refused("text.npy", "holds <U1, and not numbers")
    for name, change in {
        "indices": lambda a: a + D,
        "indptr": lambda a: a[::-1],
        "data": lambda a: a[1:],
    }.items():
        parts = dict(np.load(tmp_path / "x.npz"))
        parts[name] = change(parts[name])
        np.savez(tmp_path / "bad.npz", **parts)
        refused("bad.npz", "is damaged")
    (tmp_path / "y.npy").write_bytes(pickle.dumps([1]))
    np.save(tmp_path / "y.npy", y[1:])
    refused("x.npy", r"labels of shape \(299,\) for the 300 rows")
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("a.txt", "a")
    refused("other.npz", "is a zip archive of other files")


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (300, 40), }"
MALFORMED = {
    "an open parenthesis": HEADER.replace("40), }", "40, }"),
    "an open brace": HEADER[:-1],
    "nothing": "",
    "minus signs": "-" * 9000 + "1",
    "nested": "(" * 3000 + ")" * 3000,
    "too long": "[" * 60000,
    "more than the file": HEADER.replace("300", str(10**10)),
    "more than memory": HEADER.replace("300, 40", "1000000000, 1000000000"),
    "beyond 64 bits": HEADER.replace("300", str(10**30)),
    "an overflow to 0": HEADER.replace("300, 40", f"{2**32}, {2**32}"),
    "a negative size": HEADER.replace("300", "-300"),
    "a truth value": HEADER.replace("300", "True"),
    "a key that is a number": HEADER.replace("'descr'", "1"),
    "a key that is a list": HEADER.replace("'descr'", "[]"),
    "an unknown type": HEADER.replace("<f8", "<f3"),
    "objects": HEADER.replace("<f8", "|O"),
    "structures": HEADER.replace("'<f8'", "[('a', '<f8')]"),
}


def in_npy(header: str, version: int = 2, content: bytes = bytes(8 * N * D)) -> bytes:
    """A file in NumPy's format 2.0 or 3.0, byte by byte."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(4, "little") + text + content


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_header_is_one_line(tmp_path: Path, what: str) -> None:
    content = in_npy(MALFORMED[what])
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("X.npy", content)
    labels = MALFORMED[what].replace("(300, 40)", "(300,)").replace(", 40", "")
    (tmp_path / "labels").write_bytes(in_npy(labels))
    np.save(tmp_path / "good.npy", np.eye(N))

    def refused(name: str, work: Any) -> None:
        with pytest.raises(InputError, match=name) as caught:
            work()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < len(str(tmp_path)) + 300
        assert not re.search(r"ast\.|malformed node|literal_eval|mmap", str(caught.value))

    for name in ("x.npy", "x.npz"):
        path = tmp_path / name
        refused(name, lambda path=path: convert([path], tmp_path / "a.zarr", labels=tmp_path / "labels"))
        refused(name, lambda path=path: list(open_reader([path], labelled=False)))
    if what != "structures":  # of which a label is a tuple: the row is named
        good = tmp_path / "good.npy"
        refused("labels", lambda: convert([good], tmp_path / "a.zarr", labels=tmp_path / "labels"))


@pytest.mark.parametrize("at", range(0, 140, 9))
def test_a_truncated_header_is_one_line(problem, tmp_path: Path, at: int) -> None:
    np.save(tmp_path / "whole.npy", problem[0].toarray())
    (tmp_path / "x.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:at])
    with pytest.raises(InputError, match=r"x\.npy"):
        list(open_reader([tmp_path / "x.npy"], labelled=False))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("error")
def test_headers_of_every_version_are_read(problem, tmp_path: Path, version: int) -> None:
    X = problem[0].toarray()
    by_python_2 = HEADER.replace("300", "300L")
    for header, content in (
        (HEADER, X.tobytes()),
        (HEADER.replace("False", "True"), X.T.tobytes()),
        (by_python_2, X.tobytes()),
    ):
        if version == 3 and header == by_python_2:
            continue
        (tmp_path / "x.npy").write_bytes(in_npy(header, version, content))
        read = [
            sp.csr_array((rows.data, rows.indices, rows.indptr), (rows.n_rows, D)).toarray()
            for rows, _ in open_reader([tmp_path / "x.npy"], labelled=False, dtype="float64")
        ]
        np.testing.assert_array_equal(np.concatenate(read), X)
        if header != by_python_2:
            found = describe_file(tmp_path / "x.npy")
            assert (found["shape"], found["dtype"]) == ([N, D], "float64")


@pytest.mark.parametrize(
    "change",
    [
        {"format": np.array([b"csr", b"csr"])},
        {"format": np.array([], "S3")},
        {"shape": np.array("abc")},
        {"shape": np.array([np.nan, 40])},
        {"shape": np.array([np.inf, 40])},
    ],
)
def test_a_sparse_matrix_of_no_format_or_shape_is_one_line(problem, tmp_path: Path, change: dict) -> None:
    sp.save_npz(tmp_path / "x.npz", problem[0])
    np.savez(tmp_path / "x.npz", **{**np.load(tmp_path / "x.npz"), **change})
    with pytest.raises(InputError, match=r"x\.npz is damaged"):
        list(open_reader([tmp_path / "x.npz"], labelled=False))
