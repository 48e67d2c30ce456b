"""The slope of the log loss is zero at the temperature, and probabilities are those of SciPy's softmax."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store
from helpers import plain_fit as fit
from reference_blocks import project_to_simplex
from scipy.special import softmax
from sklearn.metrics import log_loss

from streamsvm import Model, calibrate, evaluate, load_model, predict, resume
from streamsvm.base import format
from streamsvm.errors import InputError, ModelError, SettingsError, StreamsvmWarning
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


def assert_best(temperature: float, scores: np.ndarray, targets: np.ndarray) -> None:
    """Assert that the log loss, which is convex in 1 / T, has no slope at the temperature.

    `targets` are labels, or weights of shape (n, k). The slope over the curvature is the step of Newton's
    method, and so the error of 1 / T.
    """
    targets = np.eye(scores.shape[1])[targets] if targets.ndim == 1 else targets
    scores = scores - scores.max(axis=1, keepdims=True)
    p = softmax(scores / temperature, axis=1)
    means = (p * scores).sum(axis=1)
    slope = (means - (targets * scores).sum(axis=1)).mean()
    curvature = ((p * scores**2).sum(axis=1) - means**2).mean()
    assert abs(slope / curvature) * temperature < 1e-5


# -- probabilities ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_are_the_softmax_of_scores_over_the_temperature(dtype: str) -> None:
    for temperature in (1.0, 0.01, 30.0):
        model = make_model(dtype=dtype, probability_temperature=temperature)
        found = model.predict_proba(X)
        assert (found.shape, found.dtype) == ((N, K), np.float64)
        expected = softmax(model.decision_function(X).astype(np.float64) / temperature, axis=1)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)
        assert model.temperature == temperature
    for scale, temperature in (1e-30, 1e100), (1e300, 1e-100):
        found = make_model(scale=scale, probability_temperature=temperature).predict_proba(X)
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e300])
def test_probabilities_of_the_sparsemax_loss_are_the_projection_of_scores(scale: float) -> None:
    """To the simplex; of a model that is calibrated they are its softmax, as of any other."""
    model = make_model(loss="sparsemax", scale=scale)
    found, scores = model.predict_proba(X), scores_of(model)
    shifted = scores - scores.max(axis=1)[:, None]
    np.testing.assert_allclose(found, [project_to_simplex(s, 1.0) for s in shifted], atol=1e-12)
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
    assert (model.temperature, metrics.log_loss, metrics.calibration_error) == (None, None, None)


def test_predictions_give_probabilities_in_the_place_of_scores() -> None:
    """Classes are ranked by scores, also where probabilities underflow."""
    model = make_model(dtype="float32", probability_temperature=0.7)
    found = predict(model, X, top_k=3, proba=True)
    np.testing.assert_array_equal(found.labels, predict(model, X, top_k=3).labels)
    expected = np.take_along_axis(model.predict_proba(X), found.labels.astype(int), axis=1)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    assert predict(model, iter([]), proba=True).scores.shape == (0, 1)
    np.testing.assert_array_equal(predict(model, X, top_k=3, scores=True, proba=True).scores, found.scores)
    record = {"classes": list("abcd"), "probability_temperature": 1.0}
    found = predict(Model(np.array([[1.0, 2.0, 9e3, 3.0]]), record), [[1.0]], top_k=4, proba=True)
    assert (found.labels.tolist(), found.scores.tolist()) == ([["c", "d", "b", "a"]], [[1, 0, 0, 0]])


# -- the temperature -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_classes", "scale", "dtype"), [(2, 1e-6, "float64"), (3, 1.0, "float32"), (20, 1e6, "float64")]
)
def test_the_temperature_minimises_the_log_loss_of_the_rows_with_known_labels(
    tmp_path: Path, n_classes: int, scale: float, dtype: str
) -> None:
    rows, labels = hold_out(n_classes)
    labels = np.where(np.arange(N) % 3, labels, 99)
    model, known = make_model(n_classes, scale=scale, dtype=dtype), labels != 99
    found = calibrate(model, rows, labels)
    scores = model.decision_function(rows).astype(np.float64)[known]
    assert_best(found.temperature, scores, labels[known])
    assert (found.rows, found.warning, model.temperature) == (known.sum(), None, found.temperature)
    expected = log_loss(labels[known], model.predict_proba(rows)[known], labels=np.arange(n_classes))
    assert found.log_loss == pytest.approx(expected)
    again = calibrate(model, rows, labels)
    assert (again.log_loss_before, again.temperature) == (pytest.approx(expected), found.temperature)
    codes = np.where(known, labels, -1)
    path = make_store(tmp_path / "s.h5", rows, codes, n_classes=n_classes, shuffled=False)
    in_pieces = calibrate(model, path, memory="40k")
    assert (in_pieces.rows, in_pieces.temperature) == (found.rows, pytest.approx(found.temperature, rel=1e-5))


def test_few_readings_are_enough(tmp_path: Path) -> None:
    """Also where one of many classes stands out, and Newton's first step goes far beyond."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1000, size=200, dtype=np.int32)
    scores = rng.normal(size=(200, 1000)).astype(np.float32)
    scores[np.arange(200), labels] += 3
    model = Model(np.eye(1000), {"classes": [str(c) for c in range(1000)], "index_base": None})
    stages: set[str] = set()
    path = make_store(tmp_path / "s.h5", sp.csr_array(scores), labels, n_classes=1000, shuffled=False)
    found = calibrate(model, path, progress=lambda stage, done, total: stages.add(stage))
    assert_best(found.temperature, scores.astype(np.float64), labels)
    assert 3 < len(stages) <= 10


