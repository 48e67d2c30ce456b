"""The default of C for dense rows: the best of four on rows of a sample that are held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import plain_fit as fit

import streamsvm
from streamsvm.data.hold_out import HeldOutPart
from streamsvm.settings.fit import Settings
from streamsvm.store import open_store
from streamsvm.training.search_c import draw_sample, search_c

N, D, K = 900, 20, 5
FACTORS = (1.0, 0.1, 0.01, 0.001)
SEARCH = "streamsvm.training.search_c"


def problem(seed: int = 0, n: int = N, noise: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    return (rng.normal(size=(K, D))[y] + noise * rng.normal(size=(n, D))).astype(np.float32), y


def plain_c(X: np.ndarray) -> float:
    return 1 / np.square(X.astype(np.float64)).sum(axis=1).mean()


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The values of C that are tried."""
    from streamsvm.training import search_c as module

    found, plain = [], module.accuracy

    def accuracy(sample: Any, settings: Settings, C: float) -> float:
        found.append(C)
        return plain(sample, settings, C)

    monkeypatch.setattr(module, "accuracy", accuracy)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_c_is_the_best_of_four_on_held_out_rows(seed: int) -> None:
    """As a loop over them finds it, by what their models predict; of equal ones the largest."""
    X, y = problem(seed)
    held = HeldOutPart(1, 5).has(np.arange(N))
    right = []
    for factor in FACTORS:
        model = fit(X, y, sample_weight=1.0 - held, C=plain_c(X) * factor, passes=2, average=False)
        scores = X[held] @ model.coef_.T
        right.append((model.classes_[scores.argmax(axis=1)] == y[held]).sum())
    result = fit(X, y, average=False).result
    assert pytest.approx(plain_c(X) * FACTORS[int(np.argmax(right))]) == result.C
    assert result.C == fit(X, y, average=False).result.C
    assert len(set(right)) > 1


def test_of_equal_ones_the_largest_is_taken(tried: list[float]) -> None:
    X, y = problem(noise=0.1)
    model = fit(X, y)
    assert tried == pytest.approx([plain_c(X) * factor for factor in FACTORS])
    assert pytest.approx(plain_c(X)) == model.result.C
    assert model.record["C_auto"]


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, sp.csr_array),
        ({"C": 0.5}, None),
        ({"splits": 2}, None),
        ({"C_path": "0.5,1"}, None),
        ({}, lambda X: X[:499]),
    ],
)
def test_others_have_no_search(tried: list[float], options: dict[str, Any], change: Any) -> None:
    X, y = problem()
    given = X if change is None else change(X)
    C = fit(given, y[: given.shape[0]], **options).result.C
    assert tried == []
    assert pytest.approx(options.get("C", plain_c(X[: given.shape[0]]))) == C


def test_rows_of_several_labels_have_no_search(tried: list[float]) -> None:
    X, y = problem()
    both = np.eye(K, dtype=int)[y] | np.eye(K, dtype=int)[(y + 1) % K]
    result = fit(X, both, loss="ovr2", dtype="float64").result
    assert (tried, result.C) == ([], pytest.approx(plain_c(X)))


def test_held_out_rows_and_rows_of_weight_0_do_not_choose(tmp_path: Path) -> None:
    """Whatever is in them, C is that of the other rows; in memory and on disk alike."""
    X, y = problem()
    weights = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    unused = HeldOutPart(2, 7).has(np.arange(N)) | (weights == 0)
    other, labels = X.copy(), y.copy()
    other[unused] *= 50
    labels[unused] = 0
    found = []
    for number, (data, codes) in enumerate(((X, y), (other, labels))):
        options = {"hold_out": "2/7", "transform": "none"}
        found.append(streamsvm.fit(data, codes, sample_weight=weights, **options).result.C)
        obs = pd.DataFrame({"type": codes, "w": weights}, index=np.arange(N).astype(str))
        path = tmp_path / f"{number}.h5ad"
        anndata.AnnData(data, obs).write_h5ad(path)
        options |= {"label": "type", "sample_weight": "w"}
        run = streamsvm.fit(path, out=tmp_path / str(number), **options)
        found.append(run.C)
        assert streamsvm.plan(path, **options)["C"] == run.C
        assert streamsvm.resume(tmp_path / str(number), passes=4).C == run.C
    assert found == pytest.approx(found[:1] * 4)


def test_a_sample_has_all_rows_of_some_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ by the seed; of a class that is too large for its share, rows are left out."""
    for name, value in (("_MOST_ROWS", 300), ("_LEAST_ROWS", 100), ("_LEAST_CLASSES", 3)):
        monkeypatch.setattr(f"{SEARCH}.{name}", value)
    X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
    y = np.repeat(np.arange(9), [20, 30, 40, 50, 60, 70, 80, 90, 460])
    obs = pd.DataFrame({"type": y}, index=np.arange(N).astype(str))
    anndata.AnnData(X, obs).write_h5ad(tmp_path / "a.h5ad")
    drawn = set()
    with open_store(tmp_path / "a.h5ad", label="type") as store:
        for seed in range(6):
            sample = draw_sample(store, Settings(seed=seed))
            assert sample is not None
            rows = sample.rows(0, sample.n_rows)
            classes = [int(name) for name in sample.classes]
            assert 300 <= sample.n_rows < 400
            for code, c in enumerate(classes):
                own = rows.matrix[rows.labels == code]
                places = [int(np.flatnonzero((X[y == c] == row).all(axis=1))[0]) for row in own]
                assert len(set(places)) == min((y == c).sum(), 100)
            drawn.add(tuple(classes))
        assert len(drawn) > 1
        small = draw_sample(store, Settings(memory=16 * 4 * (D + 2 * 9) * 150))
        assert small is not None
        assert small.n_rows <= 200
        assert search_c(store, Settings(memory=16 * 4 * (D + 2 * 9) * 50), 2.0) == 2.0
