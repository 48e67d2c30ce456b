"""Counts in AnnData are normalised by default, and logarithms are not transformed twice."""

from __future__ import annotations

from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from command_line import succeeds

from streamsvm import Model, convert, fit, load_model, online, plan, tune
from streamsvm.errors import SettingsError

N, D, K = 120, 20, 3
DEFAULT = ["counts", "normalize", "log1p", "bias"]


@pytest.fixture(scope="module")
def cells() -> anndata.AnnData:
    """Cells of different depths, with their counts in X and other values beside it."""
    rng = np.random.default_rng(0)
    kinds = np.arange(N) % K
    X = rng.poisson(rng.gamma(0.5, 3.0, (K, D))[kinds] * rng.lognormal(size=(N, 1))).astype(np.float32)
    X[:, 0] = 2
    obs = pd.DataFrame({"kind": [f"k{kind}" for kind in kinds]}, index=[f"cell{i}" for i in range(N)])
    found = anndata.AnnData(sp.csr_array(X), obs)
    found.layers["logs"] = np.log1p(X / X.sum(axis=1, keepdims=True) * 1e4)
    found.layers["dense"], found.layers["signed"], found.layers["seen"] = X, X - 1, (X > 0) * 1.0
    found.obsm["other"] = X[:, :4]
    return found


def names(model: Model) -> list[str]:
    return [each.name for each in model.transforms]


def test_counts_are_normalised(tmp_path: Path, cells: anndata.AnnData) -> None:
    path = tmp_path / "cells.h5ad"
    cells.write_h5ad(path)
    shown = succeeds("fit", path, "--label", "kind", "--out", "run", cwd=tmp_path)
    assert "transform normalize=1e4,log1p,bias (--transform none leaves it out)" in shown
    of_file = load_model(tmp_path / "run")
    expected = cells.layers["logs"] @ of_file.coef_.T + of_file.intercept_
    np.testing.assert_allclose(of_file.decision_function(cells), expected, atol=1e-4)
    convert(path, tmp_path / "cells.zarr", label="kind")
    tune(path, label="kind", C=[0.1, 1], out=tmp_path / "tuned", passes_each=1)
    models = [of_file, load_model(tmp_path / "tuned")]
    models += [fit(cells, label="kind", layer=name) for name in (None, "dense")]
    assert [names(model) for model in models] == [DEFAULT] * 4
    for data, options in ((path, {"label": "kind"}), (tmp_path / "cells.zarr", {})):
        assert plan(data, **options)["transform"] == "normalize=1e4,log1p,bias"
    assert not names(fit(cells, label="kind", transform="none"))
    convert(path, tmp_path / "other.zarr", label="kind", obsm="other")
    assert plan(tmp_path / "other.zarr")["transform"] == "bias"
    online(path, label="kind", out=tmp_path / "online")
    assert names(load_model(tmp_path / "online")) == ["bias"]


def test_other_values_are_not(cells: anndata.AnnData) -> None:
    for options in ({"layer": "logs"}, {"layer": "signed"}, {"layer": "seen"}, {"obsm": "other"}):
        assert names(fit(cells, label="kind", **options)) == ["bias"]
    assert names(fit(cells.X, cells.obs["kind"])) == ["bias"]


def test_logarithms_are_not_taken_twice(cells: anndata.AnnData) -> None:
    for transform in ("log1p", "normalize=1e4,log1p"):
        with pytest.raises(SettingsError, match="the values of X look like logarithms"):
            fit(cells, label="kind", layer="logs", transform=transform)
        assert names(fit(cells, label="kind", layer="logs", transform=f"counts=no,{transform}"))
