"""The scikit-learn estimator: scikit-learn's own checks, and the models of `streamsvm.fit`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from helpers import make_store
from row_stream import RowStream
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamsvm import fit, load_model, online, predict
from streamsvm.errors import ScaleWarning, SettingsError
from streamsvm.sklearn import StreamSVMClassifier
from streamsvm.training.products import Products

NOT_CONVERGED = (
    "a few passes do not converge: a row of weight 2 is visited once, and its copies twice; "
    "test_weights_are_repetitions_at_the_optimum compares the optima"
)
DIGITS, LABELS = load_digits(return_X_y=True)


@parametrize_with_checks(
    [StreamSVMClassifier()],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": NOT_CONVERGED for kind in ("dense", "sparse")
    },
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        300, 12, n_informative=6, n_classes=4, n_clusters_per_class=1, class_sep=2.0, random_state=0
    )


@pytest.mark.parametrize(
    "options", few([{}, {"loss": "cs", "passes": 2}, {"loss": "ovr", "dtype": "float64"}], {})
)
def test_labels_are_those_of_fit_and_predict_on_a_store(
    tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray], options: dict[str, Any]
) -> None:
    X, y = blobs
    path = make_store(tmp_path / "a.h5", sp.csr_matrix(X.astype("f4")), y.astype(np.int32), shuffled=False)
    fit(path, out=tmp_path / "run", transform="bias", slice_rows=0, **options)
    model = load_model(tmp_path / "run")
    estimator = StreamSVMClassifier(**options).fit(X, y)
    np.testing.assert_array_equal(predict(model, path).labels[:, 0], estimator.predict(X).astype(str))
    np.testing.assert_allclose(estimator.coef_, model.coef_, atol=1e-6)
    np.testing.assert_allclose(estimator.intercept_, model.intercept_, atol=1e-6)
    assert estimator.model_.record["C"] == pytest.approx(model.record["C"])
    of_file = StreamSVMClassifier(**options, fit_intercept=True).fit(path, slice_rows=0)
    assert of_file.classes_.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(of_file.predict(path), estimator.predict(X).astype(str))
    np.testing.assert_array_equal(of_file.predict(X), of_file.predict(path))


def test_it_reports_passes_and_the_gap(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    estimator = StreamSVMClassifier(tol=1e-3, passes=100, C=0.1).fit(*blobs)
    assert 1 < estimator.n_iter_ < 100
    weights = np.c_[estimator.coef_, estimator.intercept_].astype(np.float64)
    assert 0 < estimator.duality_gap_ < 0.1 * (weights**2).sum()
    assert StreamSVMClassifier(gap="none").fit(*blobs).duality_gap_ is None


@pytest.mark.more
def test_weights_are_repetitions_at_the_optimum(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs[0][:200], blobs[1][:200]
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    facts: dict[str, Any] = {"tol": 1e-7, "passes": 3000, "dtype": "float64", "C": 0.1}
    weighted = StreamSVMClassifier(**facts).fit(X, y, sample_weight=weights)
    repeated = StreamSVMClassifier(**facts).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
    balanced = StreamSVMClassifier(class_weight="balanced", **facts).fit(X, y)
    of_rows = len(y) / (4 * np.bincount(y)[y])
    by_rows = StreamSVMClassifier(**facts).fit(X, y, sample_weight=of_rows)
    np.testing.assert_allclose(balanced.coef_, by_rows.coef_, atol=1e-4)
    by_name = StreamSVMClassifier(class_weight={1: 3.0}, **facts).fit(X, y)
    threefold = StreamSVMClassifier(**facts).fit(X, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(by_name.coef_, threefold.coef_, atol=1e-4)


def test_it_works_where_scikit_learn_puts_it() -> None:
    X, y = DIGITS[:600], LABELS[:600]
    pipeline = make_pipeline(MaxAbsScaler(), StreamSVMClassifier())
    search = GridSearchCV(pipeline, {"streamsvmclassifier__C": [0.001, 1.0]}, cv=3, n_jobs=2).fit(X, y)
    assert search.best_score_ > 0.85
    found = cross_val_predict(clone(pipeline), X, y, cv=3, method="decision_function")
    assert (found.argmax(axis=1) == y).mean() == pytest.approx(search.best_score_, abs=0.05)
    calibrated = CalibratedClassifierCV(pipeline, cv=3).fit(X, y)
    assert log_loss(LABELS[600:], calibrated.predict_proba(DIGITS[600:])) < 1.0
    pipeline.set_output(transform="pandas").fit(pd.DataFrame(X).add_prefix("p"), y)
    assert pipeline[-1].feature_names_in_[:2].tolist() == ["p0", "p1"]
    assert pipeline[-1].model_.feature_names_in_[-1] == "p63"


def test_probabilities_are_calibrated_on_rows_held_out() -> None:
    X, y = DIGITS[:1200] / 16, LABELS[:1200]
    with pytest.raises(AttributeError, match="predict_proba") as raised:
        StreamSVMClassifier().fit(X, y).predict_proba(X)
    assert "calibrate=0.1" in str(raised.value.__cause__)
    estimator = StreamSVMClassifier(calibrate=0.2).fit(X, y)
    found = estimator.predict_proba(DIGITS[1200:] / 16)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    scores = estimator.decision_function(DIGITS[1200:] / 16).astype(np.float64)
    losses = [
        log_loss(LABELS[1200:], softmax(scores / (factor * estimator.model_.temperature), axis=1))
        for factor in (0.25, 1, 4)
    ]
    assert min(losses) == losses[1] == pytest.approx(log_loss(LABELS[1200:], found))
    for wrong in (0, 1.0, -0.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            StreamSVMClassifier(calibrate=wrong).fit(X, y)


def test_names_of_columns_are_kept(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    names, weights = [f"gene {j}" for j in range(X.shape[1])], np.linspace(0.5, 2, len(y))
    frame = pd.DataFrame(X, columns=names)
    cells = anndata.AnnData(X, var=pd.DataFrame(index=names))
    # The default of tables is to standardise them.
    for given, transforms in (frame, "center,scale=std,bias"), (cells, None), (sp.csr_array(X), None):
        expected = StreamSVMClassifier(transforms=transforms).fit(X, y).predict(X)
        estimator = StreamSVMClassifier().fit(given, y)
        np.testing.assert_array_equal(estimator.predict(given), expected)
        assert estimator.n_features_in_ == X.shape[1]
        assert getattr(estimator, "feature_names_in_", np.array(names)).tolist() == names
    estimator = StreamSVMClassifier().fit(cells, y)  # AnnData is matched by name, in any order
    np.testing.assert_array_equal(estimator.predict(cells[:, ::-1].copy()), estimator.predict(cells))
    for fit_rows in (
        lambda data: StreamSVMClassifier(transforms="bias").fit(data, y, sample_weight=weights),
        lambda data: StreamSVMClassifier(transforms="bias").partial_fit(data, y, np.unique(y), weights),
    ):
        np.testing.assert_array_equal(fit_rows(frame).coef_, fit_rows(X).coef_)


# -- partial_fit -----------------------------------------------------------------------------------


def test_batches_are_a_pass_of_online(tmp_path: Path, blobs: tuple[np.ndarray, np.ndarray]) -> None:
    """In batches of any size, also pickled in between; and the model is that of `streamsvm.online`.

    The bits do not depend on the batches. Dense rows are visited by another kernel than the sparse ones of
    `online`, which LLVM may contract otherwise.
    """
    X, y = blobs
    stream = RowStream(
        sp.csr_array(X.astype("f4")), y.astype(str), (50,), classes=list("0123"), n_features=12
    )
    online(stream, out=tmp_path / "run", transform="none")
    found = []
    for cuts in ([300], [7, 300], [100, 101, 250, 300]):
        estimator = StreamSVMClassifier(fit_intercept=False)
        begin = 0
        for end in cuts:
            estimator.partial_fit(X[begin:end], y[begin:end], classes=[0, 1, 2, 3])
            estimator = pickle.loads(pickle.dumps(estimator))
            begin = end
        found.append(estimator.coef_)
        np.testing.assert_array_equal(found[-1], found[0])
    expected = load_model(tmp_path / "run").coef_
    rounding = 8 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=rounding)


@pytest.mark.engine
def test_batches_of_dense_rows_with_many_classes_are_those_of_csr_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By matrix products, also where a sparse batch comes between, and after pickling."""
    for name in ("_MIN_ROWS", "_MAX_ROWS"):  # of a tile, whose steps the average takes to be made at once
        monkeypatch.setattr(f"streamsvm.training.products.{name}", 1)
    products = []
    visit = Products.visit
    monkeypatch.setattr(Products, "visit", lambda self, *args: products.append(args[4]) or visit(self, *args))
    rng, classes = np.random.default_rng(0), np.arange(80)
    y = rng.integers(0, 80, 600)
    X = (rng.normal(size=(80, 20))[y] + rng.normal(size=(600, 20))).astype(np.float32)
    dense, sparse = StreamSVMClassifier(), StreamSVMClassifier()
    for begin, end in (0, 150), (150, 300), (300, 301), (301, 600):
        rows = slice(begin, end)
        given = sp.csr_array(X[rows]) if begin == 150 else X[rows]
        dense = pickle.loads(pickle.dumps(dense.partial_fit(given, y[rows], classes)))
        sparse.partial_fit(sp.csr_array(X[rows]), y[rows], classes)
    assert products == [150, 1, 299]
    np.testing.assert_allclose(dense.coef_, sparse.coef_, atol=1e-5)


