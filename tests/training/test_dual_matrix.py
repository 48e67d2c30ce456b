"""A matrix of duals, with a place for each class, against lists of those that are not zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import MemoryPolicy, dense_duals, fit_with, make_problem, make_store
from helpers import plain_fit as fit
from resuming import assert_resumes
from small_problem import of_loss

from streamsvm import load_model, open_store
from streamsvm.data.memory_plan import dual_id_dtype
from streamsvm.kernels.duals import from_lists, joined, new_matrix, to_lists
from streamsvm.losses import ROW_LOSSES
from streamsvm.training import inner_passes
from streamsvm.training.spec import Spec

N, D, K = 90, 12, 11
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ROW_LOSSES),
    ("ww", {"C_factors": (0.1, 0.5, 1.0), "average": True}),
    ("ww", {"class_weight": {"0": 0.0, "1": 3.0}}),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, labels = make_problem(N, D, K, density=0.5)
    X = X.toarray()
    X[3] = 0  # a row that has no duals
    return make_store(tmp_path_factory.mktemp("dense") / "a.zarr", sp.csr_array(X), labels)


@pytest.mark.parametrize(("loss", "options"), few(CASES, "ww", "llw", "logistic"))
def test_trainings_do_not_differ(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, loss: str, options: dict[str, Any]
) -> None:
    options = {"C": 0.3, "dtype": "float64", "passes": 3, "inner_passes": 0, **of_loss(loss), **options}
    found = [fit_with(MemoryPolicy(), store, out=tmp_path / "dense", **options)]
    monkeypatch.setattr(Spec, "dual_matrix_bytes", 0)
    found.append(fit_with(MemoryPolicy(), store, out=tmp_path / "lists", **options))
    dense, lists = (load_model(tmp_path / name).coef_ for name in ("dense", "lists"))
    np.testing.assert_allclose(dense, lists, rtol=1e-9, atol=1e-12)
    assert found[0].history[-1]["dual"] == pytest.approx(found[1].history[-1]["dual"], rel=1e-10)


@pytest.mark.parametrize("loss", few(["ww", "llw"], "ww"))
def test_a_resumed_training_reads_lists(tmp_path: Path, store: Path, loss: str) -> None:
    options = {"C": 0.3, "passes": 3, "loss": loss, "inner_passes": 0 if loss == "llw" else 2}
    assert_resumes(tmp_path, store, (1, 2), **options)


def test_lists_have_the_same_duals() -> None:
    rng = np.random.default_rng(0)
    n, ids = 40_000, dual_id_dtype(K)
    duals = new_matrix(n, K, np.dtype(np.float32))
    duals[:, :K] = rng.choice([0.0, 0.25, np.nan], (n, K), p=[0.6, 0.39, 0.01])
    duals[::3] = 0
    parts = list(to_lists(duals, ids))
    assert len(parts) > 1
    assert all(part.counts.all() for part in parts)
    lists, again = joined(parts).in_block(n), np.zeros_like(duals)
    np.testing.assert_array_equal(dense_duals(lists, K), duals[:, :K])
    from_lists(lists, again)
    np.testing.assert_array_equal(again, duals)


@pytest.mark.parametrize("dense", [True, False])
def test_rows_of_no_weight_do_not_count_as_visits(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    """Of which the number of inner passes is chosen: it would rise with rows that take no time."""
    counted = []
    number = inner_passes._choose_n_passes
    monkeypatch.setattr(
        inner_passes, "_choose_n_passes", lambda nnz, *rest: counted.append(len(nnz)) or number(nnz, *rest)
    )
    if not dense:
        monkeypatch.setattr(Spec, "dual_matrix_bytes", 0)
    options = {"class_weight": {"0": 0.0, "1": 0.0}, "passes": 2, "C": 0.3}
    fit(store, out=tmp_path / "run", **options)
    with open_store(store) as opened:
        rows = opened.rows(0, N)
    visited = [n for n in counted if n]  # and none as kernels are compiled
    assert visited == [np.count_nonzero((rows.labels > 1) & (rows.norm2 > 0))] * 2
