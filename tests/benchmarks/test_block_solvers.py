"""The papers' block solvers of Crammer-Singer train on the engine's frame, to the engine's optimum."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_blocks
from helpers import make_problem, make_store
from helpers import plain_fit as fit
from run_files import model_bytes, stop_after
from small_problem import BLOCK

from streamsvm import resume
from streamsvm.errors import Interrupted
from streamsvm.losses import LOSSES

pytestmark = [pytest.mark.engine, pytest.mark.more]

OPTIONS: dict[str, Any] = {"C": 0.3, "dtype": "float64", "average": False, "gap": "pass"}


@pytest.fixture(scope="module", autouse=True)
def solvers() -> Iterator[Any]:
    """The module of the solvers; what it adds to the loss is taken back at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LOSSES, "cs", LOSSES["cs"])
        patch.syspath_prepend(Path(__file__).parents[2] / "benchmarks/papers")
        yield importlib.import_module("block_solvers")


def test_all_approach_the_optimum(solvers: Any) -> None:
    """Between the same primal and dual as exact steps, with a gap that falls to a hundredth of its first."""
    X, labels = make_problem(80, 10, 5, noise=1.5)
    exact = fit(X, labels, loss="cs", passes=300, tol=1e-6, **OPTIONS).result
    for solver in solvers.SOLVERS:
        more = {"temperature": 5.0} if solver == "oeg" else {}  # its full steps are too long otherwise
        found = fit(X, labels, loss="cs", solver=solver, passes=100, **OPTIONS, **more).result
        assert found.dual <= exact.primal, solver
        assert found.primal >= exact.dual, solver
        assert found.gap <= 0.01 * found.history[0]["gap"], solver


def test_the_pivots_find_the_projection(solvers: Any) -> None:
    rng = np.random.default_rng(9)
    for _ in range(2000):
        C, m = 10 ** rng.uniform(-6, 6), int(rng.integers(1, 200))
        v = C * 10 ** rng.uniform(-6, 6) * rng.choice([rng.normal(size=m), rng.integers(-2, 3, size=m)])
        v += 3 * np.abs(v).max() + 3 * C  # the sum of the duals would exceed C
        theta = solvers.threshold_pivot(np.append(v - v.max(), np.full(8, np.nan)), m, C, v.max())
        expected = reference_blocks.project_to_simplex(v - v.max(), C)
        np.testing.assert_allclose(np.maximum(v - v.max() - theta, 0), expected, rtol=1e-9, atol=1e-12 * C)


def test_a_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    store = make_store(tmp_path / "s.zarr", *make_problem(70, 11, 5))
    for solver in ("smo", "bcpl"):
        options = {"loss": "cs", "solver": solver, "passes": 2, "block_rows": BLOCK, **OPTIONS}
        fit(store, out=tmp_path / solver, **options)
        with pytest.raises(Interrupted):
            fit(store, out=tmp_path / "run", stop=stop_after(7), checkpoint_every="1", force=True, **options)
        resume(tmp_path / "run")
        assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / solver)
