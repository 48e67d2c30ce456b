"""A store that is written in parts: the files of one that is written at once, wherever it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.rows import Rows, row_span
from streamsvm.data.statistics import join_spans, spans
from streamsvm.errors import StoreError
from streamsvm.store import StoreWriter, open_store
from streamsvm.store.part_writer import array_digest, span_statistics, write_part
from streamsvm.store.rows_writer import Sizes

N, D, K = 600, 30, 5


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Rows with all columns; two groups of rows in three end where a part may."""
    rng = np.random.default_rng(0)
    kept = rng.random((N, D)) < rng.random((N, 1)) * 0.4
    indices = np.nonzero(kept)[1].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    lists = rng.random((N, K)) < 0.3
    codes = np.nonzero(lists)[1].astype(np.int32)
    label_indptr = np.concatenate([[0], np.cumsum(lists.sum(axis=1))])
    labels = np.where(lists.any(axis=1), lists.argmax(axis=1), -1).astype(np.int32)
    data = rng.normal(size=len(indices)).astype(np.float32)
    none = np.empty(0)
    return Rows(
        data, indices, indptr, labels, none, rng.random(N), codes, label_indptr, np.arange(N) // 4 * 3
    )


def writer(path: Path, rows: Rows, **options: Any) -> StoreWriter:
    return StoreWriter(
        path, "zarr", shape=(N, D), nnz=len(rows.data), classes=[f"c{k}" for k in range(K)], dtype="float32",
        index_base=1, weighted=True, grouped=True, n_labels=len(rows.label_codes), statistics=True, **options,
    )  # fmt: skip


def files_of(store: Path) -> dict[str, bytes]:
    return {str(each.relative_to(store)): each.read_bytes() for each in store.rglob("*") if each.is_file()}


@pytest.mark.parametrize("cuts", [[], [300], [1, 2, 3, 598], list(range(0, N, 7)), [100, 100, 400]])
@pytest.mark.parametrize("chunk_nnz", [50, 2**18])
def test_parts_are_the_store(tmp_path: Path, rows: Rows, cuts: list[int], chunk_nnz: int) -> None:
    names = np.random.default_rng(1).permutation(N)
    with writer(tmp_path / "one.zarr", rows, chunk_nnz=chunk_nnz) as whole:
        whole.append(rows, names)
        fingerprint = whole.finish()
    with writer(tmp_path / "two.zarr", rows, chunk_nnz=chunk_nnz, threads=2) as parted:
        settings = parted.part_settings()
        before = Sizes()
        for begin, end in zip([0, *cuts], [*cuts, N], strict=True):
            middle = (begin + end) // 2  # a part of two batches
            batches = [
                (row_span(rows, *ends), names[slice(*ends)]) for ends in ((begin, middle), (middle, end))
            ]
            part = write_part(settings, before, batches, tmp_path)
            parted.add_part(part)
            before = part.after
        parted.complete_rows()
        digests = {name: array_digest(parted.path, name) for name in settings.arrays}
        found = join_spans(span_statistics(parted.path, D, *ends) for ends in spans(N))
        assert parted.finish(digests, found) == fingerprint
    assert files_of(tmp_path / "two.zarr") == files_of(tmp_path / "one.zarr")
    with open_store(tmp_path / "two.zarr") as store:
        store.verify()


def test_parts_that_do_not_fit_are_refused(tmp_path: Path, rows: Rows) -> None:
    names = np.arange(N)
    with writer(tmp_path / "a.zarr", rows, chunk_nnz=50) as store:
        settings = store.part_settings()
        later = write_part(settings, Sizes(3, 9, 2), [(row_span(rows, 3, 9), names[3:9])], tmp_path)
        with pytest.raises(StoreError, match="a part begins after"):
            store.add_part(later)
        with pytest.raises(StoreError, match="weight is negative"):
            write_part(settings, Sizes(), [(rows._replace(cost=-rows.cost), names)], tmp_path)
        store.add_part(write_part(settings, Sizes(), [(row_span(rows, 0, 200), names[:200])], tmp_path))
        with pytest.raises(StoreError, match="200 of 600 rows"):
            store.finish({})
        rest = [(row_span(rows, 200, N), names[200:])]
        before = Sizes(200, int(rows.indptr[200]), int(rows.label_indptr[200]))
        store.add_part(write_part(settings, before, rest, tmp_path))
        with pytest.raises(ValueError, match="no digest"):
            store.finish()


def test_an_hdf5_file_has_one_writer(tmp_path: Path, rows: Rows) -> None:
    with (
        pytest.raises(StoreError, match="only a Zarr store"),
        StoreWriter(
            tmp_path / "a.h5", "hdf5", shape=(N, D), nnz=len(rows.data), classes=list("abcde"),
            dtype="float32", index_base=0, chunk_nnz=50,
        ) as store,
    ):  # fmt: skip
        store.part_settings()