def test_weights_of_a_batch_are_factors_of_c(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    weighted = StreamSVMClassifier(C=0.01).partial_fit(X, y, np.unique(y), sample_weight=np.full(len(y), 2.0))
    doubled = StreamSVMClassifier(C=0.02).partial_fit(X, y, np.unique(y))
    np.testing.assert_array_equal(weighted.coef_, doubled.coef_)


def test_what_cannot_be_trained_is_refused(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    for options, words in [
        ({"transforms": "scale=std"}, "statistics of all rows"),
        ({"loss": "llw"}, "needs all classes"),
        ({"class_weight": "balanced"}, "sample_weight"),
        ({"tree": "tree.txt"}, "tree applies only to fit"),
    ]:
        with pytest.raises(ValueError, match=words):
            StreamSVMClassifier(**options).partial_fit(X, y, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="classes is missing"):
        StreamSVMClassifier().partial_fit(X, y)
    estimator = StreamSVMClassifier().partial_fit(X, y, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        estimator.partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="label 7, which"):
        estimator.partial_fit(X, np.full(len(y), 7))
    for options, words in [({"loss": "none"}, "loss"), ({"C": -1}, "C"), ({"dtype": "float16"}, "dtype")]:
        with pytest.raises((SettingsError, ValueError), match=words):
            StreamSVMClassifier(**options).fit(X, y)
    with pytest.raises(TypeError, match="layer"):
        StreamSVMClassifier().fit(X, y, layer="counts")


def test_batches_after_a_store_whose_classes_are_numbers(tmp_path: Path) -> None:
    """Classes of a store are ordered as numbers: 2 is before 10."""
    X = DIGITS[:400] / 16
    path = make_store(tmp_path / "a.h5", sp.csr_matrix(X), LABELS[:400].astype(np.int32))
    estimator = StreamSVMClassifier().fit(path)
    before = estimator.predict(X)
    estimator.partial_fit(X, LABELS[:400].astype(str))
    assert (estimator.predict(X) == before).mean() > 0.9


@pytest.mark.engine
def test_wrong_values_are_value_errors_in_every_method(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    estimator = StreamSVMClassifier("logistic", transforms="log1p", dtype="float64").fit(np.abs(X), y)
    for method in (estimator.predict, estimator.decision_function, estimator.predict_proba):
        with pytest.raises(ValueError, match="log1p"):
            method(-np.abs(X))
    with pytest.raises(ValueError, match="holds out none"):
        StreamSVMClassifier(calibrate=1e-6).fit(X, y)


def test_a_split_training_is_that_of_fit_whatever_n_jobs() -> None:
    X, y = make_classification(300, 20, n_informative=12, n_classes=9, random_state=0)
    settings = {"splits": 2, "split": "classes", "passes": 2, "C": 0.02, "dtype": "float64"}
    found = [StreamSVMClassifier(**settings, n_jobs=jobs).fit(X, y).coef_ for jobs in (None, 2)]
    assert np.array_equal(found[0], found[1])
    plain = fit(np.c_[X, np.ones(len(X))], y, transform="none", **settings)
    np.testing.assert_allclose(found[0], plain.coef_[:, :-1], rtol=1e-4, atol=1e-6)


def test_batches_of_a_table_are_not_scaled_and_that_is_said() -> None:
    X = pd.DataFrame(DIGITS).add_prefix("pixel ")
    with pytest.warns(ScaleWarning, match="partial_fit does not scale the columns of a table"):
        StreamSVMClassifier().partial_fit(X, LABELS, classes=range(10))


@pytest.mark.engine
def test_the_logarithms_of_probabilities() -> None:
    found = StreamSVMClassifier(loss="logistic").fit(DIGITS, LABELS)
    # Logarithms down to -13 are rounded by up to 2e-15, and so, relatively, are the probabilities.
    np.testing.assert_allclose(
        np.exp(found.predict_log_proba(DIGITS)), found.predict_proba(DIGITS), rtol=4e-15
    )
    assert not hasattr(StreamSVMClassifier(), "predict_log_proba")
