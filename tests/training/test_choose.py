"""Transforms and loss that are chosen by trainings on a sample of the rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import succeeds
from helpers import GAMMA, held_out, make_store, plain_mix
from run_files import model_bytes, stop_after

import streamsvm
from streamsvm.errors import Interrupted, SettingsError
from streamsvm.sklearn import StreamSVMClassifier

DOUBLE: dict[str, Any] = {"dtype": "float64", "progress": False}
AUTO: dict[str, Any] = {"transform": "auto", "loss": "auto", **DOUBLE}
LOSSES, FEW, MANY = ("ww", "cs", "ovr2"), ("bias", "none"), ("df=-0.25,l2", "df=-0.5,l2")
N, FOURIER = 600, "fourier=256"
CURVED = {(FOURIER, "ww"), (f"scale=std,{FOURIER}", "ww")}
RNG = np.random.default_rng(0)


def rings(n: int = N, d: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Classes by the distance from the origin."""
    X = np.random.default_rng(1).normal(size=(n, d)).astype(np.float32)
    return X, np.digitize((X[:, :2] ** 2).sum(axis=1), [0.8, 2.2])


def halves() -> tuple[np.ndarray, np.ndarray]:
    """Classes by the side of a line."""
    X = np.random.default_rng(2).normal(size=(N, 2)).astype(np.float32)
    return X, (X.sum(axis=1) > 0).astype(int)


def words(sign: int = 1) -> tuple[sp.csr_array, np.ndarray]:
    """Rows of words of three topics, of which the common ones tell nothing."""
    y = np.random.default_rng(3).integers(3, size=N)
    own = np.random.default_rng(4).integers(1500, size=(N, 8)) + 1500 * y[:, None]
    features = np.hstack([own, np.random.default_rng(5).integers(4500, 4520, (N, 40))]).ravel()
    X = sp.csr_array((np.full(len(features), sign), (np.repeat(np.arange(N), 48), features)), (N, 4600))
    return X.astype(np.float32), y


def choose(X: Any, y: Any, **options: Any) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    """Return the model of a fit, the candidates, and the choice."""
    events: list[dict[str, Any]] = []
    model = streamsvm.fit(X, y, report=events.append, **{**AUTO, **options})
    [chosen] = [event for event in events if event["event"] == "chosen"]
    tried = [event for event in events if event["event"] == "candidate"]
    return model, [{name: each[name] for name in each if name != "event"} for each in tried], chosen


@pytest.mark.parametrize(
    ("X", "y", "candidates"),
    [
        (*rings(), {(each, loss) for each in FEW for loss in LOSSES} | CURVED),
        (*halves(), {(each, loss) for each in FEW for loss in LOSSES} | CURVED),
        (*words(), {(each, loss) for each in (*FEW, *MANY, "log1p,df=-0.25,l2") for loss in LOSSES}),
        (*words(-1), {(each, loss) for each in (*FEW, *MANY) for loss in LOSSES}),
    ],
    ids=["rings", "halves", "words", "negative"],
)
def test_the_best_on_a_fifth_is_chosen_unless_the_default_is_as_good(
    X: Any, y: np.ndarray, candidates: set[Any]
) -> None:
    model, tried, chosen = choose(X, y)
    assert {(each["transform"], each["loss"]) for each in tried} == candidates
    fifth = held_out(y, 1, 5)
    for each in tried:
        named = {"transform": each["transform"], "loss": each["loss"]}
        alone = streamsvm.fit(X, y, hold_out="1/5", **DOUBLE, **named)
        assert each["valid_accuracy"] == (alone.predict(X[fifth]).astype(int) == y[fifth]).mean()
    best = max(tried, key=lambda each: each["valid_accuracy"])
    p = best["valid_accuracy"]
    if tried[0]["valid_accuracy"] >= p - np.sqrt(p * (1 - p) / fifth.sum()):
        best = tried[0]
    assert {**chosen, **best} == chosen
    named = {"transform": best["transform"], "loss": best["loss"]}
    np.testing.assert_array_equal(model.coef_, streamsvm.fit(X, y, **DOUBLE, **named).coef_)


def test_curved_boundaries_are_found_and_transforms_that_do_not_apply_left_out() -> None:
    assert "fourier" in choose(*rings())[2]["transform"]
    X, y = words()
    logs = anndata.AnnData(X * 0.7, pd.DataFrame({"y": y.astype(str)}, [f"r{i}" for i in range(N)]))
    assert {each["transform"] for each in choose(logs, None, label="y", loss="ww")[1]} == {*FEW, *MANY}


