"""Transforms from training to prediction: stores, matrices, held-out data, resuming, and data they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import FEATURES, automatic_c, make_store
from helpers import plain_fit as fit
from run_files import model_bytes, stop_after
from sklearn import preprocessing

from streamsvm import evaluate, load_model, plan, predict, resume
from streamsvm.base import format
from streamsvm.errors import InputError, Interrupted, ModelError, PlanError, SettingsError
from streamsvm.transforms import fitting

N, D, K = 240, 15, 3
KEPT = np.loadtxt(FEATURES, np.int64) - 1  # columns
FULL = f"normalize=50,log1p,select={FEATURES},scale=std,clip=4,bias=0.5"


def make_counts(n: int = N, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Counts of features that differ between classes, with an empty row, and class codes."""
    centres = np.random.default_rng(1).gamma(0.6, 3.0, size=(K, D))
    rng = np.random.default_rng(seed)
    labels = np.arange(n, dtype=np.int32) % K
    X = rng.poisson(centres[labels] * rng.uniform(0.3, 2.0, size=(n, 1)))
    X[5] = 0
    return sp.csr_array(X.astype(np.float64)), labels


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "counts.h5", *make_counts(), chunk_nnz=100)


@pytest.fixture
def held_out(tmp_path: Path) -> Path:
    return make_store(tmp_path / "held-out.h5", *make_counts(90, seed=3))


def by_hand(X: sp.csr_array, train: sp.csr_array) -> np.ndarray:
    """What `FULL` makes of X, by NumPy and scikit-learn, with a last column of 0.5."""

    def logs(X: sp.csr_array) -> np.ndarray:
        dense = X.toarray()
        sums = dense.sum(axis=1, keepdims=True)
        return np.log1p(dense * 50 / np.where(sums > 0, sums, 1))

    seen = logs(train)
    scaler = preprocessing.StandardScaler(with_mean=False).fit(seen[:, KEPT])
    found = np.clip(scaler.transform(logs(X)[:, KEPT]), -4, 4)
    return np.hstack([found, np.full((len(found), 1), 0.5)])


def test_training_is_that_of_rows_transformed_beforehand(tmp_path: Path, store: Path, held_out: Path) -> None:
    """A store, and a matrix; the scores of data as it is are those of the transformed data."""
    X, labels = make_counts()
    transformed = by_hand(X, X)
    before = make_store(tmp_path / "before.h5", sp.csr_array(transformed), labels)
    facts: dict[str, Any] = {"passes": 2, "dtype": "float64", "seed": 4}
    C = automatic_c(transformed[:, :-1])  # the constant does not count in it
    expected = fit(before, out=tmp_path / "expected", C=C, **facts)
    found = fit(store, out=tmp_path / "found", transform=FULL, valid=held_out, **facts)
    assert pytest.approx(expected.C, rel=1e-9) == found.C
    assert found.gap == pytest.approx(expected.gap, rel=1e-6)
    reference, model = load_model(tmp_path / "expected"), load_model(tmp_path / "found")
    np.testing.assert_allclose(model.coef_.T, reference.coef_.T[:-1], atol=1e-9)
    np.testing.assert_allclose(model.intercept_, 0.5 * reference.coef_.T[-1], atol=1e-9)
    assert (model.n_features_in_, model.n_features, model.coef_.T.shape) == (D, 12, (11, K))

    new, truth = make_counts(90, seed=3)
    scores = by_hand(new, X) @ reference.coef_.T
    np.testing.assert_allclose(model.decision_function(new), scores, atol=1e-9)
    np.testing.assert_array_equal(predict(model, held_out).labels[:, 0], model.classes_[scores.argmax(1)])
    accuracy = (scores.argmax(axis=1) == truth).mean()
    assert evaluate(model, held_out).accuracy == found.valid_accuracy == pytest.approx(accuracy)

    shifted = [sp.csr_array(sp.hstack([sp.csr_array((each.shape[0], 1)), each])) for each in (X, new)]
    of_matrix = fit(shifted[0], labels, transform=FULL.split(","), **facts)  # features are from 0 on
    np.testing.assert_allclose(of_matrix.coef_.T, reference.coef_.T[:-1], atol=1e-9)
    np.testing.assert_allclose(of_matrix.decision_function(shifted[1]), scores, atol=1e-9)


