"""Predicting and evaluating stores, blocks of rows and matrices from Python give the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store
from helpers import plain_fit as fit

from streamsvm import Model, evaluate, load_model, open_store, predict
from streamsvm.errors import InputError, ModelError, PlanError, SettingsError

N, D, K = 120, 9, 4
X, LABELS = make_problem(N, D, K)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store and a run over it."""
    path = tmp_path_factory.mktemp("predictions")
    make_store(path / "s.h5", X, LABELS)
    fit(path / "s.h5", out=path / "run", passes=2)
    return path


def expected_scores(folder: Path) -> np.ndarray:
    return X.astype(np.float64) @ load_model(folder / "run").coef_.T


def test_all_kinds_of_data_give_the_labels_and_scores_of_the_coefficients(
    folder: Path, tmp_path: Path
) -> None:
    scores, rows = expected_scores(folder), as_rows(X, LABELS)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    model = load_model(folder / "run")
    accuracy = (order[:, 0] == LABELS).mean()
    with open_store(folder / "s.h5") as store:
        for data in folder / "s.h5", store, rows, [rows], X, X.toarray():
            y = LABELS if isinstance(data, sp.csr_array | np.ndarray) else None
            assert evaluate(model, data, y).accuracy == pytest.approx(accuracy)
            found = predict(model, data, top_k=2)
            np.testing.assert_array_equal(found.labels, model.classes_[order])
            expected = np.take_along_axis(scores, order, 1)
            np.testing.assert_allclose(found.scores, expected, rtol=1e-5, atol=1e-5)
    assert evaluate(model, iter([rows])).accuracy == pytest.approx(accuracy)
    explained = predict(folder / "run", X, memory=2**17, explain=1).evidence  # of a few rows at a time
    done = predict(folder / "run", folder / "s.h5", tmp_path / "labels", top_k=2, scores=True, explain=1)
    assert (done.n, done.labels, done.scores, done.out) == (N, None, None, tmp_path / "labels")
    fields = [line.split("\t") for line in (tmp_path / "labels").read_text().splitlines()]
    texts = ["".join(f"{feature} ({share:.3g})" for feature, share in row) for row in explained]
    assert [row.pop() for row in fields] == texts
    assert [row[::2] for row in fields] == found.labels.tolist()
    np.testing.assert_allclose(np.array([row[1::2] for row in fields], float), expected, rtol=1e-5, atol=1e-5)


def test_a_failure_leaves_the_file_as_it_was(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "labels"
    out.write_text("before")

    def failing():
        yield as_rows(X, LABELS)
        raise ModelError("no more")

    with pytest.raises(ModelError, match="no more"):
        predict(folder / "run", failing(), out, force=True)
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]


def test_no_rows_have_no_labels(folder: Path) -> None:
    found = predict(folder / "run", iter([]), top_k=9, explain=1)
    assert (found.n, found.labels.shape, found.scores.shape, found.evidence) == (0, (0, K), (0, K), [])


def test_evidence_of_one_class_is_found_in_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(np.arange(4.0)[:, None], {"classes": ["a"], "n_features": 4, "index_base": 0})
    rows, sizes = np.tile([[1.0, 2.0, -1.0, 0.5]], (300, 1)), []
    assert predict(model, rows, explain=9).evidence == [[(1, 2.0), (3, 1.5)]] * 300
    count = lambda batch, *rest: sizes.append(len(batch.names)) or batch  # noqa: E731
    monkeypatch.setattr("streamsvm.prediction.predictions.with_evidence", count)
    assert predict(model, rows, memory=2**20, explain=9).n == 300 > 10 * max(sizes)


def test_features_beyond_the_model_are_refused_before_they_are_scored(folder: Path) -> None:
    rows = as_rows(X, LABELS)
    for outside in (D, -1):
        indices = rows.indices.copy()
        indices[3] = outside
        row = X.nonzero()[0][3]
        with pytest.raises(ModelError, match=f"row {row + 1} of the data has the feature {outside}"):
            predict(folder / "run", rows._replace(indices=indices))


def test_the_needed_memory_of_an_error_is_enough(folder: Path) -> None:
    for function in (predict, evaluate):
        with pytest.raises(PlanError) as caught:
            function(folder / "run", folder / "s.h5", memory=100)
        assert function(folder / "run", folder / "s.h5", **caught.value.remedy.options).n == N
        assert caught.value.remedy.options == {"memory": caught.value.needed_memory}


