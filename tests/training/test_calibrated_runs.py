"""A fit with hold-out data: its model has the temperature that `calibrate` finds, whenever it was stopped."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import few
from helpers import make_problem, make_store
from run_files import metrics_of, model_bytes, stop_after, without_times
from small_problem import BLOCK, D, K, N

from streamsvm import Model, calibrate, fit, load_model, resume
from streamsvm.errors import Call, Interrupted, SettingsError, StoreError
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
