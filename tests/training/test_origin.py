"""Training that goes on from a model: optimum, gap, bytes, and features and classes that are new."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import reference
from anndata import AnnData
from helpers import IN_FILES, MemoryPolicy, fit_with, make_problem, make_store, resume_with
from run_files import model_bytes, stop_after
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler
from small_problem import BLOCK, N, assert_encloses, exactly

from streamsvm import evaluate, fit, load_model
from streamsvm.errors import FeatureError, Interrupted, SettingsError, StoreError
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.model.model import Model


@pytest.mark.parametrize(
    ("loss", "margin"), [(each.name, M) for each in LOSSES.values() for M in each.margins]
)
def test_the_optimum_near_a_model_is_that_of_a_general_solver(
    tmp_path: Path, loss: str, margin: float
) -> None:
    """The model lacks a class and has one that the new rows lack; its weights do not sum to 0."""
    pytest.importorskip("cvxpy")
    import general_solver

    for number in range(10):
        rng = np.random.default_rng(number)
        k, d = 3 + number % 5, int(rng.integers(3, 9))
        X, y = make_problem(60, d, k, seed=number, noise=rng.uniform(0.3, 2))
        X, y, C = X.toarray(), y[X.toarray().any(axis=1)], 10 ** rng.uniform(-2, 1)
        X = X[X.any(axis=1)].astype(float)
        old, new = (y > 0) & (np.arange(len(X)) < 35), (y < k - 1) & (np.arange(len(X)) >= 35)
        base = fit(X[old], y[old], passes=2, C=C / 2, loss="ovr2", dtype="float64", transform="none")
        base.save(tmp_path / "base")
        origin = np.zeros((d, k))
        origin[:, base.classes_] = base.coef_.T
        origin -= origin.mean(axis=1, keepdims=True) * LOSSES[loss].extra_columns
        X, y, of_loss = X[new], y[new], {"loss": loss, "margin": margin, "C": C}
        optimum, W = general_solver.solve(labels=y, X=X, k=k, origin=origin, **of_loss)
        model = fit(X, y, from_=tmp_path / "base", **of_loss, **exactly(loss))
        assert_encloses(model.result, optimum)
        np.testing.assert_allclose(model.coef_.T, W, atol=0.02)
        expected = reference.primal(model.coef_.T, X, y, **of_loss) - 0.5 * np.square(model.coef_).sum()
        expected += 0.5 * np.square(model.coef_.T - origin).sum()
        assert model.result.primal == pytest.approx(expected, rel=1e-9)


@pytest.fixture
def halves(tmp_path: Path) -> list[Path]:
    """Stores of the halves of a problem."""
    X, labels = make_problem(2 * N, 11, 5, noise=1.5)
    return [make_store(tmp_path / f"{i}.zarr", X[i * N :][:N], labels[i * N :][:N]) for i in range(2)]


WAYS: list[dict[str, Any]] = [
    {"splits": 2, "split": "rows"}, {"splits": 2, "split": "classes"}, {"C": "auto", "hold_out": "1/5"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "options"), [(IN_FILES, {"average": False}), *((MemoryPolicy(), way) for way in WAYS)]
)
def test_a_run_stopped_anywhere_and_resumed_without_the_old_model_gives_the_same_bytes(
    tmp_path: Path, halves: list[Path], policy: MemoryPolicy, options: dict
) -> None:
    """Also with weights in files, which a whole run has in memory."""
    fit(halves[0], out=tmp_path / "base", C=0.1)
    options = {"C": 0.1, "passes": 2, "block_rows": BLOCK, "gap": "pass", "transform": None, **options}
    whole = fit(halves[1], out=tmp_path / "whole", from_=tmp_path / "base", **options)
    run = {"out": tmp_path / "run", "force": True, "checkpoint_every": "2", "from_": tmp_path / "copy"}
    for n in itertools.count(1, 3):
        shutil.copytree(tmp_path / "base", tmp_path / "copy")
        try:
            fit_with(policy, halves[1], stop=stop_after(n), **run, **options)
        except Interrupted:
            shutil.rmtree(tmp_path / "copy")
        else:
            break
        resumed = resume_with(policy, tmp_path / "run")
        assert 0 < resumed.gap == pytest.approx(whole.gap, rel=1e-9)
        assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")
    assert n > 10


@pytest.mark.parametrize("loss", ["ww", "cs", "ovr2", "llw", "logistic"])
def test_from_a_model_of_zeros_a_training_has_the_bytes_of_one_from_none(
    tmp_path: Path, halves: list[Path], loss: str
) -> None:
    options: dict[str, Any] = {"C": 0.1, "loss": loss, "dtype": "float64"}
    plain = fit(halves[1], out=tmp_path / "plain", **options)
    model = load_model(tmp_path / "plain")
    Model(0 * model.weights(), model.record, None, model.transforms).save(tmp_path / "zeros")
    result = fit(halves[1], out=tmp_path / "run", from_=tmp_path / "zeros", **options)
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "plain")
    assert result.gap == pytest.approx(plain.gap, rel=1e-9)


def cells(X: pd.DataFrame) -> AnnData:
    return AnnData(X.set_axis([f"cell {i}" for i in range(len(X))]))


def test_features_and_classes_are_matched_by_name_and_new_ones_get_their_own_statistics(
    tmp_path: Path,
) -> None:
    """With a C so small that no weight moves, the model is the old one, in the columns of all names."""
    X = pd.DataFrame(np.random.default_rng(0).normal(2, [1, 3, 9, 27], (200, 4)), columns=list("abcd"))
    labels = np.array(["x", "y", "z", "w"])[(X - X.mean() > 0).to_numpy() @ [0, 1, 2, 0]]
    first = (np.arange(200) < 100) & (labels != "w")
    base = fit(cells(X[["c", "a", "b"]][first]), labels[first], transform="center,scale=std,bias")
    base.save(tmp_path / "base")
    with pytest.warns(UserWarning, match="1 are missing and count as 0 .'a'"):
        model = fit(cells(X[["d", "b", "c"]][100:]), labels[100:], from_=tmp_path / "base", C=1e-30)
    assert model.feature_names_in_.tolist() == ["c", "a", "b", "d"]
    assert model.classes_.tolist() == ["w", "x", "y", "z"]
    np.testing.assert_allclose(model.coef_, np.pad(base.coef_, ((1, 0), (0, 1))), atol=1e-20)
    np.testing.assert_allclose(model.intercept_, [0, *base.intercept_], atol=1e-20)
    scaler = StandardScaler().fit(X[["d"]][100:])
    for step, fitted in enumerate((scaler.mean_, 1 / scaler.scale_)):
        expected = [*base.transforms[step].array, *fitted]
        np.testing.assert_allclose(model.transforms[step].array, expected, rtol=1e-6)


@pytest.mark.parametrize(("width", "transform"), [(8, None), (14, None), (14, "hash=5,bias")])
def test_numbered_features_of_text_may_be_fewer_or_more(
    tmp_path: Path, width: int, transform: str | None
) -> None:
    X, labels = make_problem(2 * N, 14, 3, noise=1.5)
    dump_svmlight_file(X[:N, :11], labels[:N], str(tmp_path / "old"), zero_based=False)
    kept = N + np.flatnonzero(labels[N:])  # the new rows lack a class
    dump_svmlight_file(X[kept][:, :width], labels[kept], str(tmp_path / "new"), zero_based=False)
    fit(tmp_path / "old", out=tmp_path / "base", index_base=1, transform=transform)
    options = {"out": tmp_path / "run", "from_": tmp_path / "base", "valid": tmp_path / "old", "C": 1e-30}
    result = fit(tmp_path / "new", index_base=1, **options)
    assert result.valid_accuracy == evaluate(tmp_path / "base", tmp_path / "old").accuracy
    old, new = (load_model(tmp_path / name).coef_ for name in ("base", "run"))
    np.testing.assert_allclose(new[:, : old.shape[1]], old, atol=1e-20)
    assert new.shape[1] == (32 if transform else max(width, 11))


def test_data_and_settings_that_do_not_go_with_a_model_are_refused(tmp_path: Path) -> None:
    X, labels = make_problem(N, 4, 3)
    X = cells(pd.DataFrame(X.toarray(), columns=list("abcd")))
    fit(X, labels).save(tmp_path / "base")
    for data, y, options, error, text in (
        (X, labels, {"transform": "l2"}, SettingsError, "transform must be left out when"),
        (X, labels, {"loss": "chain"}, SettingsError, "from_ must be left out with the loss chain"),
        (X, labels + 7, {}, StoreError, "has none of the model's classes"),
        (cells(X.to_df().add_prefix("g")), labels, {}, FeatureError, "has none of the 4 features"),
        (X.X, labels, {}, StoreError, "features are named, numbered or encoded differently"),
    ):
        with pytest.raises(error, match=text):
            fit(data, y, from_=tmp_path / "base", **options)
