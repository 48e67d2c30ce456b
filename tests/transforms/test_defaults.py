"""Features of different scales are warned of; tables with columns of numbers are standardised."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import streamsvm, succeeds
from helpers import as_rows, make_store, text_lines
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_svmlight_file, load_wine
from sklearn.preprocessing import StandardScaler

from streamsvm import convert, fit, load_model, online, open_store, plan, resume, tune
from streamsvm.errors import ScaleWarning
from streamsvm.sklearn import StreamSVMClassifier
from streamsvm.transforms import parse_transforms
from streamsvm.transforms.defaults import watch_scales
from streamsvm.transforms.fitting import raw_rows

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS, LABELS = DIGITS[:600], LABELS[:600]
NOISE = np.random.default_rng(0).uniform(0, 1e6, (len(DIGITS), 1))
UNSCALED = np.hstack([DIGITS, NOISE])
PIXEL = float(np.sort(DIGITS.max(axis=0)[DIGITS.any(axis=0)])[(int(DIGITS.any(axis=0).sum()) - 1) // 2])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of which two columns are numbers of very different sizes, and one has categories."""
    folder, rng = tmp_path_factory.mktemp("people"), np.random.default_rng(1)
    numbers = rng.integers(18, 90, 400), rng.lognormal(10, 0.6, 400)
    towns = rng.choice(["Ulm", "Kiel"], 400)
    rows = zip(*numbers, towns, strict=True)
    lines = [f"{age},{income:.2f},{town},{'old' if age > 60 else town}" for age, income, town in rows]
    (folder / "people.csv").write_text("\n".join(["age,income,town,label", *lines]) + "\n")
    succeeds("convert", "people.csv", "--label", "label", "--out", "people.zarr", cwd=folder)
    return folder


def test_an_unscaled_column_is_warned_of_and_scaling_mends_it(tmp_path: Path) -> None:
    named = f"feature 64 (up to {NOISE[:400].max():.3g}); the usual largest value is about {PIXEL:.3g}"
    with pytest.warns(ScaleWarning, match=re.escape(named)) as found:
        poor = fit(UNSCALED[:400], LABELS[:400])
    assert [each.filename for each in found] == [__file__]
    assert found[0].message.remedy.options == {"transform": "center,scale=std,bias"}
    good = fit(UNSCALED[:400], LABELS[:400], **found[0].message.remedy.options)
    expected, X = LABELS[400:].astype(str), UNSCALED[400:]
    assert (poor.predict(X).astype(str) == expected).mean() < 0.3
    assert (good.predict(X).astype(str) == expected).mean() > 0.8
    with pytest.warns(ScaleWarning, match="feature 64"):
        StreamSVMClassifier().fit(UNSCALED, LABELS)
    store = make_store(tmp_path / "s.zarr", sp.csr_array(UNSCALED), LABELS)
    with pytest.warns(ScaleWarning, match="s.zarr.* scale the features with transform='scale=std,bias'"):
        fit(store, out=tmp_path / "run", transform="l2")


def test_small_features_are_named_unless_they_are_rare() -> None:
    def warned(largest: list[float], transform: str | None = None) -> str:
        rows = as_rows(sp.csr_array(np.array([largest])), np.zeros(1, np.int32))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            names = [f"f{j}" for j in range(len(largest))]
            data = raw_rows(rows, len(largest), names)
            assert [each is rows for _, each in watch_scales(parse_transforms(transform), data)] == [True]
        return str(found[0].message) if found else ""

    assert "f0 (up to 1e+06), f1 (up to 1e+06); the usual largest value is about 1;" in warned([1e6, -1e6, 1])
    assert "f1 (up to 1e+06), f3 (up to 1e+05), f4 (up to 1e+05) and 1 more; the" in warned(
        [1, 1e6, 1, 1e5, 1e5, 2e4, 0, 2, 1, 3, 1]
    )
    assert not warned([1, 100, 900, 1, 0, 5])
    assert "f2 (up to 900), f1 (up to 100); the usual largest value is about 0.01" in warned(
        [1, 100, 900, 1, 0, 0.01]
    )
    assert not warned([1.0] * 40 + [1e-5])  # a word that occurs in long texts alone
    assert not warned([0, 0])
    assert warned([1, 1e6], "idf,l2,bias")
    assert not any(warned([1, 1e6], each) for each in ("scale=std", "log1p", "binarize,l2", "clip=10"))


@pytest.mark.parametrize("transform", ["bias", "scale=std,bias"])
@pytest.mark.parametrize("as_given", [np.asarray, sp.csr_array])
def test_rows_far_from_0_are_learned(transform: str, as_given: Any) -> None:
    """As irises, or breasts with and without cancer, whose mean is more than nine tenths of their norms."""
    for X, y in (load_iris(return_X_y=True), load_breast_cancer(return_X_y=True)):
        given = X / X.std(axis=0)
        own = fit(as_given(given), y, transform=transform).score(given, y)
        centred = given - given.mean(axis=0)
        assert own > fit(as_given(centred), y, transform=transform).score(centred, y) - 0.03


def test_a_mean_that_hides_the_rest_is_warned_of() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.warns(
        ScaleWarning, match=r"the mean of the rows makes up more than 99.9% of their squared norm"
    ):
        fit(X + 1000, y)


