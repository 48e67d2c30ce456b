"""A fit with hold-out data: its model has the temperature that `calibrate` finds, whenever it was stopped."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import IN_FILES, fit_with, make_problem, make_store, plan_with, resume_with
from run_files import metrics_of, model_bytes, stop_after, without_times
from scipy.special import softmax
from small_problem import BLOCK, D, K, N

from streamsvm import Model, calibrate, fit, load_model, open_store, resume
from streamsvm.errors import Call, Interrupted, RunError, SettingsError, StoreError
from streamsvm.info import inspect

ROWS, LABELS = make_problem(N + 60, D, K, noise=1.5)  # of which `store` of conftest has other rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store to train on and a hold-out store of other rows of the same classes."""
    path = tmp_path_factory.mktemp("stores")
    make_store(path / "train.h5", ROWS[:N], LABELS[:N])
    make_store(path / "hold-out.zarr", ROWS[N:], LABELS[N:], n_classes=K)
    return path


def temperature_of(model: Model) -> float:
    """As it is found for the same coefficients, in memory."""
    bare = Model(np.array(model.coef_.T), {"classes": model.record["classes"]})
    return calibrate(bare, ROWS[N:], LABELS[N:]).temperature


@pytest.mark.parametrize("loss", few(["ww", "llw", "logistic"], "ww", "logistic"))
@pytest.mark.parametrize("average", [True, False])
def test_the_model_of_a_fit_is_calibrated(folder: Path, tmp_path: Path, loss: str, average: bool) -> None:
    stages = set()
    result = fit(
        folder / "train.h5", out=tmp_path / "run", passes=2, loss=loss, average=average, dtype="float64",
        calibrate=folder / "hold-out.zarr", progress=lambda stage, done, total: stages.add((stage, total)),
    )  # fmt: skip
    model = load_model(tmp_path / "run")
    assert model.temperature == pytest.approx(temperature_of(model), rel=1e-6)
    assert result.calibration is not None
    assert result.calibration.temperature == model.temperature
    assert result.calibration.rows == 60
    assert ("calibrate", 60) in stages
    assert inspect(tmp_path / "run")["probability_temperature"] == model.temperature
    assert inspect(tmp_path / "run" / "model")["probability_temperature"] == model.temperature
    plain = fit(
        folder / "train.h5", out=tmp_path / "plain", passes=2, loss=loss, average=average, dtype="float64"
    )
    assert plain.calibration is None
    assert inspect(tmp_path / "plain")["probability_temperature"] is None
    assert model_bytes(tmp_path / "plain")["coef.npy"] == model_bytes(tmp_path / "run")["coef.npy"]


@pytest.mark.engine
def test_the_logistic_loss_gives_probabilities_without_hold_out_data(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"passes": 2, "loss": "logistic", "dtype": "float64"}
    fit(folder / "train.h5", out=tmp_path / "run", **options)
    for model in (load_model(tmp_path / "run"), fit(ROWS[:N], LABELS[:N], **options)):
        assert model.temperature == 1
        scores = model.decision_function(ROWS[N:]).astype(float)
        np.testing.assert_allclose(model.predict_proba(ROWS[N:]), softmax(scores, axis=1), rtol=1e-12)


def test_a_run_stopped_anywhere_gives_the_same_temperature_and_never_a_model_without(
    folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"passes": 2, "block_rows": BLOCK, "calibrate": folder / "hold-out.zarr"}
    fit(folder / "train.h5", out=tmp_path / "whole", **options)
    while_calibrating = 0
    run = tmp_path / "run"
    for n in itertools.count(1, 2):
        try:
            fit(folder / "train.h5", out=run, stop=stop_after(n), force=True, **options)
        except Interrupted as stopped:
            message = stopped.message
        else:
            break
        while_calibrating += "before the model was calibrated" in message
        assert message.remedy is not None
        assert message.remedy.parts == (Call("resume", run),)
        assert not (run / "model").exists()
        assert resume(run).calibration is not None
        assert model_bytes(run) == model_bytes(tmp_path / "whole"), n
        assert without_times(metrics_of(run)) == without_times(metrics_of(tmp_path / "whole")), n
    assert while_calibrating > 1


