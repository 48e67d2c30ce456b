"""Groups that are held out as a whole: which these are, and that training learns nothing of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import as_rows, held_out_by
from hypothesis import given
from hypothesis import strategies as st
from run_files import stop_after
from sklearn.datasets import dump_svmlight_file
from streamsvm_converters.convert import convert
from test_validation import check_same

from streamsvm import fit, load_model, plan, resume, tune
from streamsvm.data.groups import group_hashes
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.rows import NO_NUMBERS
from streamsvm.errors import Interrupted, RunError, StreamsvmError, StreamsvmWarning
from streamsvm.store.arrays import ArrayStore

N, D, K = 420, 12, 3
RNG = np.random.default_rng(3)
LABELS = RNG.integers(K, size=N)
DONORS = np.array([f"donor {each}" for each in RNG.integers(20, size=N)])
HELD = held_out_by(DONORS, 2, 5)
COUNTS = RNG.poisson(0.6 + 2 * (np.arange(D) % K == LABELS[:, None])).astype(np.float32) / 4
FACTS: dict[str, Any] = {
    "hold_out": "2/5", "transform": "idf,scale=std,l2,bias", "class_weight": "balanced", "passes": 3,
}  # fmt: skip
OF_OBS = {"label": "label", "hold_out_by": "donor"}


def write(kind: str, folder: Path, X: np.ndarray, donors: np.ndarray = DONORS) -> tuple[Any, dict[str, Any]]:
    """Write rows as files of a kind, and return them with the options that name labels and donors."""
    names = [f"g{j}" for j in range(D)]
    frame = pd.DataFrame(X, [f"r{i}" for i in range(N)], names).assign(label=LABELS, donor=donors)
    (folder / "donors").write_text("".join(f"{donor}\n" for donor in donors))
    if kind == "DataFrame":
        return frame, OF_OBS
    if kind == "table":
        frame.to_csv(folder / "a.csv", index=False)
        return folder / "a.csv", OF_OBS
    if kind == "text":
        dump_svmlight_file(X, LABELS, str(folder / "a.txt"))
        return folder / "a.txt", {"hold_out_by": str(folder / "donors")}
    if kind == "matrix":
        np.save(folder / "a.npy", X)
        np.save(folder / "y.npy", LABELS)
        return folder / "a.npy", {"labels": folder / "y.npy", "hold_out_by": str(folder / "donors")}
    paths = [folder / "a.h5ad", folder / "b.h5ad"]
    for path, rows in zip(paths, (slice(130), slice(130, None)), strict=True):
        anndata.AnnData(sp.csr_matrix(X[rows]), frame[["label", "donor"]].iloc[rows]).write_h5ad(path)
    if kind == "store":
        for path in paths:
            convert([path], path.with_suffix(".zarr"), **OF_OBS)
        return [path.with_suffix(".zarr") for path in paths], {}
    return paths, OF_OBS


def trained(kind: str, folder: Path, X: np.ndarray, **settings: Any) -> Any:
    folder.mkdir()
    data, named = write(kind, folder, X)
    settings |= FACTS | named
    if kind == "DataFrame":
        return fit(data, **settings)
    settings |= {"out": folder / "run", "block_rows": 90}
    if kind == "resumed":
        with pytest.raises(Interrupted):
            fit(data, stop=stop_after(9), **settings)
        resume(folder / "run")
    else:
        fit(data, **settings)
    return load_model(folder / "run")


@pytest.mark.parametrize("splits", [1, pytest.param(2, marks=pytest.mark.more)])
@pytest.mark.parametrize("kind", ["DataFrame", "table", "text", "matrix", "store", "resumed", "joined"])
def test_other_values_of_the_held_out_groups_train_to_the_same_bytes(
    kind: str, splits: int, tmp_path: Path
) -> None:
    others = np.where(HELD[:, None], COUNTS * 1000, COUNTS)
    one, other = (
        trained(kind, tmp_path / name, X, splits=splits) for name, X in (("1", COUNTS), ("2", others))
    )
    check_same(one, other)
    assert one.n_features_in_ == D
    alone = fit(COUNTS[~HELD], LABELS[~HELD], **FACTS | {"hold_out": None})
    for at in (0, 1):
        np.testing.assert_allclose(one.transforms[at].array, alone.transforms[at].array, rtol=1e-6)
    assert one.record["class_weights"] == pytest.approx(alone.record["class_weights"])


def test_held_out_groups_do_not_choose_the_default_transform() -> None:
    rows = [f"r{i}" for i in range(N)]
    obs = pd.DataFrame({"label": LABELS, "donor": DONORS}, rows).astype(str)
    ones = np.minimum(4 * COUNTS, 1)
    one, other = (
        fit(anndata.AnnData(sp.csr_matrix(X), obs), hold_out="2/5", **OF_OBS)
        for X in (ones, np.where(HELD[:, None], 4 * COUNTS, ones))
    )
    assert [each.name for each in one.transforms] == ["bias"]
    check_same(one, other)


def store_of(values: Any, qid: np.ndarray = NO_NUMBERS) -> ArrayStore:
    rows = as_rows(sp.csr_array((len(values), D)), np.zeros(len(values)))
    return ArrayStore(rows._replace(qid=qid, hold_out_by=group_hashes(values)), {"classes": ["a", "b"]}, D)


def held_rows(hold_out: str, store: ArrayStore) -> Any:
    part: Any = held_out_part(hold_out, store, 0)
    return part.has(np.arange(store.n_rows))


@pytest.mark.filterwarnings("ignore:X. .* rows share one hold-out value")
@given(st.lists(st.integers(0, 12), min_size=30, max_size=400), st.integers(2, 12))
def test_folds_have_whole_groups_and_none_is_empty(drawn: list[int], folds: int) -> None:
    values = np.array([*drawn, 13, 14])
    folds, store = min(folds, len(set(values))), store_of(values.tolist())
    found = np.zeros(len(values), int)
    for fold in range(1, folds + 1):
        found[own := held_rows(f"{fold}/{folds}", store)] += fold
        np.testing.assert_array_equal(own, held_out_by(values, fold, folds))
    assert pd.Series(found).groupby(values).nunique().eq(1).all()
    assert sorted(set(found)) == list(range(1, folds + 1))


def test_folds_of_tune_and_the_search_for_c_are_of_whole_groups() -> None:
    """Rows tell nothing but their donor, all of whose rows have one class, drawn at random."""
    donors = RNG.integers(60, size=900)
    X = RNG.normal(size=(60, 80))[donors] + 0.01 * RNG.normal(size=(900, 80))
    labels = RNG.integers(2, size=60)[donors]
    for by, least, most in ((None, 0.99, 1.0), (donors, 0.2, 0.8)):
        options: dict[str, Any] = {"hold_out_by": by, "transform": "bias", "progress": False}
        assert least <= tune(X, labels, C="0.01,1", folds=5, **options).valid_accuracy <= most
        events: list[dict[str, Any]] = []
        fit(X, labels, report=events.append, **options)
        [tried] = [event["tried"] for event in events if event["event"] == "C"]
        assert least <= max(each["valid_accuracy"] for each in tried) <= most
    assert fit(X, labels, hold_out_by=np.zeros(900)).result.C > 0  # nothing to hold out in the search


def test_the_groups_are_said_and_a_run_keeps_to_them(tmp_path: Path) -> None:
    data, _ = write("joined", tmp_path, COUNTS)
    said = f"held out by donor: {len(set(DONORS[HELD]))} of 20 groups, {HELD.mean():.1%} of the rows"
    assert plan(data, **OF_OBS, **FACTS)["held_out"] == said
    result: Any = fit(data, out=tmp_path / "run", **OF_OBS, **FACTS)
    scores = load_model(tmp_path / "run").decision_function(COUNTS[HELD])
    assert result.valid_accuracy == pytest.approx((scores.argmax(axis=1) == LABELS[HELD]).mean())
    write("joined", tmp_path, COUNTS, np.roll(DONORS, 1))
    with pytest.raises(RunError, match="has changed since the run was started"):
        resume(tmp_path / "run", passes=4)


@pytest.mark.parametrize(
    ("kind", "by", "message"),
    [
        ("joined", None, "a.h5ad, 'donor': row 4.* has no value in the hold-out column"),
        ("joined", "donr", "obs has no hold-out column 'donr'; its columns are label, donor"),
        ("table", None, "a.csv, row 4.* has no value in the hold-out column"),
        ("table", "donr", "a.csv has no column 'donr'; its columns are 'g0'"),
        ("text", None, "donors, line 4 is ''; the file must have one line for each row, with a group, a"),
        ("matrix", "none", "a.npy has no array 'none'"),
        ("store", "other", "a.zarr has no hold-out column 'other'"),
        ("DataFrame", None, "X: row 4.* has no value in the hold-out column"),
        ("DataFrame", "donr", "X has no column 'donr'; it has 'g0'"),
        ("DataFrame", [1, 2], r"hold_out_by has the shape \(2,\); pass one value per row \(420\)"),
        ("DataFrame", ["a"] * N, "part 2/5 contains 0 of the 1 groups to hold out; choose another"),
    ],
)
def test_columns_that_are_refused(kind: str, by: Any, message: str, tmp_path: Path) -> None:
    one_lacks = np.where(np.arange(N) == 3, "", DONORS)
    data, named = write(kind, tmp_path, COUNTS, DONORS if kind == "store" else one_lacks)
    out = None if kind == "DataFrame" else tmp_path / "run"
    with pytest.raises(StreamsvmError, match=message):
        fit(data, out=out, **FACTS | named | ({"hold_out_by": by} if by else {}))


def test_divisions_that_are_refused_or_warned_of(tmp_path: Path) -> None:
    with pytest.raises(StreamsvmError, match="part 2/4 contains 0 of the 2 groups to hold out"):
        held_rows("2/4", store_of(["a", "b"]))
    with pytest.raises(StreamsvmError, match="a sequence has two hold-out values"):
        held_rows("1/2", store_of(["a", "a", "b"], np.array([0, 1, 1])))
    with pytest.warns(StreamsvmWarning, match="2 of the 3 rows share one hold-out value; try another column"):
        held_rows("1/2", store_of(["a", "b", "a"], np.arange(3)))
    data, _ = write("store", tmp_path, COUNTS)
    convert([tmp_path / "b.h5ad"], data[1], label="label", force=True)
    with pytest.raises(StreamsvmError, match="only one of them has a hold-out column"):
        plan(data, **FACTS)