SMALL, LARGE = ["dna.scale", "pendigits", "letter.scale"], ["sector.scale", "clinc150.tfidf"]


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(each, marks=pytest.mark.more) for each in LARGE)])
def test_default_fits_of_data_sets_are_silent(name: str, data_folder: Path) -> None:
    X, labels = load_svmlight_file(str(data_folder / f"{name}.bz2"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(X, labels)
        fit(X, labels, transform="none")


def test_fit_and_the_estimator_give_the_same_model() -> None:
    """With an intercept, which is the coefficient of a column of ones; or without, if it is asked for."""
    ones = np.hstack([DIGITS, np.ones((len(DIGITS), 1))])
    with_ones = fit(ones, LABELS, transform="none", C=1e-3)
    for transform in (None, "none", "bias", "l2", "scale=std,bias"):
        own = fit(DIGITS, LABELS, transform=transform, C=1e-3)
        other = StreamSVMClassifier(transforms=transform, C=1e-3).fit(DIGITS, LABELS).model_
        np.testing.assert_array_equal(own.coef_, other.coef_)
        np.testing.assert_array_equal(own.intercept_, other.intercept_)
        assert own.intercept_.any() == (transform is None or transform.endswith("bias"))
        if transform in (None, "bias"):
            np.testing.assert_allclose(own.intercept_, with_ones.coef_[:, -1], atol=1e-6)
    chosen = tune(DIGITS, LABELS, C=[1e-3]).model
    assert chosen.intercept_.any()
    without = StreamSVMClassifier(fit_intercept=False).fit(DIGITS, LABELS).model_
    np.testing.assert_array_equal(without.coef_, fit(DIGITS, LABELS, transform="none").coef_)


def test_stores_texts_and_streams_have_an_intercept(tmp_path: Path) -> None:
    """Which is the coefficient of a column of ones."""
    X = sp.csr_array(DIGITS)
    store = make_store(tmp_path / "digits.zarr", X, LABELS)
    ones = make_store(tmp_path / "ones.zarr", sp.hstack([X, np.ones((len(DIGITS), 1))], "csr"), LABELS)
    (tmp_path / "text").write_text("".join(text_lines(X, LABELS)))
    models = []
    for train, data, transform in [
        (fit, store, None), (fit, ones, "none"), (tune, store, None), (fit, tmp_path / "text", None),
        (online, store, "bias=0.3"), (online, store, None), (online, tmp_path / "text", None),
    ]:  # fmt: skip
        options = {} if transform is None else {"transform": transform}
        train(data, out=tmp_path / "run", C=1e-3, force=True, **options)
        models.append(load_model(tmp_path / "run"))
        assert models[-1].intercept_.any() == (transform != "none")
    np.testing.assert_allclose(models[0].intercept_, models[1].coef_[:, -1], atol=1e-6)
    np.testing.assert_array_equal(models[4].intercept_, models[5].intercept_)


def test_tables_with_numbers_are_standardised(people: Path, tmp_path: Path) -> None:
    command = ("fit", "people.zarr", "--out")
    shown = succeeds(*command, tmp_path / "run", cwd=people)
    assert "transform center,scale=std,bias (--transform none leaves it out)" in shown
    settings = json.loads((tmp_path / "run/run.json").read_text())["settings"]
    assert settings["transform"] == "center,scale=std,bias"
    resume(tmp_path / "run", passes=4)  # with the same means
    with open_store(people / "people.zarr") as store:
        rows, names = store.rows(0, 400), store.feature_names()
        X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(400, store.n_features)).toarray()
    model = load_model(tmp_path / "run")
    X_scaled = np.hstack([StandardScaler().fit_transform(X[:, :2]), X[:, 2:]])
    expected = X_scaled @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(pd.DataFrame(X, columns=names)), expected, atol=1e-3)
    assert list(names)[:2] == ["age", "income"]

    code, shown, err = streamsvm(*command, tmp_path / "plain", "--transform", "none", cwd=people)
    assert code == 0
    assert "transform" not in shown
    assert err.count("\n") == 1
    assert "income (up to" in err
    assert "scale the features with --transform center,scale=std,bias" in err
    assert not load_model(tmp_path / "plain").intercept_.any()
    assert plan(people / "people.zarr")["transform"] == "center,scale=std,bias"
    frame = pd.read_csv(people / "people.csv")
    of_frame = fit(frame.drop(columns="label"), frame["label"])
    assert [each.name for each in of_frame.transforms] == ["center", "scale", "bias"]


def test_a_frame_of_numbers_is_a_table(tmp_path: Path) -> None:
    wine = load_wine(as_frame=True)
    X, y = wine.data, wine.target
    model = fit(X, y)
    wine.frame.to_csv(tmp_path / "wine.csv", index=False)
    convert([tmp_path / "wine.csv"], tmp_path / "wine.zarr", label="target")
    fit(tmp_path / "wine.zarr", out=tmp_path / "run")
    assert load_model(tmp_path / "run").record["encoding"] == model.record["encoding"]
    estimator = StreamSVMClassifier().fit(X, y)
    np.testing.assert_array_equal(estimator.model_.coef_, model.coef_)
    np.testing.assert_array_equal(estimator.partial_fit(X, y).predict(X), estimator.predict(X))
    found = tune(X, y, C=[0.01, 0.1])
    assert [each.name for each in found.model.transforms] == ["center", "scale", "bias"]
    assert len(fit(X.convert_dtypes(), y).transforms) == 3  # of types of pandas

    with pytest.warns(
        ScaleWarning, match=r"feature 12 \(up to 1.68e\+03\); the usual largest value is about 0.66;"
    ):
        of_array = fit(X.to_numpy(), y)
    with pytest.warns(ScaleWarning):
        without_names = fit(pd.DataFrame(X.to_numpy()), y)
    np.testing.assert_array_equal(of_array.coef_, without_names.coef_)
