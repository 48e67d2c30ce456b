"""Groups that are held out take no part in training: other values of their rows give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from cases import few
from helpers import held_out_by
from run_files import stop_after
from streamsvm_converters.convert import convert

from streamsvm import fit, load_model, plan, resume, tune
from streamsvm.errors import Interrupted, RunError, StreamsvmWarning

N, D, K, SHARE = 420, 12, 3, "2/5"
RNG = np.random.default_rng(3)
LABELS = RNG.integers(K, size=N)
DONORS = np.array([f"donor {each}" for each in RNG.integers(20, size=N)])
HELD = held_out_by(DONORS, 2, 5)
COUNTS = RNG.poisson(0.6 + 2 * (np.arange(D) % K == LABELS[:, None])).astype(np.float32) / 4
OTHER = np.where(HELD[:, None], COUNTS * 1000, COUNTS)
FACTS: dict[str, Any] = {
    "hold_out": SHARE, "transform": "idf,scale=std,l2,bias", "class_weight": "balanced", "passes": 3,
}  # fmt: skip
BLOCKS: dict[str, Any] = {"block_rows": 90, "slice_rows": 7}


def frame_of(X: np.ndarray) -> pd.DataFrame:
    names = [f"g{j}" for j in range(D)]
    return pd.DataFrame(X, [f"r{i}" for i in range(N)], names).assign(label=LABELS, donor=DONORS)


def write_cells(path: Path, X: np.ndarray, rows: slice = slice(None)) -> Path:
    obs = frame_of(X)[["label", "donor"]].iloc[rows]
    anndata.AnnData(sp.csr_matrix(X[rows]), obs).write_h5ad(path)
    return path


def trained(kind: str, folder: Path, X: np.ndarray, **settings: Any) -> Any:
    folder.mkdir()
    settings = {"label": "label", "hold_out_by": "donor", **FACTS, **settings}
    if kind == "memory":
        return fit(sp.csr_array(X), LABELS, **settings | {"label": None, "hold_out_by": DONORS})
    if kind == "DataFrame":
        return fit(frame_of(X), **settings)
    if kind == "table":
        data: Any = folder / "a.csv"
        frame_of(X).to_csv(data, index=False)
    elif kind == "joined":
        parts = {"1": slice(130), "2": slice(130, None)}
        data = [write_cells(folder / f"{name}.h5ad", X, rows) for name, rows in parts.items()]
    else:
        data = write_cells(folder / "a.h5ad", X)
    if kind == "store":
        convert([data], folder / "a.zarr", label="label", hold_out_by="donor")
        data = folder / "a.zarr"
    if kind == "resumed":
        with pytest.raises(Interrupted):
            fit(data, out=folder / "run", stop=stop_after(9), **settings | BLOCKS)
        resume(folder / "run")
    else:
        fit(data, out=folder / "run", **settings | BLOCKS)
    return load_model(folder / "run")


KINDS = ["memory", "DataFrame", "table", "joined", "store", "resumed", "cells"]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        *((kind, {}) for kind in KINDS),
        *few(
            [("cells", {"splits": 2, "split": each}) for each in ("rows", "classes")],
            ("cells", {"splits": 2, "split": "rows"}),
        ),
    ],
)
def test_other_values_of_the_held_out_groups_train_to_the_same_bytes(
    kind: str, more: dict[str, Any], tmp_path: Path
) -> None:
    one, other = (trained(kind, tmp_path / str(id(X)), X, **more) for X in (COUNTS, OTHER))
    for name in ("C", "values_in", "class_weights", "transforms"):
        assert one.record.get(name) == other.record.get(name)
    assert one.coef_.tobytes() == other.coef_.tobytes()
    for ours, theirs in zip(one.transforms, other.transforms, strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array)
    assert one.n_features_in_ == D
    alone = fit(COUNTS[~HELD], LABELS[~HELD], **FACTS | {"hold_out": None})
    for at in (0, 1):
        np.testing.assert_allclose(one.transforms[at].array, alone.transforms[at].array, rtol=1e-6)
    assert one.record["class_weights"] == pytest.approx(alone.record["class_weights"])
    trained_differently = fit(COUNTS, LABELS, **FACTS | {"hold_out_by": RNG.permutation(DONORS)})
    assert not np.array_equal(one.coef_, trained_differently.coef_)


def coded(n: int, n_donors: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that tell nothing but their donor, all of whose rows have one class, drawn at random."""
    rng = np.random.default_rng(7)
    donors = rng.integers(n_donors, size=n)
    X = rng.normal(size=(n_donors, width))[donors] + 0.01 * rng.normal(size=(n, width))
    return X.astype(np.float32), rng.integers(2, size=n_donors)[donors], donors


def test_folds_of_tune_and_the_search_for_c_are_of_whole_groups() -> None:
    X, labels, donors = coded(900, 60, 80)
    for by, least, most in ((None, 0.99, 1.0), (donors, 0.25, 0.75)):
        options: dict[str, Any] = {"hold_out_by": by, "transform": "bias", "progress": False}
        assert least <= tune(X, labels, C="0.01,1", folds=5, **options).valid_accuracy <= most
        events: list[dict[str, Any]] = []
        fit(X, labels, report=events.append, **options)
        [found] = [event["tried"] for event in events if event["event"] == "C"]
        assert least <= max(each["valid_accuracy"] for each in found) <= most
    one = fit(X, labels, hold_out_by=np.zeros(900), transform="bias")  # nothing to hold out in the search
    assert one.record["C"] == pytest.approx(1 / X.astype(float).var(axis=0, ddof=1).sum(), rel=0.02)


def test_the_groups_are_said_and_a_run_knows_them(tmp_path: Path) -> None:
    cells, run = write_cells(tmp_path / "a.h5ad", COUNTS), tmp_path / "run"
    settings: dict[str, Any] = {"label": "label", "hold_out_by": "donor", **FACTS}
    n = len(set(DONORS[HELD]))
    said = f"held out by donor: {n} of 20 groups, {HELD.mean():.1%} of the rows"
    assert plan(cells, **settings)["held_out"] == said
    result = fit(cells, out=run, **settings)
    assert result.settings["hold_out_by"] == "donor"
    assert result.unweighted_rows == HELD.sum()
    scores = load_model(run).decision_function(COUNTS[HELD])
    assert result.valid_accuracy == pytest.approx((scores.argmax(axis=1) == LABELS[HELD]).mean())
    with h5py.File(cells, "r+") as file:
        file["obs/donor/codes"][0] = (file["obs/donor/codes"][0] + 1) % 20
    with pytest.raises(RunError, match="has changed since the run was begun"):
        resume(run, passes=4)


def test_a_group_of_most_rows_is_a_warning() -> None:
    donors = np.where(np.arange(N) < N // 2 + 1, "all", DONORS)
    with pytest.warns(StreamsvmWarning, match="one value to hold out by has 211 of the 420 rows"):
        fit(COUNTS, LABELS, hold_out_by=donors, **FACTS)