@pytest.mark.parametrize("named", [{"loss": "cs"}, {"transform": "fourier=9"}, {"transform": None}])
def test_only_what_is_auto_is_chosen(named: dict[str, Any]) -> None:
    _, tried, _ = choose(*rings(200), **named)
    of = {name: {each[name] for each in tried} for name in ("transform", "loss")}
    assert of == {
        "transform": {*FEW, "fourier=64", "scale=std,fourier=64"},
        "loss": {*LOSSES},
        **{name: {value or "bias"} for name, value in named.items()},
    }


def test_a_sample_has_the_rows_of_the_smallest_keys_among_those_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that are held out, and rows of weight 0, are not in it."""
    X, y = rings(900)
    weights = (RNG.random(900) > 0.2).astype(float)
    keys = np.array([plain_mix(plain_mix(7) + (row + 1) * GAMMA) for row in range(900)], np.uint64)
    kept = np.flatnonzero(~held_out(np.where(weights > 0, y + 1, 0), 1, 3) & (weights > 0))
    rows = np.sort(kept[np.argsort(keys[kept])][:200])
    monkeypatch.setattr("streamsvm.training.choose._MAX_ROWS", 200)
    _, tried, _ = choose(X, y, sample_weight=weights, hold_out="1/3", seed=7, transform="none")
    assert tried == choose(X[rows], y[rows], seed=7, transform="none")[1]


def test_groups_are_held_out_whole() -> None:
    """Rows tell nothing but their donor, all of whose rows have one class, drawn at random."""
    donors = RNG.integers(60, size=N)
    X = RNG.normal(size=(60, 80))[donors] + 0.01 * RNG.normal(size=(N, 80))
    y = RNG.integers(2, size=60)[donors]
    for by, least, most in ((None, 0.99, 1.0), (donors, 0.2, 0.8)):
        _, tried, _ = choose(X, y, hold_out_by=by, hold_out="1/10", transform="none")
        assert least <= max(each["valid_accuracy"] for each in tried) <= most


def test_a_run_records_the_choice_and_can_be_repeated(tmp_path: Path) -> None:
    X, y = rings()
    store = make_store(tmp_path / "train.zarr", sp.csr_array(X), y, dtype="float64")
    auto = ("--transform", "auto", "--loss", "auto", "--dtype", "float64")
    command = ("fit", store, *auto, "--out", tmp_path / "run")
    said = succeeds(*command, notes=True)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    tried, settings = record["choice"]["tried"], record["settings"]
    assert record["choice"]["rows"] == N
    best = max(tried, key=lambda each: each["valid_accuracy"])
    assert (settings["transform"], settings["loss"]) == (best["transform"], best["loss"])
    assert f"{len(tried)} training runs on a sample of {N} rows" in said
    assert f"chosen: loss ww, transform {best['transform']}" in said
    named = {"transform": best["transform"], "loss": best["loss"]}
    streamsvm.fit(store, out=tmp_path / "named", **DOUBLE, **named)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "named")
    again = succeeds(*command, "--resume-or-start", notes=True)
    assert ("nothing left to train" in again, "training runs" in again) == (True, False)
    tuned: Any = streamsvm.tune(store, out=tmp_path / "tuned", C="1", **AUTO)
    choice = json.loads((tmp_path / "tuned" / "run.json").read_text())["choice"]
    assert choice["rows"] == N * 9 // 10  # without the rows that tune measures on
    assert tuned.result.settings["transform"] in {each["transform"] for each in choice["tried"]}


def test_tune_and_the_estimator_choose_first() -> None:
    X, y = rings()
    chosen = choose(X, y)[2]["transform"]
    assert "fourier" in streamsvm.tune(X, y, C="0.1,1", **AUTO).result.settings["transform"]
    model = StreamSVMClassifier(loss="auto", transforms="auto", dtype="float64").fit(X, y)
    assert model.model_.result.settings["transform"] == chosen


@pytest.mark.parametrize(
    ("call", "options", "problem"),
    [
        (streamsvm.fit, {"loss": "auto", "margin": 0.5}, "loss must be the name of a loss if margin"),
        (streamsvm.fit, {"loss": "auto", "from_": "model"}, "from_ must be left out with the loss auto"),
        (streamsvm.fit, {"loss": "chain", "transform": "auto"}, "transform must be named with"),
        (streamsvm.tune, {"transform": ["auto", "none"]}, "loss cannot be auto in a comparison"),
        (
            streamsvm.fit,
            {"transform": "auto", "stop": stop_after(1)},
            "stopped while choosing transforms and loss",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(call: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises((SettingsError, Interrupted), match=problem):
        call(*rings(), progress=False, **options)
    with pytest.raises(ValueError, match="auto"):
        StreamSVMClassifier(loss="auto").partial_fit(*rings(), classes=[0, 1, 2])
