"""The small problem that most tests of training share, and its store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_problem, make_store
from small_problem import D, K, N


@pytest.fixture(scope="session")
def problem() -> tuple[sp.csr_array, np.ndarray]:
    """Rows, one of which has no values, and class codes."""
    X, labels = make_problem(N, D, K, noise=1.5, empty=1)
    labels[~X.toarray().any(axis=1)] = 1  # all their scores are 0, and the first class wins
    return X, labels


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, problem: tuple[sp.csr_array, np.ndarray]) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.h5", *problem)