def test_an_intercept_is_that_of_a_feature_of_ones(tmp_path: Path) -> None:
    """To the optimum, against scikit-learn's one-vs-rest machines, whose intercept is regularised."""
    from sklearn.svm import LinearSVC

    X, labels = make_counts(60)
    model = fit(
        X, labels, loss="ovr2", transform="scale=std,bias=2", C=0.5, passes=400, tol=1e-9, dtype="float64"
    )
    scaled = preprocessing.StandardScaler(with_mean=False).fit_transform(X)
    expected = LinearSVC(
        C=0.5, intercept_scaling=2, loss="squared_hinge", dual=True, tol=1e-10, max_iter=200_000
    ).fit(scaled, labels)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-4)


# -- resuming --------------------------------------------------------------------------------------


def contents(run: Path) -> dict[str, bytes]:
    return model_bytes(run) | {path.name: path.read_bytes() for path in run.glob("transform-*")}


def test_a_run_that_stops_at_a_commit_resumes_to_the_same_bytes(
    tmp_path: Path, store: Path, held_out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: dict[str, Any] = {"transform": FULL, "passes": 3, "block_rows": 40, "valid": held_out}
    fit(store, out=tmp_path / "whole", **facts)
    for stops in (1, 8, 13):
        run = tmp_path / f"stopped-{stops}"
        begun: list[Any] = []
        after = stop_after(stops + 1)
        stop = lambda begun=begun, after=after: bool(begun) and after()  # noqa: E731
        with pytest.raises(Interrupted):
            fit(store, out=run, report=begun.append, stop=stop, **facts)
        with monkeypatch.context() as patch:
            patch.setattr(fitting, "_gather", lambda *given: pytest.fail("statistics were gathered again"))
            resume(run)
        assert contents(run) == contents(tmp_path / "whole")
    extended = tmp_path / "extended"
    fit(store, out=extended, **(facts | {"passes": 2}), keep_duals=True)
    resume(extended, passes=3)
    assert contents(extended) == contents(tmp_path / "whole")


def test_a_stop_while_statistics_are_gathered_leaves_no_run(tmp_path: Path, store: Path) -> None:
    with pytest.raises(Interrupted, match="before training began"):
        fit(store, out=tmp_path / "run", transform="idf", stop=lambda: True)
    assert not (tmp_path / "run").exists()


def test_a_damaged_array_is_refused(tmp_path: Path, store: Path) -> None:
    fit(store, out=tmp_path / "run", transform="l2,idf", passes=2)
    for folder, use in (
        (tmp_path / "run", lambda: resume(tmp_path / "run", passes=3)),
        (tmp_path / "run/model", lambda: load_model(tmp_path / "run")),
    ):
        path = folder / "transform-1.npy"
        whole = path.read_bytes()
        for damaged in (whole[:-1] + b"\7", whole[:-8], None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            with pytest.raises(ModelError, match=r"transform-1\.npy"):
                use()
        path.write_bytes(whole)


FORGED: list[Callable[[dict[str, Any]], Any]] = [
    lambda record: record["transforms"][1].update(width=D + 1),
    lambda record: record["transforms"][1].update(width=10**12),
    lambda record: record["transforms"][1].update(width=-1),
    lambda record: record["crc32"].update({"transform-1.npy": 0}),
    lambda record: record["crc32"].pop("transform-1.npy"),
    lambda record: record["transforms"][2].update(column=3),
    lambda record: record["transforms"][2].update(more=3),
    lambda record: record["transforms"].pop(),
    lambda record: record["transforms"].extend({"name": "l2"} for _ in range(20)) or record.update(
        transforms=record["transforms"][3:] + record["transforms"][:3]
    ),
    lambda record: record.update(n_features_in=D + 1),
    lambda record: record.update(n_features_in="many"),
    lambda record: record.pop("n_features_in"),
]  # fmt: skip


def test_a_model_with_transforms_that_do_not_fit_is_refused(tmp_path: Path, store: Path) -> None:
    """Compiled code relies on what the records say: no index may lead out of an array."""
    fit(store, out=tmp_path / "run", transform="l2,idf,bias", passes=1)
    path = tmp_path / "run/model/model.json"
    whole = path.read_bytes()
    for change in FORGED:
        record = json.loads(whole)
        change(record)
        path.write_text(json.dumps(format.sealed(record)))
        with pytest.raises(ModelError, match=r"damaged"):
            load_model(tmp_path / "run")


# -- the view --------------------------------------------------------------------------------------


def test_a_plan_counts_what_transforms_hold(store: Path) -> None:
    plain, scaled = (plan(store, transform=text, C=1.0) for text in ("none", "scale=std"))
    assert scaled["planned_bytes"] >= plain["planned_bytes"] + 8 * D
    assert plan(store, transform=f"select={FEATURES},bias")["features"] == 12
    with pytest.raises(PlanError) as caught:
        fit(store, out=store.parent / "run", transform="scale=std", memory=100)
    assert caught.value.needed_memory is not None


def test_data_is_read_once_for_all_statistics(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, gather = [], fitting._gather
    monkeypatch.setattr(fitting, "_gather", lambda *given: calls.append(1) or gather(*given))
    fit(store, out=tmp_path / "one", transform=f"log1p,idf,scale=std,select={FEATURES},l2,bias")
    assert len(calls) == 1
    fit(store, out=tmp_path / "two", transform="idf,l2,scale=std")
    assert len(calls) == 3
    fit(store, out=tmp_path / "none", transform="log1p,l2,bias")
    assert len(calls) == 3


# -- data that a model refuses ---------------------------------------------------------------------


def test_a_model_of_counts_refuses_what_was_normalised_already(tmp_path: Path, store: Path) -> None:
    X, labels = make_counts()
    fit(store, out=tmp_path / "run", transform="normalize,log1p")
    model = load_model(tmp_path / "run")
    assert model.record["values_in"] == {"integers": True, "largest": float(X.data.max())}
    normalised = preprocessing.normalize(X, norm="l1") * 1e4
    logs = normalised.log1p()
    words = "not a whole number, but the training data are counts; use the counts"
    for number, new in enumerate((logs, normalised, X * 1.5)):
        with pytest.raises(InputError, match=f"X: row [12] has the value .*{words}"):
            model.predict(new)
        path = make_store(tmp_path / f"{number}.h5", sp.csr_array(new), labels)
        for reader in (lambda path=path: predict(model, path), lambda path=path: evaluate(model, path)):
            with pytest.raises(InputError, match=f"{path.name}: row [12] has .*{words}"):
                reader()
        with pytest.raises(InputError, match=words):
            fit(store, out=tmp_path / "other", transform="normalize,log1p", valid=path)
    model.predict(X)


def test_other_models_take_any_values(tmp_path: Path) -> None:
    X, labels = make_counts()
    fractions = sp.csr_array(X * 1.25)
    of_fractions = fit(fractions, labels, transform="normalize,log1p")
    without_check = fit(X, labels, transform="counts=no,normalize,log1p")
    for model in (of_fractions, without_check):
        assert all(each["name"] != "counts" for each in model.record["transforms"])
        model.predict(fractions)
    with pytest.raises(InputError, match="not a whole number"):
        fit(fractions, labels, transform="counts,normalize")


# -- hashing and names -----------------------------------------------------------------------------


def test_hashing_refuses_features_with_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, labels = make_counts()
    frame = pandas.DataFrame(X.toarray(), columns=[f"g{j}" for j in range(D)])
    with pytest.raises(SettingsError, match="hash needs the feature numbers of LIBSVM text"):
        fit(frame, labels, transform="hash=4")


def test_features_are_matched_by_name_before_they_are_transformed(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, labels = make_counts()
    names = [f"g{j}" for j in range(D)]
    frame = pandas.DataFrame(X.toarray(), columns=names)
    chosen = [names[j] for j in KEPT]
    (tmp_path / "chosen").write_text("\n".join(chosen[::-1]))
    model = fit(frame, labels, transform=FULL.replace(str(FEATURES), str(tmp_path / "chosen")))
    assert model.feature_names_out_.tolist() == chosen
    assert model.feature_names_in_.tolist() == names
    moved = frame.iloc[:, np.random.default_rng(0).permutation(D)]
    np.testing.assert_allclose(model.decision_function(moved), model.decision_function(frame), atol=1e-5)
