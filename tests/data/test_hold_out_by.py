"""Rows that are held out by a column: whole values, whatever the order of the rows and the kind of data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import held_out_by
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from sklearn.model_selection import GroupKFold
from streamsvm_converters.convert import convert

from streamsvm.data.groups import group_hashes
from streamsvm.data.hold_out import held_out_part
from streamsvm.data.rows import NO_NUMBERS, Rows
from streamsvm.errors import InputError, PlanError, StoreError, StreamsvmError
from streamsvm.store import Store, open_store, open_stores
from streamsvm.store.arrays import ArrayStore

N, D, K = 300, 6, 3
RNG = np.random.default_rng(5)
DONORS = RNG.choice([f"donor {i}" for i in range(11)], N, p=np.arange(11, 0, -1) / 66)
LABELS = RNG.integers(K, size=N)
X = RNG.poisson(1 + LABELS[:, None], size=(N, D)).astype(np.float32)


def store_of(values: Any, qid: np.ndarray = NO_NUMBERS) -> ArrayStore:
    n, none = len(values), np.zeros(len(values), np.int32)
    rows = Rows(np.zeros(0), np.zeros(0, np.int32), np.zeros(n + 1, np.int64), none, np.zeros(n))
    rows = rows._replace(qid=qid, hold_out_by=group_hashes(np.asarray(values).tolist()))
    return ArrayStore(rows, {"classes": ["a", "b"]}, D)


def parts_of(store: Store, parts: int) -> np.ndarray:
    """The part of each row, from 1 on, by the names of the rows."""
    found = np.zeros(store.n_rows, int)
    for part in range(1, parts + 1):
        if (held := held_out_part(f"{part}/{parts}", store, 2**20)) is not None:
            found[held.has(np.arange(store.n_rows))] = part
    return found


def mixed(folds: np.ndarray, values: Any) -> int:
    """The number of values whose rows are in several folds."""
    return int((pd.Series(folds).groupby(np.asarray(values)).nunique() > 1).sum())


@pytest.mark.filterwarnings("ignore:X. one value to hold out by has")
@given(st.lists(st.integers(0, 12), min_size=30, max_size=400), st.integers(2, 12), st.integers(0, 9))
def test_folds_have_whole_values_as_those_of_scikit_learn(values: list[int], folds: int, seed: int) -> None:
    folds = max(2, min(folds, len(set(values))))
    if len(set(values)) == 1:
        return
    found = parts_of(store_of(values), folds)
    theirs = np.zeros(len(values), int)
    for fold, (_, held) in enumerate(GroupKFold(folds).split(values, groups=values), 1):
        theirs[held] = fold
    for each in (found, theirs):
        assert mixed(each, values) == 0
        assert sorted(set(each)) == list(range(1, folds + 1))
    for part in range(1, folds + 1):
        np.testing.assert_array_equal(found == part, held_out_by(values, part, folds))
    order = np.random.default_rng(seed).permutation(len(values))
    np.testing.assert_array_equal(parts_of(store_of(np.array(values)[order]), folds), found[order])


@pytest.mark.parametrize(("parts", "n_values"), [(10, 1), (3, 3), (2, 5)])
def test_the_last_value_is_held_out_if_that_is_nearer(
    parts: int, n_values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.data.hold_out.PIECE_ROWS", 70)
    part = held_out_part(f"1/{parts}", store_of(DONORS), 2**20)
    assert part is not None
    np.testing.assert_array_equal(part.has(np.arange(N)), held_out_by(DONORS, 1, parts))
    assert (part.n_values[0], sum(part.n_values)) == (len(set(DONORS[part.has(np.arange(N))])), 11)


def write(folder: Path, donors: np.ndarray) -> None:
    """The same rows as each kind of file."""
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(D)]).assign(label=LABELS, donor=donors)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    dump_svmlight_file(X, LABELS, str(folder / "t.txt"))
    (folder / "d.txt").write_text("".join(f"{donor}\n" for donor in donors))
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", LABELS)
    frame.index = frame.index.astype(str)
    adata = anndata.AnnData(sp.csr_matrix(X), frame[["label", "donor"]])
    for name, rows in {"a": slice(None), "1": slice(100), "2": slice(100, None)}.items():
        adata[rows].copy().write_h5ad(folder / f"{name}.h5ad")


OF_OBS: dict[str, Any] = {"label": "label", "hold_out_by": "donor"}
OPENED: dict[str, Callable[[], Store]] = {
    "AnnData": lambda: open_store("a.h5ad", **OF_OBS),
    "joined": lambda: open_stores(["1.h5ad", "2.h5ad"], **OF_OBS),
    "matrix": lambda: open_store("X.npy", labels="y.npy", hold_out_by="d.txt"),
}
CONVERTED: dict[str, dict[str, Any]] = {
    "t.csv": OF_OBS, "t.parquet": OF_OBS, "a.h5ad": OF_OBS,
    "t.txt": {"hold_out_by": "d.txt"}, "X.npy": {"labels": "y.npy", "hold_out_by": "d.txt"},
}  # fmt: skip


@pytest.mark.parametrize("numbers", [False, True])
def test_all_kinds_of_data_hold_out_the_same_rows(
    numbers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    donors = np.array([int(each.split()[1]) for each in DONORS]) if numbers else DONORS
    write(tmp_path, donors)
    expected = held_out_by(donors, 2, 4)
    for make in OPENED.values():
        with make() as store:
            np.testing.assert_array_equal(parts_of(store, 4) == 2, expected)
    for path, options in CONVERTED.items():
        convert([path], "s.h5ad", force=True, **options)
        with open_store("s.h5ad") as store:
            store.verify()
            assert store.n_features == D
            np.testing.assert_array_equal((parts_of(store, 4) == 2), expected[store.names(0, N)])
        with h5py.File("s.h5ad") as file:  # as anndata finds it
            obs = anndata.io.read_elem(file["obs"])
        assert pd.Series(obs["hold_out_by"].to_numpy()).groupby(donors[obs.index]).nunique().eq(1).all()
        assert obs["hold_out_by"].nunique() == 11


@pytest.mark.filterwarnings("ignore:X. one value to hold out by has 2 of the 3")
def test_what_cannot_be_divided_is_refused() -> None:
    with pytest.raises(InputError, match="has one value in all rows"):
        parts_of(store_of(["a"] * 5), 2)
    with pytest.raises(InputError, match="2 groups of rows to hold out, and part 2/4 has none"):
        held_out_part("2/4", store_of(["a", "b"]), 2**20)
    with pytest.raises(InputError, match="a sequence has two values"):
        parts_of(store_of(["a", "a", "b"], np.array([0, 1, 1])), 2)
    assert mixed(parts_of(store_of(["a", "b", "a"], np.arange(3)), 2), ["a", "b", "a"]) == 0


WRONG, NO_VALUE = {"label": "label", "hold_out_by": "donr"}, "has no text or number to hold out by"
OF_NPY = {"labels": "y.npy", "hold_out_by": "few.txt"}


@pytest.mark.parametrize(
    ("path", "options", "error", "message"),
    [
        ("a.h5ad", WRONG, StoreError, "obs has no column 'donr' to hold out by; it has label, donor"),
        ("t.csv", WRONG, InputError, "t.csv has no column 'donr'; its columns are 'g0'"),
        ("t.csv", OF_OBS, InputError, f"t.csv, row 4: column 'donor' {NO_VALUE}"),
        ("a.h5ad", OF_OBS, InputError, f"a.h5ad, .donor.: row 4 {NO_VALUE}"),
        (
            "t.txt",
            {"hold_out_by": "d.txt"},
            InputError,
            "line 4: .* is not a value to hold out by; write",
        ),
        ("t.txt", {"hold_out_by": "few.txt"}, InputError, "few.txt has 2 lines, fewer than the input"),
        ("X.npy", OF_NPY, InputError, r"few.txt: values of shape \(2,\) for the 300 rows"),
        ("X.npy", OF_NPY | {"hold_out_by": "none"}, InputError, "X.npy has no array 'none'"),
    ],
)
def test_refused_columns(
    path: str,
    options: dict[str, Any],
    error: type[StreamsvmError],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, np.where(np.arange(N) == 3, "", DONORS))
    Path("few.txt").write_text("a\nb\n")
    with pytest.raises(error, match=message):
        convert([path], "s.h5", **options)


def test_a_store_has_only_the_column_that_it_was_converted_with(tmp_path: Path) -> None:
    write(tmp_path, DONORS)
    convert([tmp_path / "t.csv"], tmp_path / "s.h5", **OF_OBS)
    convert([tmp_path / "t.csv"], tmp_path / "none.h5", label="label", drop=["donor"])
    with open_store(tmp_path / "s.h5", hold_out_by="donor") as store, pytest.raises(PlanError):
        held_out_part("1/4", store, 26 * N - 1)
    for name in ("s.h5", "none.h5"):
        with pytest.raises(StoreError, match="has no column 'other' to hold out by"):
            open_store(tmp_path / name, hold_out_by="other")
    with pytest.raises(StoreError, match="only one of them has a column to hold out by"):
        open_stores([tmp_path / "s.h5", tmp_path / "none.h5"])
