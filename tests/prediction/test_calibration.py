"""The temperature is the one that SciPy finds, and probabilities are those of SciPy's softmax."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store, save_weights
from reference_blocks import project_to_simplex
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.metrics import log_loss

from streamsvm import Calibration, Model, calibrate, evaluate, fit, load_model, open_store, predict
from streamsvm.base import format
from streamsvm.errors import InputError, ModelError, PlanError, SettingsError, StreamsvmWarning
from streamsvm.inputs.rows import RowsToScore
from streamsvm.prediction.calibration import set_temperature
from streamsvm.run.directory import RunDir, locked

N, D, K = 150, 8, 5


@functools.cache
def problem(n_classes: int) -> tuple[sp.csr_array, np.ndarray]:
    """Rows that linear models predict better than chance, and with errors; the first 400 are to train on."""
    return make_problem(400 + N, D, n_classes, noise=1.5, seed=n_classes)


def hold_out(n_classes: int) -> tuple[sp.csr_array, np.ndarray]:
    rows, labels = problem(n_classes)
    return rows[400:], labels[400:]


X, LABELS = hold_out(K)


def make_model(n_classes: int = K, *, scale: float = 1.0, dtype: str = "float64", **record: Any) -> Model:
    """A model with the means of the classes as weights."""
    rows, labels = (each[:400] for each in problem(n_classes))
    means = [rows[labels == c].astype(float).mean(axis=0) for c in range(n_classes)]
    classes = [str(c) for c in range(n_classes)]
    facts = {"classes": classes, "n_features": D, "index_base": 1, "loss": "ww", "dtype": dtype}
    return Model((scale * np.stack(means, axis=1)).astype(dtype), {**facts, **record})


def scores_of(model: Model, rows: Any = X) -> np.ndarray:
    return rows.astype(np.float64) @ model.coef_.T.astype(np.float64)


def mean_log_loss(scores: np.ndarray, targets: np.ndarray, temperature: float) -> float:
    """`targets` are labels, or weights of shape (n, k)."""
    if targets.ndim == 1:
        targets = np.eye(scores.shape[1])[targets]
    return float(-(targets * log_softmax(scores / temperature, axis=1)).sum(axis=1).mean())


def best_temperature(scores: np.ndarray, targets: np.ndarray) -> float:
    """By a scalar search of SciPy over the logarithm of the temperature."""
    guess = np.log(scores.std())
    found = minimize_scalar(
        lambda log: mean_log_loss(scores, targets, np.exp(log)),
        bracket=(guess - 2, guess + 2),
        tol=1e-10,
    )
    return float(np.exp(found.x))


def saved(folder: Path, model: Model) -> Path:
    model.save(folder)
    return folder


# -- probabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("temperature", [1.0, 0.01, 30.0])
def test_probabilities_are_the_softmax_of_scores_over_the_temperature(dtype: str, temperature: float) -> None:
    model = make_model(dtype=dtype, probability_temperature=temperature)
    found = model.predict_proba(X)
    assert (found.shape, found.dtype) == ((N, K), np.float64)
    expected = softmax(model.decision_function(X).astype(np.float64) / temperature, axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-13)
    assert model.temperature == temperature
    assert model.predict_proba(X[:0]).shape == (0, K)


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e300])
@pytest.mark.parametrize("temperature", [1e-100, 1e-3, 1e100])
def test_probabilities_of_extreme_scores_and_temperatures_are_still_some(
    scale: float, temperature: float
) -> None:
    model = make_model(scale=scale, probability_temperature=temperature)
    found = model.predict_proba(X)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-13)
    highest = np.take_along_axis(found, scores_of(model).argmax(axis=1)[:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(highest, found.max(axis=1))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e300])
def test_probabilities_of_the_sparsemax_loss_are_the_projection_of_scores(scale: float) -> None:
    """To the simplex; of a model that is calibrated they are its softmax, as of any other."""
    model = make_model(loss="sparsemax", scale=scale)
    found, scores = model.predict_proba(X), scores_of(model)
    shifted = scores - scores.max(axis=1)[:, None]
    np.testing.assert_allclose(found, [project_to_simplex(s, 1.0) for s in shifted], atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-12)
    own = found[np.arange(N), LABELS]
    of_own = -np.log(own).mean() if own.all() else np.inf
    assert evaluate(model, X, LABELS).log_loss == pytest.approx(of_own)
    if scale == 1:
        assert 0 < (found == 0).sum() < N * (K - 1)
        calibrate(model, X, LABELS)
        expected = softmax(scores / model.temperature, axis=1)
        np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-12)


def test_a_model_without_probabilities_says_how_to_get_them(tmp_path: Path) -> None:
    model = make_model()
    assert model.temperature is None
    asked: list[Any] = [
        lambda: model.predict_proba(X),
        lambda: predict(model, X, proba=True),
        lambda: predict(model, X, tmp_path / "out", proba=True),
    ]
    for ask in asked:
        with pytest.raises(ModelError, match=r"no probabilities: .* the loss ww and was not calibrated"):
            ask()
    assert list(tmp_path.iterdir()) == []
    metrics = evaluate(model, X, LABELS)
    assert (metrics.log_loss, metrics.calibration_error) == (None, None)


def test_predictions_give_probabilities_in_the_place_of_scores(tmp_path: Path) -> None:
    model = make_model(dtype="float32", probability_temperature=0.7)
    store = make_store(tmp_path / "s.h5", X, LABELS)
    expected = model.predict_proba(X)
    by_scores = predict(model, store, top_k=3)
    found = predict(model, store, top_k=3, proba=True, memory="1M")
    np.testing.assert_array_equal(found.labels, by_scores.labels)
    assert found.scores.dtype == np.float64
    codes = found.labels.astype(int)
    np.testing.assert_allclose(found.scores, np.take_along_axis(expected, codes, axis=1), rtol=1e-5)
    predict(model, store, tmp_path / "labels", top_k=3, proba=True)
    fields = [line.split("\t") for line in (tmp_path / "labels").read_text().splitlines()]
    assert [row[::2] for row in fields] == found.labels.tolist()
    np.testing.assert_allclose(np.array([row[1::2] for row in fields], float), found.scores, rtol=1e-8)
    assert predict(model, iter([]), proba=True).scores.shape == (0, 1)
    with pytest.raises(SettingsError, match="leave one of them out"):
        predict(model, store, scores=True, proba=True)


def test_classes_are_ranked_by_scores_where_probabilities_underflow() -> None:
    coef = np.array([[1.0, 2.0, 9e3, 3.0]])
    record = {"classes": list("abcd"), "probability_temperature": 1.0}
    found = predict(Model(coef, record), [[1.0]], top_k=4, proba=True)
    assert found.labels.tolist() == [["c", "d", "b", "a"]]
    assert found.scores.tolist() == [[1, 0, 0, 0]]


# -- the temperature -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3, 20])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_temperature_minimises_the_log_loss(n_classes: int, scale: float, dtype: str) -> None:
    rows, labels = hold_out(n_classes)
    model = make_model(n_classes, scale=scale, dtype=dtype)
    scores = model.decision_function(rows).astype(np.float64)
    found = calibrate(model, rows, labels)
    expected = best_temperature(scores, labels)
    assert found.temperature == pytest.approx(expected, rel=1e-5)
    assert found.log_loss <= mean_log_loss(scores, labels, expected) * (1 + 1e-12)
    assert found.log_loss == pytest.approx(mean_log_loss(scores, labels, found.temperature))
    assert found.log_loss_before == pytest.approx(mean_log_loss(scores, labels, 1.0))
    assert (found.rows, found.warning) == (N, None)
    assert model.temperature == found.temperature
    again = calibrate(model, rows, labels)
    assert again.log_loss_before == pytest.approx(found.log_loss)
    assert again.temperature == found.temperature


def test_few_readings_are_enough() -> None:
    """Also where one of many classes stands out, and Newton's first step goes far beyond."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1000, size=200)
    scores = rng.normal(size=(200, 1000))
    scores[np.arange(200), labels] += 3
    model = Model(np.eye(1000), {"classes": [str(c) for c in range(1000)]})
    readings = 0

    def read() -> Iterator[Any]:
        nonlocal readings
        readings += 1
        yield model.rows(scores, labels)

    found = set_temperature(model, read)
    assert found.temperature == pytest.approx(best_temperature(scores, labels), rel=1e-5)
    assert readings <= 10


