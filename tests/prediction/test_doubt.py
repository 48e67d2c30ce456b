"""Rows below a threshold are unknown; above it, rows of the calibration are right as often as asked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import succeeds
from helpers import as_rows, make_problem, make_store, write_rows
from helpers import plain_fit as fit
from helpers import plain_online as online
from row_stream import RowStream, late_problem
from scipy.special import expit, logit

from streamsvm import Model, calibrate, evaluate, load_model, open_store, predict
from streamsvm.data.hold_out import held_out_part
from streamsvm.errors import ModelError, RunError, SettingsError

X, LABELS = make_problem(900, 8, 5, noise=0.6)
NAMES = np.array(["a", "b", "c", "d", "e"])[LABELS].astype(object)
NAMES[300::40] = "new"  # which no model knows


@pytest.fixture
def model() -> Model:
    return fit(X[:300], NAMES[:300], passes=2)


def assert_shares(found: list[dict[str, float]], largest: np.ndarray, is_right: np.ndarray) -> None:
    """Compare shares and accuracies with those of all rows."""
    assert [each["unknown"] for each in found] == [0.8, 0.9, 0.95, 0.98, 0.99, 0.999]
    assert sum(each["probability"] > 0 for each in found) >= 2  # NaN is not
    for each in found:
        answered = largest >= each["probability"]
        accuracy = is_right[answered].mean() if answered.any() else np.nan
        np.testing.assert_equal([each["answered"], each["accuracy"]], [answered.mean(), accuracy])


def test_a_threshold_is_the_smallest_with_its_accuracy(model: Model) -> None:
    """One more error is assumed. Bins are a tenth of a unit of log-odds; a label that is unknown is wrong."""
    rows, names = X[300:], NAMES[300:]
    found = calibrate(model, rows, names).unknown
    largest, is_right = model.predict_proba(rows).max(axis=1), model.predict(rows) == names
    assert_shares(found, largest, is_right)
    for each in found:
        chosen = largest >= each["probability"]
        assert is_right[chosen].sum() >= each["unknown"] * (chosen.sum() + 1) or not chosen.any()
        highest = expit(logit(each["probability"]) - 0.1) if each["answered"] else 1
        for least in np.unique(largest[largest < highest]):
            answered = largest >= least
            assert is_right[answered].sum() / (answered.sum() + 1) < each["unknown"]


def test_rows_below_the_threshold_get_another_label(model: Model, tmp_path: Path) -> None:
    found = calibrate(model, X[300:600], NAMES[300:600]).unknown
    rows, plain = X[600:], model.predict(X[600:])
    is_unknown = model.predict_proba(rows).max(axis=1) < found[1]["probability"]
    assert 50 < is_unknown.sum() < 250
    expected = np.where(is_unknown, "unknown", plain).tolist()
    assert model.predict(rows, unknown=0.9).tolist() == expected
    batched = predict(model, rows, unknown=0.9, proba=True, memory="60k")
    assert batched.labels[:, 0].tolist() == expected
    np.testing.assert_allclose(batched.scores[:, 0], model.predict_proba(rows).max(axis=1))
    predict(model, rows, tmp_path / "p", unknown=0.9, unknown_label="?")
    assert (tmp_path / "p").read_text().split() == np.where(is_unknown, "?", plain).tolist()
    predict(model, rows, tmp_path / "p.csv", unknown=0.9)
    assert re.findall("^[^,]*,([^,]*)", (tmp_path / "p.csv").read_text(), re.M) == ["label", *expected]
    numbered = fit(X[:300], LABELS[:300], passes=2)
    calibrate(numbered, X[300:600], LABELS[300:600])
    assert set(numbered.predict(rows, unknown=0.9, unknown_label=-1).tolist()) == {-1, 0, 1, 2, 3, 4}


@pytest.mark.filterwarnings("ignore:the data. .* unknown to the model")
def test_evaluate_says_and_draws_what_the_thresholds_do_to_other_rows(model: Model, tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from streamsvm import plot

    assert evaluate(model, X[600:], NAMES[600:]).unknown == []
    calibrate(model, X[300:600], NAMES[300:600])
    found = evaluate(model, X[600:], NAMES[600:])
    largest, is_right = model.predict_proba(X[600:]).max(axis=1), model.predict(X[600:]) == NAMES[600:]
    assert_shares(found.unknown, largest, is_right)
    ax = plot.answered(found)
    x, y = np.array(ax.lines[0].get_data())
    pyplot.close(ax.figure)
    curve = np.cumsum(is_right[np.argsort(-largest)]) / np.arange(1, 301)
    np.testing.assert_allclose(y, curve[np.rint(300 * x).astype(int) - 1])
    store, run = make_store(tmp_path / "s.h5", X, LABELS), tmp_path / "run"
    fit(store, out=run, passes=2, hold_out="1/3")
    for lines in succeeds("calibrate", run), succeeds("evaluate", run, store):
        assert len(lines.partition("--unknown")[2].split("\n\n")[0].splitlines()) == 7
    succeeds("report", run, "--data", store)
    assert "Answered rows" in (run / "report.html").read_text()


@pytest.mark.parametrize("held", ["hold_out", "valid"])
def test_a_run_is_calibrated_on_the_rows_that_it_held_out(tmp_path: Path, held: str) -> None:
    """Also in several blocks, after transforms with statistics, and without rows of weight 0."""
    weights = np.where(np.arange(600) % 5, 1.0, 0.0)
    path, run = tmp_path / "s.h5", tmp_path / "run"
    write_rows(path, as_rows(X[:600], LABELS[:600], "float64")._replace(cost=weights), 8, 5)
    part = {held: "2/4" if held == "hold_out" else make_store(tmp_path / "v.h5", X[600:], LABELS[600:])}
    result = fit(path, out=run, passes=2, block_rows=100, transform="scale=std,bias", **part)
    again, found, saved = load_model(run), calibrate(run), load_model(run)
    answered = saved.record["answered"]
    assert answered["right"][0] / answered["rows"][0] == result.valid_accuracy
    with open_store(path) as store:
        own = np.flatnonzero(held_out_part("2/4", store, 2**28).has(np.arange(600)) & (weights > 0))
    own = own if held == "hold_out" else np.arange(600, 900)
    expected = calibrate(again, X[own], LABELS[own])
    assert (found.rows, found.log_loss) == (expected.rows, pytest.approx(expected.log_loss))
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-5)
    np.testing.assert_array_equal(saved.predict(X, unknown=0.9), again.predict(X, unknown=0.9))


def test_refusals(model: Model, tmp_path: Path) -> None:
    path, text = make_store(tmp_path / "s.h5", X, LABELS), tmp_path / "text"
    text.write_text("a 1:1\nb 2:1\n" * 20)
    fit(text, out=tmp_path / "gone", passes=1, hold_out="1/3", keep_data=False)
    fit(path, out=tmp_path / "run", passes=1)
    fit(path, out=tmp_path / "held", passes=1, hold_out="1/3")
    online(RowStream(*late_problem(), (7, 50)), out=tmp_path / "online", C=0.3)
    make_store(tmp_path / "other.h5", X[::-1], LABELS[::-1]).replace(path)
    calibrate(model, X[300:], NAMES[300:])
    model.save(tmp_path / "model")
    of_accuracy = "unknown must be an accuracy between 0 and 1, such as 0.95, not"
    needs_run = r"without data, .* a run that kept its hold-out rows; .* `fit\(hold_out='1/10'\)`"
    cases: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
        (predict, "held", {"unknown": 0.9}, ModelError, r"calibrated model.*; .* `calibrate\(\.\.\.\)`, on"),
        (predict, "model", {"unknown": 0.999}, ModelError, "no threshold reaches an accuracy of 0.999"),
        (predict, "model", {"unknown": 0.9, "unknown_label": NAMES[0]}, SettingsError, "must not be a class"),
        *((predict, "model", {"unknown": each}, SettingsError, of_accuracy) for each in (0, 1, True, "0.9")),
        *((predict, "model", {"unknown": 0.9, name: 2}, SettingsError, "gives several labels per row")
          for name in ("top_k", "threshold")),
        *((calibrate, of, {}, RunError, needs_run) for of in ("model", "run", "online", "gone")),
        *((calibrate, "held", {name: "x"}, SettingsError, f"{name} applies only") for name in ("label", "y")),
        (calibrate, "held", {}, RunError, "has changed since the run was started"),
    ]  # fmt: skip
    for call, of, options, error, words in cases:
        with pytest.raises(error, match=words):
            call(tmp_path / of, *([X] if call is predict else []), **options)
    with pytest.raises(RunError, match=needs_run):
        calibrate(model)