def test_weights_in_files_leave_a_calibrated_model_too(folder: Path, tmp_path: Path) -> None:
    hold_out = folder / "hold-out.zarr"
    options: dict[str, Any] = {"passes": 1, "average": False, "calibrate": hold_out}
    fit_with(IN_FILES, folder / "train.h5", out=tmp_path / "run", **options)
    fit(folder / "train.h5", out=tmp_path / "same", **options)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "same")
    assert not plan_with(IN_FILES, folder / "train.h5")["weights_in_memory"]
    resume_with(IN_FILES, tmp_path / "run")
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "same")


def test_a_finished_run_is_calibrated_by_resuming_it(folder: Path, tmp_path: Path) -> None:
    fit(folder / "train.h5", out=tmp_path / "at-once", passes=2, calibrate=folder / "hold-out.zarr")
    fit(folder / "train.h5", out=tmp_path / "run", passes=2)
    assert load_model(tmp_path / "run").temperature is None
    result = resume(tmp_path / "run", calibrate=folder / "hold-out.zarr")
    assert (result.passes, result.checkpoints) == (2, 0)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "at-once")
    resume(tmp_path / "run", passes=3)
    model = load_model(tmp_path / "run")
    assert model.temperature == pytest.approx(temperature_of(model), rel=1e-6)


def test_a_temperature_lasts_as_long_as_the_coefficients(folder: Path, tmp_path: Path) -> None:
    """Of a run that was calibrated afterwards, and does not know of it."""
    run = tmp_path / "run"
    fit(folder / "train.h5", out=run, passes=2)
    found = calibrate(run, folder / "hold-out.zarr")
    before = model_bytes(run)
    assert resume(run).warnings == []
    assert model_bytes(run) == before
    (warning,) = resume(run, passes=3).warnings
    assert "calibrate it again" in warning
    assert load_model(run).temperature is None
    assert found.temperature > 0


def test_a_hold_out_store_that_cannot_be_used_is_refused_before_training(
    folder: Path, tmp_path: Path
) -> None:
    others = make_store(tmp_path / "others.h5", ROWS[:9], np.arange(9, dtype=np.int32) + K, n_classes=K + 9)
    wide = make_store(tmp_path / "wide.h5", *make_problem(9, D + 1, K))
    none = make_store(tmp_path / "none.h5", ROWS[:0], LABELS[:0], n_classes=K)
    cases: list[tuple[Path, type[Exception], str]] = [
        (tmp_path / "nothing.h5", StoreError, "nothing is there"),
        (wide, StoreError, "12 features, the model 11"),
        (others, StoreError, "no row of a class of the training data"),
        (none, StoreError, "no row of a class of the training data"),
        (folder / "train.h5", SettingsError, "calibrate names the store that is trained on"),
    ]
    fit(folder / "train.h5", out=tmp_path / "done", passes=1)
    for path, error, message in cases:
        with pytest.raises(error, match=message):
            fit(folder / "train.h5", out=tmp_path / "run", passes=1, calibrate=path)
        assert not (tmp_path / "run").exists()
        with pytest.raises(error, match=message):
            resume(tmp_path / "done", calibrate=path)
    assert load_model(tmp_path / "done").temperature is None
    assert resume(tmp_path / "done").settings["calibrate"] is None


def test_a_hold_out_store_that_changed_stops_a_resume(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "h.zarr"
    shutil.copytree(folder / "hold-out.zarr", path)
    with pytest.raises(Interrupted):
        fit(folder / "train.h5", out=tmp_path / "run", passes=1, calibrate=path, stop=lambda: True)
    shutil.rmtree(path)
    with pytest.raises(StoreError, match=r"nothing is there; .* with calibrate="):
        resume(tmp_path / "run")
    make_store(path, ROWS[N : N + 30], LABELS[N : N + 30], n_classes=K)
    with pytest.raises(RunError, match=r"the hold-out store .* has changed since the run was begun"):
        resume(tmp_path / "run")
    result = resume(tmp_path / "run", calibrate=path)
    assert result.calibration is not None
    assert result.calibration.rows == 30
    with open_store(path) as store:
        assert result.calibration.temperature == calibrate(tmp_path / "run", store).temperature


def test_why_a_temperature_is_no_minimum_is_among_the_warnings(folder: Path, tmp_path: Path) -> None:
    labels = np.roll(LABELS[N:], 1)
    path = make_store(tmp_path / "mixed.h5", ROWS[N:], labels, n_classes=K)
    result = fit(folder / "train.h5", out=tmp_path / "run", passes=2, calibrate=path)
    assert result.calibration is not None
    assert result.calibration.warning is not None
    assert result.warnings == [result.calibration.warning]
