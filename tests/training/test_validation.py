"""Rows that are held out take no part in training: what is changed in them changes nothing that is learned.

Their part follows from their labels and numbers, which the changes leave as they are. One class has a
held-out row alone: it stays a class, without a row to learn from.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from helpers import automatic_c, held_out, make_store
from helpers import plain_fit as fit
from run_files import metrics_of
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils.class_weight import compute_class_weight

from streamsvm import load_model, tune
from streamsvm.transforms import fitting
from streamsvm.tuning import trials as tuning_runs

N, D, K, BLOCK, PARTS = 421, 12, 3, 90, 3
ALONE = K  # the class of the last row alone, which is held out in the first part
NAMES = np.array(["0", "1", "2", "3"])
KINDS = ["matrix", "native.h5", "native.zarr", "sliced", "joined"]
LONG = "counts=no,log1p,idf,scale=std,l2,scale=maxabs"


def problem(part: int, *, changed: bool) -> tuple[sp.csr_array, np.ndarray]:
    """Rows sorted by class; if `changed`, those of a part are multiplied by 1,000."""
    rng = np.random.default_rng(1)
    labels = np.sort(rng.integers(K, size=N)).astype(np.int32)
    X = rng.poisson(0.6 + 2 * (np.arange(D) % K == labels[:, None]), size=(N, D)).astype(np.float32) / 4
    labels[-1] = ALONE
    if changed:
        X[held_out(labels, part, PARTS)] *= 1000
    return sp.csr_array(X), labels


def data_of(kind: str, folder: Path, X: sp.csr_array, labels: np.ndarray) -> dict[str, Any]:
    """What `fit` and `tune` take: the data, and how it is read."""
    folder.mkdir()
    if kind == "matrix":
        return {"data": X, "y": NAMES[labels]}
    if kind.startswith("native"):
        return {"data": make_store(folder / kind, X, labels), "block_rows": BLOCK}
    # Rows without a label stand between the others, and are not counted.
    n = N + 60
    place = np.sort(np.random.default_rng(2).permutation(n)[:N])
    dense, texts = np.ones((n, D), np.float32), np.full(n, None, object)
    dense[place], texts[place] = X.toarray(), NAMES[labels]
    paths = []
    for part in [slice(0, 200), slice(200, n)] if kind == "joined" else [slice(0, n)]:
        obs = pd.DataFrame({"type": pd.Categorical(texts[part], categories=NAMES)})
        obs.index = pd.Index([f"r{i}" for i in range(len(obs))])
        var = pd.DataFrame(index=[f"g{j}" for j in range(D)])
        paths.append(folder / f"{len(paths)}.h5ad")
        anndata.AnnData(sp.csr_matrix(dense[part]), obs, var).write_h5ad(paths[-1])
    return {"data": paths, "label": "type", "block_rows": BLOCK, "slice_rows": 7}


def trained(kind: str, folder: Path, X: sp.csr_array, labels: np.ndarray, **settings: Any) -> Any:
    given = data_of(kind, folder, X, labels)
    data = given.pop("data")
    if kind == "matrix":
        return fit(data, **given, **settings)
    fit(data, out=folder / "run", **given, **settings)
    return load_model(folder / "run")


def check_same(one: Any, other: Any) -> None:
    for name in ("C", "values_in", "class_weights", "transforms"):
        assert one.record.get(name) == other.record.get(name)
    assert list(one.classes_) == list(other.classes_)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    for ours, theirs in zip(one.transforms, other.transforms, strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array)


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        *((kind, transform) for kind in KINDS for transform in (None, LONG)),
        *(("matrix", each) for each in ("idf", "df=-0.25,l2", "scale=maxabs", "idf,l2,scale=std,bias")),
        ("native.h5", "idf"),
    ],
)
def test_what_is_held_out_changes_nothing(tmp_path: Path, kind: str, transform: str | None) -> None:
    facts: dict[str, Any] = {
        "hold_out": f"1/{PARTS}", "transform": transform, "class_weight": "balanced", "passes": 2,
    }  # fmt: skip
    one, other = (
        trained(kind, tmp_path / str(changed), *problem(1, changed=changed), **facts)
        for changed in (False, True)
    )
    check_same(one, other)
    assert len(one.classes_) == K + 1
    X, labels = problem(1, changed=False)
    held = held_out(labels, 1, PARTS)
    few = NAMES[labels[~held]]
    weights = compute_class_weight("balanced", classes=NAMES[:K], y=few)
    np.testing.assert_allclose(one.record["class_weights"], [*weights, 1.0])
    if transform is None:
        assert one.record["C"] == pytest.approx(automatic_c(X[~held]))


@pytest.mark.parametrize("kind", ["matrix", "native.h5", "sliced"])
def test_held_out_rows_are_scored_after_the_transforms_of_the_others(tmp_path: Path, kind: str) -> None:
    X, labels = problem(1, changed=False)
    held, dense = held_out(labels, 1, PARTS), X.toarray().astype(float)
    model = trained(kind, tmp_path / "a", X, labels, hold_out="1/3", transform="scale=std,l2", passes=1)
    scale = StandardScaler(with_mean=False).fit(dense[~held])
    np.testing.assert_allclose(model.transforms[0].array, 1 / scale.scale_, rtol=1e-6)
    scores = normalize(scale.transform(dense)) @ model.coef_.T.reshape(D, -1)
    expected = (scores.argmax(axis=1) == labels)[held].mean()
    history = model.result.history if kind == "matrix" else metrics_of(tmp_path / "a/run")
    assert history[-1]["valid_accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "part"),
    few(
        [(kind, part) for kind in ("matrix", "native.h5", "sliced") for part in range(1, PARTS + 1)],
        *[("matrix", 1), ("native.h5", 2), ("sliced", 3)],
    ),
)
def test_each_fold_of_a_search(kind: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training learns the same, whatever the rows of its part are; the table has the C of all rows."""
    transform = "scale=std,l2,scale=maxabs"
    models: list[Any] = []
    matrix, store = tuning_runs.train, tuning_runs.fit_store

    def of_store(*given: Any, **more: Any) -> Any:
        result = store(*given, **more)
        models.append(load_model(result.model))
        return result

    def of_matrix(*given: Any, **more: Any) -> Any:
        result, model = matrix(*given, **more)
        models.append(model)
        return result, model

    monkeypatch.setattr(tuning_runs, "fit_store", of_store)
    monkeypatch.setattr(tuning_runs, "train", of_matrix)
    found = []
    for changed in (False, True):
        given = data_of(kind, tmp_path / str(changed), *problem(part, changed=changed))
        if kind != "matrix":
            given["out"] = tmp_path / str(changed) / "run"
        found.append(tune(**given, folds=PARTS, transform=transform, class_weight="balanced"))
    first, second = models[: PARTS + 1], models[PARTS + 1 :]
    check_same(first[part - 1], second[part - 1])
    for other in {1, 2, 3} - {part}:
        assert not np.array_equal(first[other - 1].coef_, second[other - 1].coef_)
    facts: dict[str, Any] = {"transform": transform, "passes": 1}
    automatic = trained(kind, tmp_path / "all", *problem(part, changed=False), **facts).record["C"]
    assert [row["C"] for row in found[0].tried] == [automatic * 2.0**power for power in range(-4, 6)]
    assert first[-1].record["C"] == found[0].C


