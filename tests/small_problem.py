"""The small problem that most tests of training share, and the losses that they try."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from helpers import make_problem, make_store
from sklearn.datasets import load_svmlight_file

from streamsvm.losses import ROW_LOSSES as LOSSES

N, D, K = 70, 11, 5
BLOCK = 16  # rows: five blocks, the last of six

# Block solvers whose steps are exact; those of the others are compared with nothing but their own promises.
EXACT = ("newton", "sorted", "clip")

# The settings of some losses alone, not at their defaults.
PARAMETERS: dict[str, dict[str, Any]] = {name: loss.values for name, loss in reference.LOSSES.items()}

# Loss, margin and solver of every formulation with exact steps: of each loss the default first.
FORMULATIONS = [
    (loss.name, margin, solver)
    for loss in LOSSES.values()
    for margin in loss.margins
    for solver in loss.solvers
    if solver in EXACT
]

# Each loss once, as it is by default; and those that an online pass takes.
DEFAULTS = [(loss.name, loss.margins[0], loss.solvers[0]) for loss in LOSSES.values()]
ONLINE = [loss.name for loss in LOSSES.values() if not loss.extra_columns]


def of_loss(loss: str) -> dict[str, Any]:
    """The settings that train with a loss."""
    return {"loss": loss, **PARAMETERS[loss]}


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The first 200 of the digits that the package brings, and their classes."""
    path = Path(__file__).parents[1] / "cli" / "digits" / "digits.train.xz"
    with lzma.open(path) as file:
        X, labels = load_svmlight_file(file)
    return X[:200].toarray() / 16, labels[:200].astype(int)


def exactly(loss: str) -> dict[str, Any]:
    """Settings that come near the optimum: with many inner passes, or many passes where there are none."""
    of_loss = {"passes": 5000, "inner_passes": 30} if LOSSES[loss].has_inner_passes else {"passes": 50_000}
    return {"dtype": "float64", "average": False, "tol": 3e-7, **of_loss}


def assert_encloses(result: Any, optimum: float, rounding: float = 1e-7, near: float = 1e-6) -> None:
    """The primal and the dual of a training are next to the optimum, on either side."""
    assert result.status == "converged"
    assert result.dual <= optimum * (1 + rounding)
    assert result.primal >= optimum * (1 - rounding)
    assert result.dual == pytest.approx(optimum, rel=near)
    assert result.primal == pytest.approx(optimum, rel=near)


@pytest.fixture(scope="session")
def problem() -> tuple[sp.csr_array, np.ndarray]:
    """Rows, one of which has no values, and class codes."""
    X, labels = make_problem(N, D, K, noise=1.5, empty=1)
    labels[~X.toarray().any(axis=1)] = 1  # all their scores are 0, and the first class wins
    return X, labels


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, problem: tuple[sp.csr_array, np.ndarray]) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.h5", *problem)
