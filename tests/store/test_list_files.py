"""Columns of lists of numbers in Parquet and Arrow files are dense rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from streamsvm import open_store
from streamsvm.errors import InputError, StoreError
from streamsvm.store import list_file
from streamsvm.store.kinds import is_read_in_place, is_trained_in_place

N, D = 200, 6


X = np.random.default_rng(0).normal(size=(N, D))
y = np.random.default_rng(1).choice(["b", "a", "01"], N)


def write(path: Path, table: pa.Table) -> Path:
    """Parquet in row groups of 30, or Arrow in batches of 30: a file, or a stream as datasets writes it."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=30)
        return path
    new = pa.ipc.new_file if path.suffix == ".feather" else pa.ipc.new_stream
    with new(str(path), table.schema) as writer:
        for batch in table.to_batches(max_chunksize=30):
            writer.write_batch(batch)
    return path


@pytest.mark.parametrize(
    ("suffix", "dtype", "fixed"),
    [(".parquet", "f4", False), (".parquet", "f2", True), (".arrow", "f8", True), (".feather", "i2", False)],
)
def test_lists_of_one_length_are_dense_rows(tmp_path: Path, suffix: str, dtype: str, fixed: bool) -> None:
    vectors = (X * 30 + 300 if dtype == "i2" else X).astype(dtype)
    values = pa.array(vectors.ravel())
    if fixed:
        lists: Any = pa.FixedSizeListArray.from_arrays(values, D)
    else:
        lists = pa.ListArray.from_arrays(pa.array(np.arange(N + 1, dtype=np.int32) * D), values)
    path = write(tmp_path / f"t{suffix}", pa.table({"text": y, "vector": lists, "y": y}))
    with open_store(path, label="y") as store:
        assert (store.n_rows, store.n_features, store.facts.dense_rows) == (N, D, True)
        assert store.classes == ("01", "a", "b")
        assert store.label_dtype == "str"
        ranges = np.array([(190, 200), (25, 95), (0, 1)])
        numbers = np.r_[190:200, 25:95, 0:1]
        rows = store.read(ranges)
        np.testing.assert_array_equal(rows.matrix, vectors[numbers].astype("f8" if dtype == "f8" else "f4"))
        np.testing.assert_array_equal(np.array(store.classes)[rows.labels], y[numbers])
    np.save(tmp_path / "y.npy", np.arange(N) % 3)
    with open_store(path, labels=tmp_path / "y.npy") as store:
        np.testing.assert_array_equal(store.labels(0, N), np.arange(N) % 3)


def test_groups_of_rows_and_loaded_matrices_may_be_larger_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.store.container.MAX_CHUNK_BYTES", 100)
    sp.save_npz(tmp_path / "t.npz", sp.csr_array(X))
    for path in (write(tmp_path / "t.parquet", pa.table({"vector": X.tolist()})), tmp_path / "t.npz"):
        with open_store(path, labelled=False, memory=2**20) as store:
            np.testing.assert_array_equal(sp.csr_array(store.rows(0, N).matrix).toarray(), X)


def test_labels_that_are_missing_are_left_out(tmp_path: Path) -> None:
    columns: list[tuple[pa.Array, tuple[str, ...], list[int]]] = [
        (pa.array([2, None, 10, -1]), ("-1", "2", "10"), [1, 2, 0]),
        (pa.array(["b", None, "NA", "a"]).dictionary_encode(), ("a", "b"), [1, 0]),
        (pa.array([True, False, True, False]), ("False", "True"), [1, 0, 1, 0]),
    ]
    for labels, classes, codes in columns:
        path = write(tmp_path / "t.parquet", pa.table({"vector": X[:4].tolist(), "y": labels}))
        with open_store(path, label="y") as store:
            assert store.classes == classes
            assert store.labels(0, store.n_rows).tolist() == codes


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    lists: list[Any] = X.tolist()

    def row_70(value: Any) -> list[Any]:
        return [*lists[:70], value, *lists[71:]]

    refused: list[tuple[dict[str, Any], str, type, str]] = [
        (
            {"v": row_70(lists[70][:5])},
            "y",
            StoreError,
            "row 71: the list has 5 numbers, but the first row has 6",
        ),
        ({"v": row_70(None)}, "y", StoreError, "row 71: the list is missing"),
        ({"v": row_70([None] * D)}, "y", StoreError, "row 71: a number is missing"),
        ({"v": row_70([np.inf] * D)}, "y", StoreError, "X, row 71: a value is not finite"),
        ({"v": [[], *lists[1:]]}, "y", StoreError, "row 1: the list is empty"),
        ({"v": lists, "w": lists}, "y", StoreError, "has 2 columns of lists of numbers .*among y, v, w"),
        ({"v": X[:, 0]}, "y", StoreError, "has 0 columns of lists of numbers.*convert"),
        ({"v": lists}, "z", InputError, "no label column 'z'; it has y"),
        ({"v": lists, "t": np.zeros(N, "M8[s]")}, "t", InputError, "column 't' has type timestamp"),
    ]
    for path in tmp_path / "t.parquet", tmp_path / "t.arrow":
        for columns, label, error, words in refused:
            write(path, pa.table({"y": y, **columns}))
            with pytest.raises(error, match=words), open_store(path, label=label) as store:
                store.rows(0, N)
        path.write_bytes(path.read_bytes()[:400])
        with pytest.raises(StoreError, match="damaged"):
            open_store(path, label="y")


def test_large_row_groups_are_read_a_few_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in any order; those that follow the last ones are not decoded twice."""
    monkeypatch.setattr(list_file, "_READ_BYTES", 20 * 8 * D)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"vector": X.tolist(), "y": y}), path, row_group_size=N)
    assert is_read_in_place(path)
    assert not is_trained_in_place(path)
    decoded: list[int] = []
    values = list_file.ListFile.values
    counted = lambda *given: (decoded.append(len(each)) or each for each in values(*given))  # noqa: E731
    with open_store(path, label="y") as store:
        monkeypatch.setattr(list_file.ListFile, "values", counted)
        for start in range(0, N, 10):
            np.testing.assert_array_equal(store.rows(start, start + 10).matrix, X[start : start + 10])
        assert sum(decoded) == N
        assert max(decoded) <= 20
        np.testing.assert_array_equal(store.read(np.array([(150, 160), (3, 5)])).matrix[-2:], X[3:5])
        np.testing.assert_array_equal(np.array(store.classes)[store.labels(0, N)], y)
