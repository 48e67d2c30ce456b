"""A small problem, and a store of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_problems import Problem, make_problem


@pytest.fixture
def problem() -> Problem:
    return make_problem()


@pytest.fixture
def stored(problem: Problem, tmp_path: Path) -> Path:
    path = tmp_path / "small.zarr"
    problem.write(path, meta={"shuffle_seed": 7, "sources": [{"name": "a.txt", "size": 1, "sha256": "0"}]})
    return path
