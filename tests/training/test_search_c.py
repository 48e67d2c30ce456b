"""The default of C for dense rows: the best of four on rows of a sample that are held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import automatic_c, fit_path, held_out
from helpers import plain_fit as fit
from run_files import stop_after

import streamsvm
from streamsvm.errors import Interrupted
from streamsvm.settings.fit import Settings
from streamsvm.store import open_store
from streamsvm.training.search_c import find_sample

N, D, K = 900, 20, 5
FACTORS = (0.001, 0.01, 0.1, 1.0)
SEARCH = "streamsvm.training.search_c"


def problem(seed: int = 0, n: int = N, noise: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    return (rng.normal(size=(K, D))[y] + noise * rng.normal(size=(n, D))).astype(np.float32), y


def tried(X: Any, y: Any, **options: Any) -> tuple[float, list[dict[str, float]]]:
    """Return the C of a fit, and the values that it tried."""
    events: list[dict[str, Any]] = []
    C = fit(X, y, report=events.append, **options).result.C
    found = [event for event in events if event["event"] == "C"]
    assert len(found) <= 1
    for event in found:
        assert event["C"] == C
        assert event["rows"] == len(X)
    return C, found[0]["tried"] if found else []


def accuracy(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the accuracy on held-out rows, by a product of NumPy."""
    held = held_out(y, 1, 3)  # of the sample, which has all rows
    return float((model.classes_[(X[held] @ model.coef_.T).argmax(axis=1)] == y[held]).mean())


@pytest.mark.parametrize("class_weight", [None, {"0": 5.0}])
@pytest.mark.parametrize("seed", range(3))
def test_c_is_the_best_of_four_on_held_out_rows(seed: int, class_weight: Any) -> None:
    """As a loop over them finds it, each from the weights of the one before.

    The largest is taken within half a standard error of the best one.
    """
    X, y = problem(seed)
    own = {"average": False, "class_weight": class_weight}
    right = []
    for n in range(1, 5):
        path = {"C": automatic_c(X), "C_factors": FACTORS[:n], "passes": n}
        model = fit_path(X, y, sample_weight=1.0 - held_out(y, 1, 3), **path, **own)
        right.append(accuracy(model, X, y))
    C, found = tried(X, y, **own)
    assert [each["C"] for each in found] == pytest.approx([automatic_c(X) * factor for factor in FACTORS])
    assert [each["valid_accuracy"] for each in found] == pytest.approx(right)
    error = np.sqrt(max(right) * (1 - max(right)) / (N / 3))
    as_good = np.flatnonzero(np.array(right) >= max(right) - error / 2)
    assert pytest.approx(automatic_c(X) * FACTORS[as_good[-1]]) == C
    assert len(set(right)) > 1


@pytest.mark.engine
def test_a_loss_without_a_path_has_a_training_for_each(tmp_path: Path) -> None:
    X, y = problem()
    own = {"loss": "ww2", "dtype": "float64", "average": False}
    weight = 1.0 - held_out(y, 1, 3)
    models = [fit(X, y, sample_weight=weight, C=automatic_c(X) * f, passes=2, **own) for f in FACTORS]
    _, found = tried(X, y, **own)
    assert [each["valid_accuracy"] for each in found] == pytest.approx([accuracy(m, X, y) for m in models])


def test_of_equal_ones_the_largest_is_taken() -> None:
    X, y = problem(noise=0.1)
    C, found = tried(X, y)
    assert {each["valid_accuracy"] for each in found} == {1.0}
    assert pytest.approx(automatic_c(X)) == C
    assert fit(X, y).record["C_auto"]


@pytest.mark.parametrize(
    ("options", "change"),
    [({}, sp.csr_array), ({"C": 0.5}, None), ({"splits": 2}, None), ({}, lambda X: X[:499])],
)
def test_others_have_no_search(options: dict[str, Any], change: Any) -> None:
    X, y = problem()
    given = X if change is None else change(X)
    C, found = tried(given, y[: given.shape[0]], **options)
    assert found == []
    assert pytest.approx(options.get("C", automatic_c(X[: given.shape[0]]))) == C