@pytest.mark.parametrize("kind", ["path", "store", "rows", "list", "matrix", "dense", "saved model"])
def test_all_kinds_of_data_give_one_temperature(tmp_path: Path, kind: str) -> None:
    """And blocks and pieces of a few rows the temperature of the whole."""
    model = make_model()
    expected = best_temperature(scores_of(model), LABELS)
    path = make_store(tmp_path / "s.h5", X, LABELS)
    rows, folder = as_rows(X, LABELS), saved(tmp_path / "model", model)
    with open_store(path) as store:
        data: Any = {
            "path": path, "store": store, "rows": rows, "list": [rows], "matrix": X, "dense": X.toarray(),
            "saved model": path,
        }[kind]  # fmt: skip
        y = LABELS if kind in ("matrix", "dense") else None
        with pytest.raises(PlanError) as refused:
            calibrate(model, path, memory=100)
        memory = refused.value.needed_memory
        assert memory is not None
        if kind in ("path", "store"):
            with open_store(path) as other:
                assert len(list(RowsToScore(model, memory=memory).read(other))) > 3
        found = calibrate(folder if kind == "saved model" else model, data, y, memory=memory)
    assert found.temperature == pytest.approx(expected, rel=1e-5)
    assert found.rows == N


def test_rows_with_unknown_labels_take_no_part() -> None:
    model, labels = make_model(), LABELS.copy()
    labels[::3] = 99
    found = calibrate(model, X, labels)
    assert found.rows == (labels != 99).sum()
    expected = best_temperature(scores_of(model)[labels != 99], LABELS[labels != 99])
    assert found.temperature == pytest.approx(expected, rel=1e-5)


