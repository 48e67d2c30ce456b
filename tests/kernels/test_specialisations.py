"""All specialisations of kernels compile and train: other tests have most losses in one dtype alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import make_problem
from helpers import plain_fit as fit
from small_problem import of_loss

from streamsvm.losses import LOSSES, ROW_LOSSES

pytestmark = pytest.mark.engine

K = 5
# Settings for which kernels of rows are specialised, beside the type of the numbers.
COSTS = 1.0 - np.eye(K)
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "margins": {"costs": COSTS},
    "costs": {"costs": COSTS, "costs_as": "both"},
    "labels": {},
    "weighted labels": {"class_weight": {0: 2.0}},
    "split": {"split": "classes", "splits": 2},
}


def cases() -> list[tuple[str, str]]:
    """Each loss with the settings that it takes and that specialise its kernels."""
    found = []
    for loss in ROW_LOSSES.values():
        takes = {
            "plain": True,
            "margins": loss.pair_margins and not loss.pair_costs,
            "costs": loss.pair_costs,  # the same kernels as of margins
            "labels": loss.label_sets,
            "weighted labels": loss.label_sets and loss.own_dual,
            "split": loss.split_module is not None,
        }
        found += [(loss.name, kind) for kind, taken in takes.items() if taken]
    return found


@pytest.mark.parametrize("dtype", few(["float32", "float64"], "float64"))
@pytest.mark.parametrize(("loss", "kind"), cases())
def test_kernels_of_rows(loss: str, kind: str, dtype: str) -> None:
    X, labels = make_problem(20, 6, K)
    own = np.arange(K) == labels[:, None]
    own[::3, 0] = True
    y = own if "labels" in kind else labels
    result = fit(X, y, passes=2, dtype=dtype, **of_loss(loss), **SETTINGS[kind]).result
    assert result.dual <= result.primal


@pytest.mark.parametrize("dtype", few(["float32", "float64"], "float64"))
@pytest.mark.parametrize("solver", LOSSES["chain"].solvers)
def test_kernels_of_sequences(solver: str, dtype: str) -> None:
    X, labels = make_problem(20, 6, K)
    groups = np.arange(20) // 4
    result = fit(X, labels, groups=groups, loss="chain", solver=solver, passes=2, dtype=dtype).result
    assert result.dual <= result.primal
