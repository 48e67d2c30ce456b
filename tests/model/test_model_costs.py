"""A model keeps the costs of its training, and notices damage to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm import Model, load_model
from streamsvm.errors import ModelError

COSTS = np.array([[0, 1, 2.5], [3, 0, 1e-3], [0, 4, 0]], np.float32)


@pytest.fixture
def model() -> Model:
    record = {"classes": ["a", "b", "c"], "n_features": 4, "index_base": 1, "dtype": "float64"}
    return Model(np.arange(12.0).reshape(4, 3), record, costs=COSTS)


def test_they_come_back(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model")
    np.testing.assert_array_equal(found.costs, COSTS)
    np.testing.assert_array_equal(np.load(tmp_path / "model/costs.npy", allow_pickle=False), COSTS)
    found.save(tmp_path / "copy")
    for path in (tmp_path / "model").iterdir():
        assert path.read_bytes() == (tmp_path / "copy" / path.name).read_bytes()
    found.costs = None
    found.save(tmp_path / "copy")
    assert load_model(tmp_path / "copy").costs is None
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["coef.npy", "model.json"]


def test_damaged_costs_and_those_that_do_not_fit_are_refused(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    path = tmp_path / "model/costs.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelError, match=r"costs\.npy is damaged: its checksum"):
        load_model(tmp_path / "model")
    for costs, problem in (
        (-COSTS, "predicting 'b' for a row of 'a' costs -1"),
        (COSTS[:2, :2], "it is not the array"),
        (COSTS.astype(float), "it is not the array"),
    ):
        model.costs = costs
        model.save(tmp_path / "other")
        with pytest.raises(ModelError, match=rf"costs\.npy is damaged: .*{problem}"):
            load_model(tmp_path / "other")
