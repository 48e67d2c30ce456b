"""Weston-Watkins with a common dual: the iterates of the plain kernels, and a certificate of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import MemoryPolicy, fit_with, make_problem, make_store, plan_with
from helpers import plain_fit as fit
from small_problem import of_loss

from streamsvm import load_model, plan
from streamsvm.data import memory_plan
from streamsvm.losses import LOSSES
from streamsvm.training import plain_visits

pytestmark = pytest.mark.engine

N, D, K = 400, 120, 150
COMMON = MemoryPolicy(common_dual_classes=K, many_classes=K)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.zarr", *make_problem(N, D, K, density=0.05))


@pytest.mark.parametrize("C", few([1e-4, 0.02, 1.0, 50.0], 1e-4, 1.0))
@pytest.mark.parametrize(
    ("loss", "margin", "average"),
    few(
        [("ww", 1.0, True), ("ww", 1.0, False), ("ww", 0.5, True), ("ww2", 1.0, True), ("wws", 0.5, True)],
        ("ww", 1.0, True),
    ),
)
@pytest.mark.parametrize("passes", few([1, 4], 4))
def test_iterates_are_those_of_the_plain_kernels(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch,
    loss: str, margin: float, average: bool, C: float, passes: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(plain_visits, "_TIE_TOLERANCE", 0.0)
    options: dict[str, Any] = {
        "passes": passes, "dtype": "float64", "average": average, "inner_passes": 0, "margin": margin,
        "block_rows": 90, "C": C, **of_loss(loss),
    }  # fmt: skip
    if loss == "ww" and passes > 1:
        options["C_factors"] = (1 / 3, 2 / 3, 1.0)
    expected = fit_with(MemoryPolicy(), store, out=tmp_path / "plain", **options)
    found = fit_with(COMMON, store, out=tmp_path / "common", **options)
    for name in ("primal", "dual", "train_accuracy", "progressive_accuracy"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-7), name
    if average:
        assert found.last_iterate == pytest.approx(expected.last_iterate, rel=1e-7)
    plain, common = (np.asarray(dense(tmp_path / name)) for name in ("plain", "common"))
    common = common - common.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(common, plain, rtol=0, atol=1e-7 * np.abs(plain).max())


def dense(run: Path) -> Any:
    coef = load_model(run).coef_.T
    return coef if isinstance(coef, np.ndarray) else coef.toarray()


def test_scores_that_count_as_one_do_so_in_the_first_pass_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of rows without duals, too: of many of them no later pass would ever find the dual."""
    monkeypatch.setattr(plain_visits, "_TIE_TOLERANCE", 0.9)
    overlapping = make_store(tmp_path / "a.zarr", *make_problem(300, 60, 10, noise=0.5, density=0.3))
    options: dict[str, Any] = {"dtype": "float64", "inner_passes": 0, "C": 1.0, "average": False}
    common = MemoryPolicy(common_dual_classes=2, many_classes=2)
    found = fit_with(common, overlapping, out=tmp_path / "run", passes=300, tol=1e-4, **options)
    assert found.status == "converged"


def test_the_gap_is_that_of_the_model(tmp_path: Path, store: Path) -> None:
    """Primal and dual from the definition, by the model's coefficients less their mean."""
    X, y = make_problem(N, D, K, density=0.05)
    found = fit_with(COMMON, store, out=tmp_path / "run", passes=3, C=0.5, average=False, dtype="float64")
    W = dense(tmp_path / "run")
    W = W - W.mean(axis=1, keepdims=True)
    scores = X @ W
    own = scores[np.arange(N), y]
    slack = np.maximum(1 - (own[:, None] - scores), 0)
    slack[np.arange(N), y] = 0
    assert found.primal == pytest.approx(0.5 * (W**2).sum() + 0.5 * slack.sum(), rel=1e-6)


def test_who_has_a_common_dual(store: Path) -> None:
    assert plan_with(COMMON, store)["common_dual"]
    assert not plan(store)["common_dual"]
    for loss in LOSSES.values():
        if not loss.sequences:
            assert plan_with(COMMON, store, loss=loss.name)["common_dual"] is loss.name.startswith("ww")
    for other in ({"inner_passes": 2}, {"solver": "sorted"}, {"solver": "shark"}):
        assert not plan_with(COMMON, store, **other)["common_dual"]
    assert plan_with(COMMON, store)["sparse"]
    one_more = dataclasses.replace(COMMON, common_dual_classes=K + 1, many_classes=K + 1)
    assert not plan_with(one_more, store)["sparse"]
    assert memory_plan.COMMON_DUAL_CLASSES > 1000


def test_a_matrix_in_memory_is_trained_alike(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = make_problem(N, D, K, density=0.05)
    monkeypatch.setattr(memory_plan, "COMMON_DUAL_CLASSES", K)
    options: dict[str, Any] = {"passes": 2, "C": 0.5, "dtype": "float64"}
    model = fit(X, y, **options)
    expected = fit_with(COMMON, store, out=tmp_path / "run", inner_passes=0, **options)
    assert model.result.dual == pytest.approx(expected.dual, rel=1e-5)
    scores = load_model(tmp_path / "run").decision_function(X)
    np.testing.assert_allclose(model.decision_function(X), scores, rtol=0, atol=1e-5)