def test_data_that_cannot_calibrate_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    model, folder = make_model(), tmp_path / "model"
    model.save(folder)
    before = (folder / format.MODEL_JSON).read_bytes()
    rows = as_rows(X, LABELS)
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (X, np.full(N, 99), ModelError, "it knows none of the labels of the 150 rows"),
        (X[:0], [], ModelError, "no rows"),
        ([], None, ModelError, "no rows"),
        (iter([rows]), None, InputError, "an iterator can be read only once"),
        (X, None, InputError, "y is missing"),
        ([rows], LABELS, SettingsError, "y applies only to a matrix"),
        (X[:, 1:], LABELS, ModelError, "7 features, but the model has 8"),
        (X, [["0", "1"], *[["2"]] * (N - 1)], ModelError, "calibration needs one label per row"),
    ]
    for data, y, error, message in cases:
        for of in (model, folder):
            with pytest.raises(error, match=message):
                calibrate(of, data, y)
    for scale in (1e-200, 1e-110, 1e110, 1e200):
        with pytest.raises(ModelError, match="too large or too small for calibration; rescale the data"):
            calibrate(make_model(scale=scale), X, LABELS)
    assert model.temperature is None
    assert (folder / format.MODEL_JSON).read_bytes() == before
    with pytest.raises(ModelError, match=r"nothing.* does not exist; check the path"):
        calibrate(tmp_path / "nothing", X, LABELS)


def test_a_score_that_overflows_is_named_by_its_row(tmp_path: Path) -> None:
    model = make_model(scale=1e38, dtype="float32", probability_temperature=1.0)
    rows = X.copy()
    rows.data[:] = 1e-3
    rows.data[rows.indptr[70] : rows.indptr[71]] = 1e38
    path = make_store(tmp_path / "s.h5", rows, LABELS, shuffled=False)
    for ask in (calibrate, evaluate, lambda *words, **more: predict(*words, proba=True, **more)):
        with pytest.raises(ModelError, match=r"row 71 of .*: a score overflows float32"):
            ask(model, path, memory="40k")


@pytest.mark.parametrize(("n", "n_classes"), [(1, 5), (200, 5)])
def test_a_separable_hold_out_is_fitted_with_smoothed_labels(n: int, n_classes: int) -> None:
    """Its log loss has no minimum: the lower the temperature, the less it is."""
    rng = np.random.default_rng(n)
    labels = rng.integers(n_classes, size=n)
    scores = rng.uniform(-1, 1, size=(n, n_classes))
    scores[np.arange(n), labels] = 1.1
    model = Model(np.eye(n_classes), {"classes": [str(c) for c in range(n_classes)]})
    with pytest.warns(StreamsvmWarning, match=rf"all {n} hold-out rows are predicted correctly"):
        found = calibrate(model, scores, labels)
    assert_best(found.temperature, scores, (n * np.eye(n_classes)[labels] + 1) / (n + n_classes))


