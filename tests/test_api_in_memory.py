"""Training and measuring in memory: options that are for stores, AnnData, and where warnings point."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import streamsvm
from streamsvm import calibrate, evaluate, fit, load_model, predict, tune
from streamsvm.errors import InputError, SettingsError, StreamsvmWarning
from streamsvm.settings.field import STORE, changes_of, declared, setting
from streamsvm.settings.fit import Settings

N, D = 80, 9
NAMES = [f"gene{j}" for j in range(D)]


@pytest.fixture
def atlas() -> anndata.AnnData:
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=N)
    X = sp.csr_matrix(rng.poisson(1 + 3 * y[:, None] * (np.arange(D) < 3)), dtype=np.float32)
    obs = pd.DataFrame({"cell_type": np.array(["B", "T"])[y]}, [f"cell{i}" for i in range(N)])
    atlas = anndata.AnnData(X, obs, pd.DataFrame(index=NAMES))
    atlas.raw = atlas.copy()
    atlas.layers["logs"] = X.log1p()
    return atlas[:, :5].copy()


def test_sizes_and_checkpoints_change_nothing(atlas: anndata.AnnData) -> None:
    y = atlas.obs["cell_type"]
    found = fit(atlas.X, y, memory="2G", block_rows=7, slice_rows=3, checkpoint_every="8 blocks")
    np.testing.assert_array_equal(found.coef_, fit(atlas.X, y).coef_)
    for wrong in ({"memory": "much"}, {"checkpoint_every": "seldom"}):
        with pytest.raises(SettingsError):
            fit(atlas.X, y, **wrong)  # type: ignore[arg-type]


OF_STORES = [name for name, each in declared(Settings).items() if each.scope == STORE]


def test_what_only_a_store_has_says_what_to_do(atlas: anndata.AnnData) -> None:
    values = {"join": "outer", "force": True, "resume_or_start": True}
    for option in ("out", "resume_or_start", "force", "cluster", *OF_STORES):
        given: dict[str, Any] = {option: values.get(option, "x")}
        with pytest.raises(SettingsError, match=f"^{option} does not apply to a matrix in ") as caught:
            fit(atlas.X, atlas.obs["cell_type"], **given)
        assert caught.value.setting == option


def test_a_setting_is_for_stores_unless_it_says_otherwise() -> None:
    new = dataclasses.make_dataclass("New", [("new", bool, setting("A new setting.", default=False))])
    assert declared(new)["new"].scope == STORE
    assert not changes_of(new)
    assert {"valid", "join"} <= set(OF_STORES)


def test_labels_may_be_the_name_of_a_column(atlas: anndata.AnnData, tmp_path: Path) -> None:
    y = atlas.obs["cell_type"].to_numpy()
    model = fit(atlas, "cell_type", transform="bias")
    np.testing.assert_array_equal(model.coef_, fit(atlas.X, y).coef_)
    assert evaluate(model, atlas, "cell_type") == evaluate(model, atlas, y)
    assert calibrate(model, atlas, "cell_type").rows == N
    tuned = [tune(*given, transform="bias").model for given in ((atlas, "cell_type"), (atlas.X, y))]
    np.testing.assert_array_equal(tuned[0].coef_, tuned[1].coef_)
    atlas.write_h5ad(tmp_path / "atlas.h5ad")
    fit(tmp_path / "atlas.h5ad", "cell_type", out=tmp_path / "run")
    assert evaluate(load_model(tmp_path / "run"), tmp_path / "atlas.h5ad", "cell_type").n == N
    for function, first in ((fit, []), (evaluate, [fit(atlas.X, y, passes=1)])):
        for given, error, words in (
            ((atlas,), InputError, r"y is missing; .* a column of the DataFrame or of obs"),
            ((atlas.X,), InputError, "^y is missing; pass one label per row"),
            ((atlas, "type"), InputError, "obs has no column 'type'; it has 'cell_type'"),
            ((atlas.X, "cell_type"), InputError, "X has no column 'cell_type'; it has none"),
        ):
            with pytest.raises(error, match=words):
                function(*first, *given)
        with pytest.raises(SettingsError, match="y and label both define the labels"):
            function(*first, atlas, y, label="cell_type")


def test_layers_are_those_of_a_file(atlas: anndata.AnnData, tmp_path: Path) -> None:
    path, y = tmp_path / "atlas.h5ad", atlas.obs["cell_type"].to_numpy()
    latent = atlas.X.toarray()[:, :5] + 0.5
    atlas.obsm.update({"X_scVI": latent, "frame": pd.DataFrame(latent, atlas.obs_names, list("abcde"))})
    atlas.write_h5ad(path)
    cases: list[tuple[dict[str, Any], Any, list[str] | None]] = [
        ({"layer": "logs"}, atlas.layers["logs"], NAMES[:5]),
        ({"raw": True}, atlas.raw.X, NAMES),
        ({"obsm": "X_scVI"}, latent, None),
        ({"obsm": "frame"}, latent, list("abcde")),
    ]
    for options, matrix, names in cases:
        model = fit(atlas, "cell_type", **options, transform="bias")
        np.testing.assert_array_equal(model.coef_, fit(matrix, y).coef_)
        found = getattr(model, "feature_names_in_", None)
        assert (None if found is None else found.tolist()) == names
        stored: dict[str, Any] = {"label": "cell_type", **options}
        assert evaluate(model, atlas, **stored) == evaluate(model, path, **stored)
    assert streamsvm.plan(path, **stored)["features"] == latent.shape[1] + 1
    run = fit(path, **stored, valid=path, out=tmp_path / "run")
    assert run.valid_accuracy == evaluate(tmp_path / "run", path, **stored).accuracy
    refused: list[tuple[Any, dict[str, Any], type, str]] = [
        (atlas, {"obsm": "X_umap"}, InputError, "X has no obsm 'X_umap'; available obsm: 'X_scVI', 'frame'"),
        (atlas, {"layer": "counts"}, InputError, "X has no layer 'counts'; available layers: 'logs'"),
        (atlas, {"layer": "logs", "raw": True}, SettingsError, "layer and raw both name a matrix"),
        (atlas.X, {"layer": "logs"}, SettingsError, "layer is for AnnData, but X is not AnnData"),
    ]
    for data, options, error, words in refused:
        with pytest.raises(error, match=words):
            fit(data, y, **options)


def test_backed_anndata_says_how_to_train_on_its_path(atlas: anndata.AnnData, tmp_path: Path) -> None:
    atlas.write_h5ad(tmp_path / "atlas.h5ad")
    backed = anndata.read_h5ad(tmp_path / "atlas.h5ad", backed="r")
    with pytest.raises(InputError, match=r"backed by .*atlas.h5ad, .* `fit\('.*atlas.h5ad', label="):
        fit(backed, "cell_type")
    backed.file.close()


def test_warnings_point_at_the_line_of_the_caller(atlas: anndata.AnnData, tmp_path: Path) -> None:
    atlas.write_h5ad(tmp_path / "atlas.h5ad")
    model = fit(atlas, "cell_type")
    fewer = atlas[:, :3].copy()
    fewer.write_h5ad(tmp_path / "fewer.h5ad")
    (tmp_path / "genes").write_text("gene1\nx\n")
    chosen = f"select={tmp_path / 'genes'}"
    for call in (
        lambda: model.predict(fewer),
        lambda: evaluate(model, fewer, "cell_type"),
        lambda: list(predict(model, fewer).labels),
        lambda: evaluate(model, tmp_path / "fewer.h5ad", "cell_type"),
        lambda: fit(atlas, "cell_type", transform=chosen),
        lambda: fit(tmp_path / "atlas.h5ad", "cell_type", out=tmp_path / "a", transform=chosen),
        lambda: fit(tmp_path / "atlas.h5ad", "cell_type", out=tmp_path / "b", valid=tmp_path / "fewer.h5ad"),
    ):
        with pytest.warns(StreamsvmWarning) as caught:
            call()
        assert {each.filename for each in caught} == {__file__}