def test_data_that_cannot_calibrate_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model = make_model()
    folder = saved(tmp_path / "model", model)
    before = (folder / format.MODEL_JSON).read_bytes()
    rows = as_rows(X, LABELS)
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (X, np.full(N, 99), ModelError, "none of the 150 rows has a label that the model knows"),
        (X[:0], [], ModelError, "no rows"),
        ([], None, ModelError, "no rows"),
        (iter([rows]), None, InputError, "an iterator can be read only once"),
        (X, None, InputError, "y is missing"),
        ([rows], LABELS, SettingsError, "y is for the labels of a matrix"),
        ("s.zarr", LABELS, SettingsError, "y is for the labels of a matrix"),
        (X[:, 1:], LABELS, ModelError, "7 features, the model 8"),
    ]
    for data, y, error, message in cases:
        for of in (model, folder):
            with pytest.raises(error, match=message):
                calibrate(of, data, y)
    for scale in (1e-200, 1e-110, 1e110, 1e200):
        with pytest.raises(ModelError, match="too large or too small to calibrate; scale the values"):
            calibrate(make_model(scale=scale), X, LABELS)
    assert model.temperature is None
    assert (folder / format.MODEL_JSON).read_bytes() == before
    with pytest.raises(ModelError, match="nothing is there"):
        calibrate(tmp_path / "nothing", X, LABELS)


def test_a_score_that_overflows_is_named_by_its_row(tmp_path: Path) -> None:
    model = make_model(scale=1e38, dtype="float32", probability_temperature=1.0)
    rows = X.copy()
    rows.data[:] = 1e-3
    rows.data[rows.indptr[70] : rows.indptr[71]] = 1e38
    path = make_store(tmp_path / "s.h5", rows, LABELS, shuffled=False)
    for ask in (calibrate, evaluate, lambda *words, **more: predict(*words, proba=True, **more)):
        with pytest.raises(ModelError, match=r"row 70 of .*: a score overflows float32"):
            ask(model, path, memory="40k")


@pytest.mark.parametrize(("n", "n_classes"), [(1, 2), (1, 5), (40, 2), (200, 5)])
def test_a_separable_hold_out_is_fitted_with_smoothed_labels(n: int, n_classes: int) -> None:
    """Its log loss has no minimum: the lower the temperature, the less it is."""
    rng = np.random.default_rng(n)
    labels = rng.integers(n_classes, size=n)
    scores = rng.uniform(-1, 1, size=(n, n_classes))
    scores[np.arange(n), labels] = 1.1
    model = Model(np.eye(n_classes), {"classes": [str(c) for c in range(n_classes)]})
    with pytest.warns(StreamsvmWarning, match=rf"no row .* wrongly \(of {n}\)"):
        found = calibrate(model, scores, labels)
    smoothed = (n * np.eye(n_classes)[labels] + 1) / (n + n_classes)
    assert found.temperature == pytest.approx(best_temperature(scores, smoothed), rel=1e-5)
    assert found.log_loss == pytest.approx(mean_log_loss(scores, labels, found.temperature))


@pytest.mark.parametrize("case", ["reversed", "random", "one wrong row"])
def test_scores_that_say_nothing_give_nearly_equal_probabilities(case: str) -> None:
    model, rows, labels = make_model(), X, LABELS
    if case == "reversed":
        labels = scores_of(model).argmin(axis=1)
    elif case == "random":  # each row once with each label
        rows, labels = rows[np.repeat(np.arange(N), K)], np.tile(np.arange(K), N)
    else:
        rows, labels = X[[3]], scores_of(model)[[3]].argmin(axis=1)
    with pytest.warns(StreamsvmWarning, match="the scores say nothing about the labels"):
        found = calibrate(model, rows, labels)
    assert 0 < found.temperature < np.inf
    np.testing.assert_allclose(model.predict_proba(X), 1 / K, rtol=0.02)


def test_rows_without_values_leave_the_temperature_at_1() -> None:
    model = make_model()
    with pytest.warns(StreamsvmWarning, match="the same score for all classes; the temperature stays 1"):
        found = calibrate(model, 0 * X, LABELS)
    assert (found.temperature, found.log_loss) == (1, pytest.approx(np.log(K)))


