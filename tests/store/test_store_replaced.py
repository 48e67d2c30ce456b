"""Chunks, files or whole stores that are replaced by others are noticed, and special files are refused."""

from __future__ import annotations

import os
import shutil

import pytest
from store_problems import Problem, assert_rows_equal, make_problem

from streamsvm.base import durable
from streamsvm.errors import StoreError
from streamsvm.store import Store, open_store


@pytest.fixture
def problem() -> Problem:
    """Several chunks of each array."""
    return make_problem(n=2500, d=60, density=0.1)


def changed(problem: Problem) -> Problem:
    """Other values in the same positions, so that all shapes are the same."""
    matrix = problem.matrix.copy()
    matrix.data += 1
    return Problem(matrix, (problem.labels + 1) % 4, problem.classes, problem.names)


def read_all(store: Store) -> None:
    store.rows(0, 2500)


# -- the store as a whole, while it is read --------------------------------------------------------


@pytest.mark.parametrize("deleted", [True, False])
def test_a_zarr_store_replaced_while_it_is_open_gives_no_more_rows(problem, tmp_path, deleted) -> None:
    path, aside = tmp_path / "a.zarr", tmp_path / "previous"
    problem.write(path)
    changed(problem).write(tmp_path / "b.zarr")
    with open_store(path) as store:
        assert_rows_equal(store.rows(0, 9), problem.matrix[:9], problem.labels[:9])
        path.rename(aside)
        if deleted:
            shutil.rmtree(aside)
        with pytest.raises(StoreError, match=r"a\.zarr: the store was removed or replaced"):
            read_all(store)
        (tmp_path / "b.zarr").rename(path)
        with pytest.raises(StoreError, match=r"a\.zarr: the store was replaced by another"):
            read_all(store)


def test_an_hdf5_store_stays_readable_if_it_is_replaced_and_not_if_it_is_overwritten(
    problem, tmp_path
) -> None:
    path, other = tmp_path / "a.h5", tmp_path / "b.h5"
    problem.write(path, codec="none")
    changed(problem).write(other, codec="none")
    before, after = path.read_bytes(), other.read_bytes()
    assert len(before) == len(after)
    with open_store(path) as store:
        os.replace(other, path)
        assert_rows_equal(store.rows(0, 2500), problem.matrix, problem.labels)
    with open_store(path) as store:
        assert (store.rows(0, 2500).data == problem.matrix.data + 1).all()
        path.write_bytes(before)
        with pytest.raises(StoreError, match=r"a\.h5: the file was written to while it was in use"):
            read_all(store)


# -- pipes, devices and oversized files ------------------------------------------------------------


def test_special_and_oversized_files_are_refused_at_once(tmp_path, soon) -> None:
    path, problem = tmp_path / "a.zarr", make_problem(n=2500, d=60, density=0.1)
    problem.write(path)
    expected = (
        r"not a regular file|not a Zarr store|there is no array|the chunk is missing|only .* are stored"
    )
    for place in "zarr.json", "X/data/zarr.json", "X/data/c/1", "obs/label/codes/c/0":
        (path / place).rename(tmp_path / "aside")
        for put in os.mkfifo, lambda file: file.symlink_to("/dev/zero"):
            put(path / place)
            with pytest.raises(StoreError, match=expected), open_store(path) as store:
                read_all(store)
            (path / place).unlink()
        (tmp_path / "aside").rename(path / place)
    for place in "X/data/zarr.json", "zarr.json":
        os.truncate(path / place, durable.MAX_RECORD_BYTES + 1)
        with pytest.raises(StoreError, match="134,217,729 bytes, exceeds the limit of 134,217,728"):
            open_store(path)
