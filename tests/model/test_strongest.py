"""The strongest features of classes, whatever the layout of the coefficients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import plain_fit as fit
from helpers import save_weights

from streamsvm import load_model
from streamsvm.info import inspect
from streamsvm.model import strongest
from streamsvm.model.strongest import strongest_features

TOP = 4


def expected(weights: np.ndarray, base: int) -> list[list[tuple[int, float]]]:
    found = []
    for column in weights.T:
        order = sorted(np.flatnonzero(column > 0).tolist(), key=lambda f: (-column[f], f))
        found.append([(f + base, float(column[f])) for f in order[:TOP]])
    return found


@pytest.mark.parametrize(("layout", "k", "base"), [("dense", 7, 0), ("rows", 7, 1), ("csr", 70, None)])
def test_the_largest_coefficients_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, k: int, base: int | None
) -> None:
    """Whole numbers, so that some are equal; classes without any coefficient above 0."""
    monkeypatch.setattr(strongest, "_MAX_ENTRIES", 20_000)
    rng = np.random.default_rng(0)
    weights = rng.integers(-5, 6, size=(9000, k)).astype(np.float32)
    weights *= rng.random((9000, k)) < (0.02 if layout == "csr" else 0.5)
    if layout == "rows":
        weights[np.arange(9000) % 50 != 3] = 0
    weights[:, 2] = -np.abs(weights[:, 2])
    record = {"classes": [f"c{c}" for c in range(k)], "n_features": 9000, "dtype": "float32"}
    save_weights(tmp_path / "model", weights, {**record, "index_base": base})
    model = load_model(tmp_path / "model")
    assert model.record["layout"] == layout
    wanted = expected(weights, base or 0)
    assert wanted[2] == []
    assert strongest_features(model, TOP) == wanted
    assert strongest_features(model, TOP, slice(1, 4)) == wanted[1:4]
    described = inspect(tmp_path / "model")["strongest_features"]
    assert list(described) == record["classes"][: len(described)]
    assert described["c1"][:TOP] == wanted[1]


def test_selected_features_keep_their_names_and_numbers(tmp_path: Path) -> None:
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, size=(60, 12)) * (rng.random((60, 12)) < 0.5)
    labels = np.where(X[:, 7] > X[:, 4], "a", "b")
    names = [f"gene {j}" for j in range(12)]
    kept = [1, 3, 4, 7, 8, 10]
    for name, lines in (("names", names), ("numbers", range(12))):
        (tmp_path / name).write_text("".join(f"{lines[f]}\n" for f in kept))
    transform = f"select={tmp_path}/{{}},scale=std,bias"
    named = fit(pd.DataFrame(X, columns=names), labels, passes=5, transform=transform.format("names"))
    numbered = fit(X, labels, passes=5, transform=transform.format("numbers"))
    for c in range(2):
        column = named.coef_.T[:, c]
        best = [kept[f] for f in np.argsort(-column, kind="stable")[:TOP] if column[f] > 0]
        assert [name for name, _ in strongest_features(named, TOP)[c]] == [names[f] for f in best]
        assert [number for number, _ in strongest_features(numbered, TOP)[c]] == best