def test_a_store_has_its_own_labels(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="y is only for a matrix in memory; leave it out for a file"):
        fit(folder / "s.h5", LABELS, out=tmp_path / "run")
    with pytest.raises(SettingsError, match=r"name the run directory to create with out=\.\.\."):
        fit(folder / "s.h5", tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


# -- rows that a caller gives, of a model with transforms ------------------------------------------

COUNTS = sp.csr_array(np.random.default_rng(3).poisson(2.0, (N, D)) * 10.0 ** (np.arange(N)[:, None] % 3))


def pieces(X: sp.csr_array, labels: np.ndarray, kind: str) -> Any:
    """Rows before their transforms, in two blocks if they may be several."""
    blocks = [as_rows(X[:50], labels[:50]), as_rows(X[50:], labels[50:])]
    pairs = [(rows, np.array([f"r{i}" for i in range(rows.n_rows)], object)) for rows in blocks]
    return {"rows": as_rows(X, labels), "list": blocks, "pairs": iter(pairs)}[kind]


@pytest.mark.parametrize("transform", ["normalize=10,log1p,scale=std,bias", "hash=4,l2"])
def test_rows_are_transformed_as_a_matrix_is(transform: str) -> None:
    model = fit(COUNTS, LABELS, passes=2, transform=transform)
    labels = np.searchsorted(model.classes_, LABELS)
    expected = model.decision_function(COUNTS)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :2]
    for kind in ("rows", "list", "pairs"):
        found = predict(model, pieces(COUNTS, labels, kind), top_k=2)
        np.testing.assert_array_equal(found.labels, model.classes_[order])
        np.testing.assert_allclose(found.scores, np.take_along_axis(expected, order, 1), rtol=1e-5, atol=1e-5)
        accuracy = evaluate(model, pieces(COUNTS, labels, kind)).accuracy
        assert accuracy == pytest.approx((model.predict(COUNTS) == LABELS).mean())


def test_an_error_of_a_transform_names_the_row_among_all_and_the_data() -> None:
    model = fit(COUNTS, LABELS, passes=1, transform="normalize,log1p")
    wrong = COUNTS.toarray()
    wrong[53, 2] = -4
    rows = pieces(sp.csr_array(wrong), np.zeros(N, np.int32), "list")
    with pytest.raises(InputError, match=r"the data: row 54 "):
        predict(model, rows)
    with pytest.raises(InputError, match=r"cells\.csv: row 54 "):
        predict(model, {"cells.csv": iter(rows)})
    wrong[53, 2] = 1e300
    rows = pieces(sp.csr_array(wrong), np.zeros(N, np.int32), "list")
    with pytest.raises(ModelError, match=r"row 54 of the data: the value 1e\+300 is not finite in float32"):
        predict(fit(COUNTS, LABELS, passes=1), rows)


@pytest.mark.parametrize("layout", ["dense", "rows", "sparse"])
def test_threads_that_share_the_scoring_change_nothing(tmp_path: Path, layout: str) -> None:
    rng = np.random.default_rng(0)
    d, k = (400, 200) if layout == "sparse" else (60, 5)
    coef = rng.standard_normal((d, k)).astype(np.float32)
    coef[rng.random((d, k)) < {"dense": 0.0, "rows": 0.0, "sparse": 0.99}[layout]] = 0
    coef[rng.random(d) < (0.9 if layout == "rows" else 0.0)] = 0
    classes = [f"class {c}" for c in range(k)]
    X = sp.random_array((1000, d), density=0.2, rng=rng, dtype=np.float32).tocsr()
    model = Model(coef, {"classes": classes})
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    one, several = (predict(loaded, X, top_k=3, scores=True, workers=n) for n in (1, 3))
    assert np.array_equal(one.labels, several.labels)
    assert np.array_equal(one.scores, several.scores)
    np.testing.assert_allclose(several.scores[:, 0], (X @ coef).max(axis=1), rtol=1e-4, atol=1e-5)
    with pytest.raises(SettingsError, match="workers must be a whole number"):
        predict(loaded, X, workers=0)
