"""Columns that are added to AnnData in place: anndata reads them, and nothing else has changed."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import make_problem, save_weights

from streamsvm import load_model, predict
from streamsvm.errors import SettingsError, StoreError

N, D, K = 200, 12, 5
X, LABELS = make_problem(N, D, K)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and a file with all that AnnData may have."""
    weights = np.random.default_rng(1).normal(size=(D, K)).astype(np.float32)
    weights[:, 3] = weights[:, 1]  # a class that is never predicted: of equal scores the first wins
    record = {"classes": [f"type {c}" for c in range(K)], "dtype": "float32", "n_features": D}
    save_weights(
        tmp_path / "model", weights, {**record, "index_base": None, "loss": "logistic", "transforms": []}
    )
    cells(np.arange(N)).write_h5ad(tmp_path / "a.h5ad", compression="gzip")
    return tmp_path


def cells(order: np.ndarray) -> anndata.AnnData:
    obs = pd.DataFrame(
        {"donor": pd.Categorical([f"d{i % 3}" for i in order]), "depth": order * 1.5},
        index=[f"cell {i}" for i in order],
    )
    found = anndata.AnnData(sp.csr_matrix(X[order]), obs=obs, obsm={"pca": np.ones((len(order), 2))})
    found.layers["counts"] = sp.csc_matrix(X[order])
    found.uns["note"] = "kept"
    return found


def contents(path: Path) -> dict[str, object]:
    """All arrays and attributes of a file, and where the bytes of its arrays are."""
    found: dict[str, object] = {}

    def visit(name: str, node: h5py.Group | h5py.Dataset) -> None:
        attrs = {key: np.asarray(value).tolist() for key, value in node.attrs.items()}
        if isinstance(node, h5py.Dataset):
            places = (
                [tuple(node.id.get_chunk_info(i)) for i in range(node.id.get_num_chunks())]
                if node.chunks
                else []
            )
            found[name] = (
                attrs,
                node.id.get_offset(),
                str(places),
                np.asarray(node[()]).tobytes() * (node.dtype != object),
            )
        else:
            found[name] = attrs

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def test_the_columns_are_what_predict_says(folder: Path) -> None:
    kept = predict(folder / "model", folder / "a.h5ad", top_k=2)
    before, old = anndata.read_h5ad(folder / "a.h5ad"), contents(folder / "a.h5ad")
    done = predict(folder / "model", folder / "a.h5ad", into=folder / "a.h5ad", proba=True)
    assert (done.n, done.out, done.labels) == (N, folder / "a.h5ad", None)
    after = anndata.read_h5ad(folder / "a.h5ad")
    names = [f"streamsvm_{part}" for part in ("label", "score", "margin", "probability")]
    assert list(after.obs.columns) == ["donor", "depth", *names]
    assert after.obs["streamsvm_label"].tolist() == kept.labels[:, 0].tolist()
    used = set(kept.labels[:, 0])
    assert len(used) < K
    assert after.obs["streamsvm_label"].cat.categories.tolist() == sorted(used)
    np.testing.assert_array_equal(after.obs["streamsvm_score"], kept.scores[:, 0])
    np.testing.assert_array_equal(after.obs["streamsvm_margin"], kept.scores[:, 0] - kept.scores[:, 1])
    proba = load_model(folder / "model").predict_proba(X).max(axis=1)
    np.testing.assert_allclose(after.obs["streamsvm_probability"], proba, rtol=1e-6)
    assert all(after.obs[name].dtype == np.float32 for name in names[1:])
    pd.testing.assert_frame_equal(after.obs[before.obs.columns], before.obs)
    new = contents(folder / "a.h5ad")  # every other array is where it was, with the same bytes
    changed = {name for name in old if old[name] != new[name]}
    assert changed == {"obs"}
    assert all(name.startswith("obs/streamsvm_") for name in new.keys() - old.keys())
    assert sorted(p.name for p in folder.iterdir()) == ["a.h5ad", "model"]


def test_they_are_stored_as_anndata_stores_them(folder: Path) -> None:
    predict(folder / "model", folder / "a.h5ad", into=folder / "a.h5ad")
    anndata.read_h5ad(folder / "a.h5ad").write_h5ad(folder / "b.h5ad")
    with h5py.File(folder / "a.h5ad") as ours, h5py.File(folder / "b.h5ad") as theirs:
        assert sorted(ours["obs"]) == sorted(theirs["obs"])
        assert {k: np.asarray(v).tolist() for k, v in ours["obs"].attrs.items()} == {
            k: np.asarray(v).tolist() for k, v in theirs["obs"].attrs.items()
        }
        for name in ["label", "label/codes", "label/categories", "score", "margin"]:
            a, b = ours[f"obs/streamsvm_{name}"], theirs[f"obs/streamsvm_{name}"]
            assert dict(a.attrs) == dict(b.attrs), name
            if isinstance(b, h5py.Dataset):
                assert (a.dtype, a.shape) == (b.dtype, b.shape), name
                assert h5py.check_string_dtype(a.dtype) == h5py.check_string_dtype(b.dtype)


