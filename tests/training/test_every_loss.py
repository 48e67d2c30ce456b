"""What training does beside its mathematics, with each loss: containers, resuming, where weights are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from cases import few
from helpers import IN_FILES, fit_with, make_problem, make_store
from helpers import plain_fit as fit
from helpers import plain_online as online
from row_stream import RowStream, late_problem
from run_files import metrics_of, model_bytes, stop_after, without_times
from small_problem import BLOCK, ONLINE, K, of_loss

from streamsvm import load_model, resume
from streamsvm.errors import Interrupted, SettingsError
from streamsvm.losses import ROW_LOSSES as LOSSES

OPTIONS: dict[str, Any] = {
    "passes": 2, "block_rows": BLOCK, "C": 0.3, "gap": "pass", "dtype": "float64"
}  # fmt: skip


@pytest.fixture(scope="module")
def stores(
    tmp_path_factory: pytest.TempPathFactory, problem: tuple[sp.csr_array, np.ndarray]
) -> tuple[Path, Path]:
    """The same rows in both containers."""
    folder = tmp_path_factory.mktemp("stores")
    return make_store(folder / "a.zarr", *problem), make_store(folder / "a.h5", *problem)


@pytest.mark.parametrize("loss", few(LOSSES, "ww", "cs", "ovr2", "logistic"))
def test_a_run_stopped_in_one_container_and_resumed_is_a_whole_run_in_the_other(
    tmp_path: Path, stores: tuple[Path, Path], loss: str
) -> None:
    """With the average of the iterates, and after stops in both passes and in scoring."""
    fit(stores[0], out=tmp_path / "whole", **OPTIONS, **of_loss(loss))
    run = tmp_path / "run"
    for n in (2, 7, 13, 17):
        with pytest.raises(Interrupted):
            fit(
                stores[1], out=run, stop=stop_after(n), checkpoint_every="2", force=True, **OPTIONS,
                **of_loss(loss),
            )  # fmt: skip
        resume(run)
        assert model_bytes(run)["coef.npy"] == model_bytes(tmp_path / "whole")["coef.npy"], n
        assert without_times(metrics_of(run)) == without_times(metrics_of(tmp_path / "whole")), n
    assert load_model(run).record["average"]


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_in_files_give_the_same_model(
    tmp_path: Path, stores: tuple[Path, Path], problem: tuple[sp.csr_array, np.ndarray], loss: str
) -> None:
    options = {**OPTIONS, **of_loss(loss), "average": False}
    expected = fit(stores[1], out=tmp_path / "memory", **options)
    found = fit_with(IN_FILES, stores[1], out=tmp_path / "files", **options)
    assert model_bytes(tmp_path / "files") == model_bytes(tmp_path / "memory")
    assert (found.primal, found.dual) == (expected.primal, expected.dual)
    model = load_model(tmp_path / "memory")
    assert model.coef_.T.shape[1] == K
    X, labels = problem
    accuracy = (model.predict(X) == labels.astype(str)).mean()
    assert expected.train_accuracy == pytest.approx(accuracy)


@pytest.mark.engine
def test_the_solver_of_shark_approaches_the_same_optimum() -> None:
    """Between the same primal and dual as exact steps, with a gap that falls to a hundredth of its first."""
    X, labels = make_problem(80, 10, 5, noise=1.5)
    options: dict[str, Any] = {"C": 0.3, "dtype": "float64", "average": False, "gap": "pass"}
    exact = fit(X, labels, passes=300, tol=1e-6, **options).result
    found = fit(X, labels, passes=100, solver="shark", **options).result
    assert found.dual <= exact.primal
    assert found.primal >= exact.dual
    assert found.gap <= 0.01 * found.history[0]["gap"]


@pytest.mark.parametrize("loss", sorted(LOSSES.keys() - set(ONLINE)))
def test_losses_that_bind_all_classes_are_refused_online(tmp_path: Path, loss: str) -> None:
    with pytest.raises(SettingsError, match=loss):
        online(RowStream(*late_problem()), out=tmp_path / "run", **of_loss(loss))
    assert not (tmp_path / "run").exists()
