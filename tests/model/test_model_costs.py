"""A model keeps the costs or the tree of its training, and notices damage to them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import reseal

from streamsvm import Model, load_model
from streamsvm.data.class_costs import ClassTree, read_tree
from streamsvm.errors import ModelError

CLASSES = ["a", "b", "c"]
COSTS = np.array([[0, 1, 2.5], [3, 0, 1e-3], [0, 4, 0]])
PARENTS = {"a": "inner", "b": "inner", "inner": "c"}


@pytest.fixture
def model() -> Model:
    record = {"classes": CLASSES, "n_features": 4, "index_base": 1, "dtype": "float64"}
    tree = read_tree(PARENTS, CLASSES)
    return Model(np.arange(12.0).reshape(4, 3), record, costs=COSTS, tree=tree)


@pytest.fixture
def folder(tmp_path: Path, model: Model) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_they_come_back(folder: Path, model: Model, tmp_path: Path) -> None:
    found = load_model(folder)
    np.testing.assert_array_equal(found.costs, COSTS)
    assert found.tree == model.tree
    np.testing.assert_array_equal(np.load(folder / "costs.npy", allow_pickle=False), COSTS)
    found.save(tmp_path / "copy")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "copy" / path.name).read_bytes()
    found.costs = found.tree = None
    found.save(tmp_path / "copy")
    bare = load_model(tmp_path / "copy")
    assert bare.costs is None
    assert bare.tree is None
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["coef.npy", "model.json"]


def test_damage_and_what_does_not_fit_is_refused(folder: Path, tmp_path: Path, model: Model) -> None:
    """Including files whose checksums fit."""
    for path in folder / "costs.npy", folder / "tree.json":
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b"x")
        with pytest.raises(ModelError, match=f"{path.name} is damaged: its checksum"):
            load_model(folder)
        path.write_bytes(whole)
    negative = COSTS.copy()
    negative[1, 2] = -1
    for costs, words in (negative, "row 2, column 3: the cost -1 is neg"), (COSTS[:2, :2], "not the array"):
        model.costs = costs
        model.save(tmp_path / "bad")
        with pytest.raises(ModelError, match=rf"costs\.npy is damaged: .*{words}"):
            load_model(tmp_path / "bad")
    trees: list[object] = [
        [], {"nodes": ["c", "inner", "a", "b"], "parents": [-1, 0, 3, 1]},
        ClassTree({"a": "c"}, ["a"]).to_record(), {"nodes": {}, "parents": None},
    ]  # fmt: skip
    for tree in trees:
        (folder / "tree.json").write_text(json.dumps(tree))
        reseal(folder)
        with pytest.raises(ModelError, match=r"tree\.json is damaged: "):
            load_model(folder)