@pytest.mark.parametrize("transform", few(["scale=std", "idf,l2,scale=std"], "idf,l2,scale=std"))
def test_one_reading_serves_all_folds_or_each_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: str
) -> None:
    calls, gather, tried = [], fitting._gather, []
    monkeypatch.setattr(
        fitting, "_gather", lambda data, wanted, kind: calls.append(len(wanted)) or gather(data, wanted, kind)
    )
    data = data_of("sliced", tmp_path / "a", *problem(1, changed=False))
    stages = transform.count(",") // 2 + 1
    for needed, expected in ((1, [PARTS + 1] * stages), (2**29, [1] * stages * (PARTS + 1))):
        monkeypatch.setattr(fitting, "bytes_needed", lambda *_, needed=needed: needed)
        given = {**data, "out": tmp_path / str(needed), "folds": PARTS, "memory": "1G"}
        found = tune(**given, C="auto", transform=transform)
        tried.append([{**row, "seconds": 0} for row in found.tried])
        assert calls == expected
        calls.clear()
    assert tried[0] == tried[1]
    models = [(tmp_path / name / "model/coef.npy").read_bytes() for name in ("1", str(2**29))]
    assert models[0] == models[1]


@pytest.mark.more
def test_balanced_weights_count_each_label_of_the_rows_that_train() -> None:
    X, labels = problem(1, changed=False)
    held = held_out(np.zeros(N), 1, 4)  # all rows have the first label
    sets = [[name, "0"] if name != "0" else [name] for name in NAMES[labels]]
    model = fit(X, sets, loss="ovr", class_weight="balanced", hold_out="1/4", passes=1)
    kept = np.array(sets, object)[~held]
    counts = np.array([sum(name in each for each in kept) for name in model.classes_])
    occurs = counts > 0
    expected = np.where(occurs, counts.sum() / (occurs.sum() * np.maximum(counts, 1)), 1)
    np.testing.assert_allclose(model.record["class_weights"], expected)