@pytest.mark.engine
def test_rows_of_several_labels_have_no_search() -> None:
    X, y = problem()
    both = np.eye(K, dtype=int)[y] | np.eye(K, dtype=int)[(y + 1) % K]
    assert tried(X, both, loss="ovr2", dtype="float64") == (pytest.approx(automatic_c(X)), [])


def written(tmp_path: Path) -> dict[str, Any]:
    """Write a problem as an .npy file; return what `fit` and `plan` take."""
    X, y = problem()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    return {"data": tmp_path / "X.npy", "labels": tmp_path / "y.npy"}


def test_a_plan_says_that_c_will_be_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = written(tmp_path)
    monkeypatch.setattr(f"{SEARCH}.train", None)
    plan = streamsvm.plan(**given)
    assert (plan["C"], plan["C_auto"]) == ("auto", True)
    plan = streamsvm.plan(**given, C=0.5)
    assert (plan["C"], plan["C_auto"]) == (0.5, False)


def test_a_search_shows_its_progress_and_can_be_stopped(tmp_path: Path) -> None:
    """Each pass over the sample, and each scoring of its held-out rows, ends it; no run is begun."""
    given, shown = written(tmp_path), []

    def progress(stage: str, done: int, total: int | None) -> None:
        shown.append((stage, done, total))

    for n in range(8):
        with pytest.raises(Interrupted, match="while choosing C, before training began"):
            streamsvm.fit(**given, out=tmp_path / "run", stop=stop_after(n))
        assert not (tmp_path / "run").exists()
    streamsvm.fit(**given, out=tmp_path / "run", progress=progress)
    assert [each for each in shown if each[0] == "choose C"] == [("choose C", n * N, 4 * N) for n in range(5)]


def test_held_out_rows_and_rows_of_weight_0_do_not_choose(tmp_path: Path) -> None:
    """Whatever is in them, C is that of the other rows; in memory and on disk alike."""
    X, y = problem()
    weights = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    other = X.copy()
    other[held_out(np.where(weights == 0, -1, y), 2, 7) | (weights == 0)] *= 50
    found = []
    for number, data in enumerate((X, other)):
        options = {"hold_out": "2/7", "transform": "none"}
        found.append(streamsvm.fit(data, y, sample_weight=weights, **options).result.C)
        obs = pd.DataFrame({"type": y, "w": weights}, index=np.arange(N).astype(str))
        path = tmp_path / f"{number}.h5ad"
        anndata.AnnData(data, obs).write_h5ad(path)
        options |= {"label": "type", "sample_weight": "w"}
        run = streamsvm.fit(path, out=tmp_path / str(number), **options)
        found.append(run.C)
        assert streamsvm.resume(tmp_path / str(number), passes=4).C == run.C
    assert found == pytest.approx(found[:1] * 4)


def test_a_sample_has_all_rows_of_some_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ by the seed; of a class that is too large for its share, rows are left out."""
    for name, value in (("_MAX_ROWS", 300), ("_MIN_ROWS", 100), ("_MIN_CLASSES", 3)):
        monkeypatch.setattr(f"{SEARCH}.{name}", value)
    X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    y = np.repeat(np.arange(9), [20, 30, 40, 50, 60, 70, 80, 90, 460])
    obs = pd.DataFrame({"type": y}, index=np.arange(N).astype(str))
    anndata.AnnData(X, obs).write_h5ad(tmp_path / "a.h5ad")
    drawn = set()
    with open_store(tmp_path / "a.h5ad", label="type") as store:
        for seed in range(6):
            drawn_rows = find_sample(store, Settings(seed=seed))
            sample = drawn_rows.read(store)
            rows = sample.rows(0, sample.n_rows)
            classes = [int(name) for name in sample.classes]
            assert 300 <= sample.n_rows < 400
            for code, c in enumerate(classes):
                own = rows.matrix[rows.labels == code]
                places = [int(np.flatnonzero((X[y == c] == row).all(axis=1))[0]) for row in own]
                assert len(set(places)) == min((y == c).sum(), 100)
            drawn.add(tuple(classes))
        assert len(drawn) > 1
        small = find_sample(store, Settings(memory=16 * 4 * (D + 2 * 9) * 150))
        assert len(small.numbers) <= 200
        assert find_sample(store, Settings(memory=16 * 4 * (D + 2 * 9) * 50)) is None
