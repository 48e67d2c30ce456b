"""A small problem, and a store of it in each container."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import few
from store_problems import Problem, make_problem


@pytest.fixture
def problem() -> Problem:
    return make_problem()


@pytest.fixture(params=few(["zarr", "h5ad"], "zarr"))
def suffix(request) -> str:
    """The container of a store; that of HDF5 is for test_store_roundtrip.py and further cases."""
    return request.param


@pytest.fixture
def stored(problem: Problem, suffix: str, tmp_path: Path) -> Path:
    path = tmp_path / f"small.{suffix}"
    problem.write(path, meta={"shuffle_seed": 7, "sources": [{"name": "a.txt", "size": 1, "sha256": "0"}]})
    return path