def test_a_search_that_does_not_end_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsvm.prediction.calibration._MAX_EVALUATIONS", 1)
    with pytest.warns(StreamsvmWarning, match="not exact, after 1 reading"):
        calibrate(make_model(), X, LABELS)


# -- saved models ----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fit(make_store(tmp_path / "s.h5", X, LABELS), out=tmp_path / "run", passes=2)
    return tmp_path / "run"


@pytest.mark.parametrize("of", ["", "model"])
def test_a_saved_model_keeps_its_coefficients_and_gets_a_temperature(run: Path, of: str) -> None:
    folder = run / "model"
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    found = calibrate(run / of, X, LABELS)
    after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    assert [name for name in after if after[name] != before.get(name)] == [format.MODEL_JSON]
    assert after.keys() == before.keys()
    old, new = (json.loads(each[format.MODEL_JSON][0]) for each in (before, after))
    assert {**old, format.TEMPERATURE: found.temperature, "checksum": new["checksum"]} == new
    model = load_model(run)
    assert model.temperature == found.temperature
    assert model.predict_proba(X).sum() == pytest.approx(N)
    assert model.record["version"] == format.MODEL_VERSION


def test_a_temperature_survives_saving(tmp_path: Path) -> None:
    model = make_model()
    calibrate(model, X, LABELS)
    copy = load_model(saved(tmp_path / "copy", model))
    assert copy.temperature == model.temperature
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    (tmp_path / "copy" / "model.json.tmp").touch()  # as a crash while calibrating may leave it
    copy.save(tmp_path / "copy")
    assert load_model(tmp_path / "copy").temperature == model.temperature


@pytest.mark.parametrize(
    "value", [0, -1.0, 1e101, 1e-101, 10**400, "1", True, [1.0], {}], ids=lambda value: f"{value!r:.6}"
)
def test_a_nonsense_temperature_in_the_record_is_refused(tmp_path: Path, value: Any) -> None:
    record = {"classes": ["a", "b"], "n_features": D, "index_base": 1, "dtype": "float64"}
    weights = np.ones((D, 8))
    save_weights(tmp_path / "model", weights, {**record, format.TEMPERATURE: 1})
    assert load_model(tmp_path / "model").temperature == 1
    save_weights(tmp_path / "model", weights, {**record, format.TEMPERATURE: value})
    with pytest.raises(ModelError, match=r"model\.json is damaged: probability_temperature must be"):
        load_model(tmp_path / "model")


def test_a_run_in_use_is_not_calibrated(run: Path) -> None:
    with locked(RunDir(run)), pytest.raises(ModelError, match="in use by another process"):
        calibrate(run, X, LABELS)
    assert load_model(run).temperature is None


def test_a_model_that_was_replaced_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", make_model())

    def replace_it(*words: Any, **more: Any) -> Calibration:
        saved(folder, make_model(scale=2.0))
        return set_temperature(*words, **more)

    monkeypatch.setattr("streamsvm.prediction.calibration.set_temperature", replace_it)
    with pytest.raises(ModelError, match="was replaced by another model meanwhile"):
        calibrate(folder, X, LABELS)
    np.testing.assert_array_equal(load_model(folder).coef_, make_model(scale=2.0).coef_)
    assert load_model(folder).temperature is None


def test_links_inside_a_run_are_not_followed_to_write(tmp_path: Path, run: Path) -> None:
    elsewhere = (run / "model").rename(tmp_path / "elsewhere")
    (run / "model").symlink_to(elsewhere)
    with pytest.raises(ModelError, match="a symbolic link, which is not followed to write"):
        calibrate(run, X, LABELS)
    calibrate(elsewhere, X, LABELS)
    assert load_model(run).temperature is not None


# -- what evaluate measures ------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
def test_evaluate_measures_probabilities(tmp_path: Path, temperature: float) -> None:
    model = make_model(probability_temperature=temperature)
    labels = LABELS.copy()
    labels[::7] = -1
    with pytest.warns(StreamsvmWarning, match="unknown to the model, counted as wrong"):
        found = evaluate(model, [as_rows(X[:50], labels[:50]), as_rows(X[50:], labels[50:])])
    known = labels >= 0
    expected, y = softmax(scores_of(model) / temperature, axis=1)[known], labels[known]
    assert found.log_loss == pytest.approx(mean_log_loss(scores_of(model)[known], y, temperature))
    if temperature >= 1:  # scikit-learn takes no probability below 2e-16
        assert found.log_loss == pytest.approx(log_loss(y, expected, labels=np.arange(K)))
    largest, correct = expected.max(axis=1), expected.argmax(axis=1) == y
    error = 0.0
    for m in range(15):
        inside = (largest > m / 15) & (largest <= (m + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - largest[inside].mean())
    assert found.calibration_error == pytest.approx(error)
    assert found.n == N