def test_scores_that_say_nothing_give_nearly_equal_probabilities() -> None:
    model = make_model()
    lowest = scores_of(model).argmin(axis=1)
    repeated = X[np.repeat(np.arange(N), K)], np.tile(np.arange(K), N)  # each row once with each label
    for rows, labels in (X, lowest), repeated, (X[[3]], lowest[[3]]):
        with pytest.warns(StreamsvmWarning, match="the scores are unrelated to the labels"):
            found = calibrate(model, rows, labels)
        assert 0 < found.temperature < np.inf
        np.testing.assert_allclose(model.predict_proba(X), 1 / K, rtol=0.02)
    with pytest.warns(StreamsvmWarning, match="the scores are unrelated to the labels"):
        found = calibrate(model, 0 * X, LABELS)
    assert (found.temperature, found.log_loss) == (1, pytest.approx(np.log(K)))


# -- saved models ----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    fit(make_store(tmp_path / "s.h5", X, LABELS), out=tmp_path / "run", passes=2)
    return tmp_path / "run"


def test_a_saved_model_keeps_its_coefficients_and_gets_a_temperature(tmp_path: Path, run: Path) -> None:
    folder = run / "model"
    with locked(RunDir(run)), pytest.raises(ModelError, match="in use by another process"):
        calibrate(run, X, LABELS)
    assert load_model(run).temperature is None
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    found = calibrate(run, X, LABELS)
    after = {path.name: (path.read_bytes(), path.stat().st_ino) for path in folder.iterdir()}
    assert [name for name in after if after[name] != before.get(name)] == [format.MODEL_JSON]
    assert after.keys() == before.keys()
    old, new = (json.loads(each[format.MODEL_JSON][0]) for each in (before, after))
    assert new == {**old, **{name: new[name] for name in (format.TEMPERATURE, format.ANSWERED, "checksum")}}
    model = load_model(run)
    assert model.temperature == found.temperature
    model.save(tmp_path / "copy")
    (tmp_path / "copy" / "model.json.tmp").touch()  # as a crash while calibrating may leave it
    model.save(tmp_path / "copy")
    np.testing.assert_array_equal(load_model(tmp_path / "copy").predict_proba(X), model.predict_proba(X))


def test_a_temperature_lasts_as_long_as_the_coefficients(run: Path) -> None:
    calibrate(run, X, LABELS)
    before = (run / "model" / format.MODEL_JSON).read_bytes()
    assert resume(run).warnings == []
    assert (run / "model" / format.MODEL_JSON).read_bytes() == before
    (warning,) = resume(run, passes=3).warnings
    assert "calibrate it again" in warning
    assert {format.TEMPERATURE, format.ANSWERED}.isdisjoint(load_model(run).record)


def test_a_model_that_was_replaced_meanwhile_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    make_model().save(folder)
    with pytest.raises(ModelError, match="was replaced during calibration; calibrate the new model"):
        calibrate(folder, X, LABELS, progress=lambda *_: make_model(scale=2.0).save(folder))
    np.testing.assert_array_equal(load_model(folder).coef_, make_model(scale=2.0).coef_)
    assert load_model(folder).temperature is None


# -- what evaluate measures ------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 20.0])
def test_evaluate_measures_probabilities(temperature: float) -> None:
    model = make_model(probability_temperature=temperature)
    labels = LABELS.copy()
    labels[::7] = -1
    with pytest.warns(StreamsvmWarning, match="unknown to the model; such rows count as wrong"):
        found = evaluate(model, [as_rows(X[:50], labels[:50]), as_rows(X[50:], labels[50:])])
    known = labels >= 0
    expected, y = softmax(scores_of(model) / temperature, axis=1)[known], labels[known]
    assert found.log_loss == pytest.approx(log_loss(y, expected, labels=np.arange(K)))
    largest, correct = expected.max(axis=1), expected.argmax(axis=1) == y
    error = 0.0
    for m in range(15):
        inside = (largest > m / 15) & (largest <= (m + 1) / 15)
        if inside.any():
            error += inside.mean() * abs(correct[inside].mean() - largest[inside].mean())
    assert (found.n, found.calibration_error) == (N, pytest.approx(error))
