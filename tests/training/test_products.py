"""Dense rows of many classes, whose scores and updates are matrix products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from helpers import IN_FILES, MemoryPolicy, fit_with
from helpers import plain_fit as fit
from resuming import assert_resumes
from small_problem import of_loss

from streamsvm import evaluate, load_model
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.training.products import tile_rows

pytestmark = pytest.mark.engine

N, D, K = 400, 20, 70  # more classes than the columns with which rows are visited one at a time
OPTIONS: dict[str, Any] = {
    "passes": 2, "C": 0.3, "gap": "pass", "dtype": "float64", "transform": "none",
    "average": False,  # that of products takes all steps of a tile to be made at once
}  # fmt: skip


def problem(n_classes: int = K, n_rows: int = N, n_features: int = D) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    means, labels = rng.normal(size=(n_classes, n_features)), rng.permutation(np.arange(n_rows) % n_classes)
    return means[labels] + rng.normal(size=(n_rows, n_features)), labels


MANY = problem(n_classes=260, n_rows=700)  # with which products are shared by threads


@pytest.fixture
def from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let dense rows begin where sparse ones do, and not at the means of the classes."""
    monkeypatch.setattr("streamsvm.training.spec.Spec.starts_at_means", False)


def same(dense: Any, sparse: Any) -> None:
    """Check that two models, and what was measured of them, are equal up to rounding."""
    np.testing.assert_allclose(dense.coef_, sparse.coef_, rtol=1e-6, atol=1e-9)
    for found, expected in zip(dense.result.history, sparse.result.history, strict=True):
        names = {"dual", "primal", "average_primal", "train_accuracy", "progressive_accuracy"}
        assert names & found.keys() == names & expected.keys() >= {"dual", "primal", "train_accuracy"}
        for name in names & found.keys():
            assert found[name] == pytest.approx(expected[name], rel=1e-6), name


@pytest.mark.usefixtures("from_zero")
@pytest.mark.parametrize("loss", few(LOSSES, "ww", "cs"))
def test_iterates_are_those_of_one_row_at_a_time(loss: str) -> None:
    X, y = problem()
    options = {**OPTIONS, **of_loss(loss), "inner_passes": 0}
    same(fit(X, y, **options), fit(sp.csr_array(X), y, **options))


@pytest.mark.parametrize("n_classes", [3, 20, 64])
def test_dense_rows_of_few_classes_are_those_of_csr(n_classes: int) -> None:
    """With inner passes: rows are visited one at a time, as sparse ones are."""
    X, y = problem(n_classes)
    same(fit(X, y, **OPTIONS), fit(sp.csr_array(X), y, **OPTIONS))


@pytest.mark.usefixtures("from_zero")
def test_weights_of_rows_and_classes_costs_and_several_labels() -> None:
    X, y = problem()
    rng = np.random.default_rng(1)
    several = np.zeros((N, K))
    several[np.arange(N), y] = several[np.arange(N), rng.integers(0, K, N)] = 1
    costs = rng.uniform(0.5, 2, (K, K)) * (1 - np.eye(K))
    given = {"sample_weight": rng.integers(0, 3, N).astype(float), "class_weight": "balanced"}
    for labels, more in ((y, given), (y, {"costs": costs}), (several, {})):
        options = {**OPTIONS, "inner_passes": 0, **more}
        same(fit(X, labels, **options), fit(sp.csr_array(X), labels, **options))


@pytest.mark.parametrize("average", [False, True])
def test_any_number_of_threads_gives_the_same_bytes(average: bool) -> None:
    X, y = problem(n_classes=1100, n_rows=1500, n_features=400)
    options: dict[str, Any] = {"passes": 2, "C": 0.1, "average": average, "gap": "pass"}
    one, two, three = (fit(X, y, workers=workers, **options) for workers in (1, 2, 3))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.coef_, three.coef_)
    assert one.result.primal == two.result.primal == three.result.primal


def test_steps_that_move_few_columns() -> None:
    """Those of the last rows of a pass, which are few."""
    X, y = problem(n_classes=1100, n_rows=5 * tile_rows(1104, 8) + 4)
    options = {**OPTIONS, "loss": "cs", "inner_passes": 0}
    same(fit(X, y, **options), fit(sp.csr_array(X), y, **options))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AnnData with a dense X."""
    X, y = MANY
    path = tmp_path_factory.mktemp("dense") / "data.h5ad"
    obs = pd.DataFrame({"label": y}, index=np.arange(len(y)).astype(str))
    anndata.AnnData(X.astype(np.float32), obs).write_h5ad(path)
    return path


def test_a_run_stopped_and_resumed_anywhere_has_the_same_bytes(tmp_path: Path, store: Path) -> None:
    options: dict[str, Any] = {"passes": 2, "C": 0.3, "block_rows": 130, "gap": "pass", "label": "label"}
    assert_resumes(tmp_path, store, (1, 3, 6, 9, 12), workers=2, **options)
    model = load_model(tmp_path / "whole")
    accuracy = evaluate(model, store).accuracy
    assert accuracy == pytest.approx((model.predict(MANY[0].astype(np.float32)) == MANY[1]).mean())


@pytest.mark.parametrize("policy", [IN_FILES, MemoryPolicy(dual_share=0.0)])
def test_weights_in_files_and_little_room_for_duals_give_the_same_model(
    tmp_path: Path, store: Path, policy: MemoryPolicy
) -> None:
    options = {**OPTIONS, "label": "label", "average": False}
    fit(store, out=tmp_path / "memory", **options)
    fit_with(policy, store, out=tmp_path / "other", **options)
    other, memory = (load_model(tmp_path / name).coef_ for name in ("other", "memory"))
    np.testing.assert_allclose(other, memory, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("split", ["rows", "classes"])
def test_splits_train_on_them_as_on_csr(tmp_path: Path, store: Path, split: str) -> None:
    X, y = MANY
    options = {**OPTIONS, "splits": 2, "split": split}
    fit(store, out=tmp_path / "run", label="label", **options)
    expected = fit(sp.csr_array(X.astype(np.float32)), y, **options)
    np.testing.assert_allclose(load_model(tmp_path / "run").coef_, expected.coef_, rtol=1e-6, atol=1e-9)