def test_rows_of_another_file_are_matched_by_name(folder: Path) -> None:
    order = np.random.default_rng(0).permutation(N)
    cells(order).write_h5ad(folder / "other.h5ad")
    kept = predict(folder / "model", folder / "a.h5ad")
    predict(folder / "model", folder / "a.h5ad", into=folder / "other.h5ad", key="by name")
    found = anndata.read_h5ad(folder / "other.h5ad").obs
    assert found["by name_label"].tolist() == kept.labels[order, 0].tolist()
    np.testing.assert_array_equal(found["by name_score"], kept.scores[order, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[:150], "150 rows there, 200 predicted, and 150 names in common"),
        (lambda c: c[::-1][:150], "150 rows there, 200 predicted, and 150 names in common"),
        (lambda c: anndata.concat([c, c[:1]]), "201 rows there, 200 predicted, and 201 names in common"),
        (lambda c: named(c, ["x", *c.obs_names[1:]]), "200 rows there, 200 predicted, and 199 names"),
        (lambda c: named(c, [c.obs_names[1], c.obs_names[1], *c.obs_names[2:]]), "some rows share a name"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Observation names are not unique")
def test_other_rows_are_refused(folder: Path, change, message: str) -> None:
    change(cells(np.arange(N))).copy().write_h5ad(folder / "other.h5ad")
    before = (folder / "other.h5ad").read_bytes()
    with pytest.raises(StoreError, match=message):
        predict(folder / "model", folder / "a.h5ad", into=folder / "other.h5ad")
    assert (folder / "other.h5ad").read_bytes() == before


def named(found: anndata.AnnData, names: list[str]) -> anndata.AnnData:
    found.obs_names = names
    return found


@pytest.mark.filterwarnings("ignore:Observation names are not unique")
def test_equal_names_do_not_matter_in_the_same_order(folder: Path) -> None:
    named(cells(np.arange(N)), ["same"] * N).write_h5ad(folder / "same.h5ad")
    kept = predict(folder / "model", folder / "same.h5ad")
    predict(folder / "model", folder / "same.h5ad", into=folder / "same.h5ad")
    found = anndata.read_h5ad(folder / "same.h5ad").obs
    assert found["streamsvm_label"].tolist() == kept.labels[:, 0].tolist()


def test_columns_are_replaced_only_if_asked(folder: Path) -> None:
    path = folder / "a.h5ad"
    predict(folder / "model", path, into=path, proba=True)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="obs has a column 'streamsvm_label' already") as caught:
        predict(folder / "model", path, into=path)
    assert caught.value.remedy.options == {"force": True}
    assert path.read_bytes() == before
    weights = np.array(load_model(folder / "model").coef_.T)
    save_weights(folder / "other", -weights, {**load_model(folder / "model").record, "loss": "ww"})
    predict(folder / "other", path, into=path, force=True)
    found = anndata.read_h5ad(path).obs
    assert list(found.columns) == [
        "donor",
        "depth",
        *(f"streamsvm_{p}" for p in ("label", "score", "margin")),
    ]
    kept = predict(folder / "other", cells(np.arange(N)))
    assert found["streamsvm_label"].tolist() == kept.labels[:, 0].tolist()
    predict(folder / "model", path, into=path, key="second")
    assert {"streamsvm_label", "second_label"} <= set(anndata.read_h5ad(path).obs.columns)


@pytest.mark.parametrize("key", ["", "a/b", ".", "..", "a\nb"])
def test_keys_that_are_no_names_are_refused(folder: Path, key: str) -> None:
    with pytest.raises(SettingsError, match="key must be a name"):
        predict(folder / "model", folder / "a.h5ad", into=folder / "a.h5ad", key=key)


def test_options_that_need_more_than_a_column_are_refused(folder: Path) -> None:
    into = {"into": folder / "a.h5ad"}
    for options in ({"top_k": 2}, {"threshold": 0.5}, {"out": folder / "p.csv"}):
        with pytest.raises(SettingsError):
            predict(folder / "model", folder / "a.h5ad", **into, **options)


def test_a_file_without_rows_gets_empty_columns(folder: Path) -> None:
    cells(np.arange(0)).write_h5ad(folder / "none.h5ad")
    predict(folder / "model", folder / "none.h5ad", into=folder / "none.h5ad")
    found = anndata.read_h5ad(folder / "none.h5ad").obs
    assert found.shape == (0, 5)
    assert found["streamsvm_label"].dtype == "category"


def test_a_file_that_is_open_elsewhere_is_left_alone(folder: Path) -> None:
    path = folder / "a.h5ad"
    before = path.read_bytes()
    with h5py.File(path), pytest.raises(StoreError, match="is open elsewhere"):
        predict(folder / "model", cells(np.arange(N)), into=path)
    for lock in (fcntl.LOCK_SH, fcntl.LOCK_EX):  # of another program that reads, or writes
        with path.open() as file:
            fcntl.flock(file, lock)
            with pytest.raises(StoreError, match=r"is open elsewhere, .*; close it there, and try again"):
                predict(folder / "model", unread(), into=path)
            if lock == fcntl.LOCK_EX:
                with pytest.raises(
                    StoreError, match="open in another program: close it there, and try again"
                ):
                    predict(folder / "model", path)
    assert path.read_bytes() == before


def unread() -> Iterator[Any]:
    """Rows that nobody may ask for."""
    pytest.fail("it predicted before it refused")
    yield


def test_links_are_not_followed_to_write(folder: Path) -> None:
    os.symlink(folder / "a.h5ad", folder / "link.h5ad")  # of the file: replaced where it is
    predict(folder / "model", folder / "a.h5ad", into=folder / "link.h5ad")
    assert "streamsvm_label" in anndata.read_h5ad(folder / "a.h5ad").obs
    assert (folder / "link.h5ad").is_symlink()
    cells(np.arange(N)).write_h5ad(folder / "b.h5ad")
    with h5py.File(folder / "c.h5ad", "w") as file:
        file.attrs["encoding-type"] = "anndata"
        file["obs"] = h5py.ExternalLink("b.h5ad", "obs")
    before = (folder / "b.h5ad").read_bytes()
    with pytest.raises(StoreError):
        predict(folder / "model", folder / "a.h5ad", into=folder / "c.h5ad")
    assert (folder / "b.h5ad").read_bytes() == before
