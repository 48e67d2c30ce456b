"""Tables of predictions, read back by pandas and pyarrow, have what the coefficients say."""

from __future__ import annotations

import json
import re
import resource
import tracemalloc
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store, save_weights
from helpers import plain_fit as fit

from streamsvm import Model, load_model, predict
from streamsvm.errors import ModelError, SettingsError, StoreError
from streamsvm.prediction import files as prediction_files

N, D, K = 150, 9, 4
X, LABELS = make_problem(N, D, K)
NAMED = ("file", "row", "evidence")
# Names that a careless CSV would spoil.
ODD = ["a,b", "a\rb", "a\nb", 'say "x"', " padded ", "naïve", "=1+1", "'=1", "-x", "\tx"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the same rows as AnnData with odd names and as a shuffled store."""
    path = tmp_path_factory.mktemp("tables")
    make_store(path / "s.h5", X, LABELS)
    result = fit(path / "s.h5", out=path / "run", passes=2)
    assert result.passes == 2
    names = [ODD[i] if i < len(ODD) else f"cell{i}" for i in range(N)]
    cells = anndata.AnnData(sp.csr_matrix(X), obs=pd.DataFrame(index=names))
    cells.write_h5ad(path / "cells.h5ad")
    return path


def read(path: Path) -> pd.DataFrame:
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    if path.suffix == ".jsonl":
        return pd.DataFrame(map(json.loads, path.read_text().splitlines()))
    separator = "," if path.suffix == ".csv" else "\t"
    names = pd.read_csv(path, sep=separator, nrows=0).columns
    types = {name: str if name.startswith("label") else np.float32 for name in names if name not in NAMED}
    table = pd.read_csv(path, sep=separator, dtype=types)
    for name in table.columns:
        if name in NAMED or name.startswith("label"):
            table[name] = [re.sub(r"^'(?='*[=+@\s-])", "", x) if type(x) is str else x for x in table[name]]
    return table


def expected(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """The scores of all rows, and the order of the classes."""
    scores = X.astype(np.float64) @ load_model(folder / "run").coef_.T
    return scores, np.argsort(-scores, axis=1, kind="stable")


@pytest.mark.parametrize(("suffix", "top_k"), [("csv", 3), ("tsv", 1), ("jsonl", 2), ("parquet", 9)])
def test_a_table_has_names_labels_scores_and_margins(
    folder: Path, tmp_path: Path, suffix: str, top_k: int
) -> None:
    scores, order = expected(folder)
    path = tmp_path / f"p.{suffix}"
    done = predict(folder / "run", folder / "cells.h5ad", path, top_k=top_k, explain=2)
    assert (done.n, done.labels, done.scores, done.out) == (N, None, None, path)
    table, obs = read(path), anndata.read_h5ad(folder / "cells.h5ad").obs
    columns = ["row", "label", "score", "margin"]
    columns += [f"{name}_{place}" for place in range(2, min(top_k, K) + 1) for name in ("label", "score")]
    assert list(table.columns) == [*columns, "evidence"]
    exact = predict(folder / "run", folder / "cells.h5ad", top_k=top_k, explain=2)
    texts = [", ".join(f"{name} ({share:.3g})" for name, share in row) for row in exact.evidence]
    wanted = [list(map(list, row)) for row in exact.evidence] if suffix == "jsonl" else texts
    assert table["evidence"].fillna("").tolist() == wanted
    assert table["row"].tolist() == obs.index.tolist()
    sorted_scores = np.take_along_axis(scores, order, 1)
    np.testing.assert_allclose(table["margin"], sorted_scores[:, 0] - sorted_scores[:, 1], atol=1e-5)
    labels = load_model(folder / "run").classes_[order]
    for place in range(min(top_k, K)):
        ending = f"_{place + 1}" if place else ""
        assert table[f"label{ending}"].tolist() == labels[:, place].tolist()
        np.testing.assert_allclose(table[f"score{ending}"], sorted_scores[:, place], atol=1e-5)
        np.testing.assert_array_equal(table[f"score{ending}"], exact.scores[:, place])


# A spreadsheet takes these for formulas, and shows the ones below as they are.
FORMULAS = ["=1+1", "+a", "-b", "@SUM(A1)", "\uff1dx", "-1+2", "'=x", "-inf", "-"]
PLAIN = ["-1", "+1", "-1.5e3", "-.5", "a=b", "T-cell", "'a", "1-2", " =x"]


def test_names_that_are_formulas_to_a_spreadsheet_begin_with_an_apostrophe(tmp_path: Path) -> None:
    classes = sorted([*FORMULAS, *PLAIN])
    record = {"classes": classes, "dtype": "float32", "n_features": len(classes)}
    record |= {"index_base": None, "loss": "ww", "transforms": []}
    names = [name.replace("a=b", "a\tb") for name in classes]  # of features; tabs would split a line
    save_weights(tmp_path / "m", np.eye(len(classes), dtype=np.float32), record, names=names)
    rows = pd.DataFrame(np.eye(len(classes)), classes, names)
    escaped = [f"'{name}" if name in FORMULAS else name for name in classes]
    for name in "p.csv", "p.tsv", "p.parquet":
        out, wanted, file = tmp_path / name, *((classes, "@a") if "q" in name else (escaped, "'@a"))
        predict(tmp_path / "m", {"@a": rows, "b": rows}, out, top_k=2, explain=1)
        options = {"sep": "\t" if name == "p.tsv" else ",", "dtype": str, "keep_default_na": False}
        table = pd.read_parquet(out) if name == "p.parquet" else pd.read_csv(out, **options)
        assert table["row"].tolist() == table["label"].tolist() == wanted * 2
        assert set(table["label_2"]) <= set(wanted)
        assert table["file"][0] == file
        assert all(table["evidence"][classes.index(each)] == f"{file[:-2]}{each} (1)" for each in FORMULAS)
    predict(tmp_path / "m", rows, tmp_path / "lines", explain=1)
    lines = [f"{name}\t{name} (1)".replace("\ta=b", "\ta\\tb") for name in classes]
    assert (tmp_path / "lines").read_text().splitlines() == lines


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_several_data_have_a_column_that_says_which(folder: Path, tmp_path: Path, suffix: str) -> None:
    data = {"cells": folder / "cells.h5ad", "store": folder / "s.h5", "rows": as_rows(X[:7], LABELS[:7])}
    path = tmp_path / f"p.{suffix}"
    assert predict(folder / "run", data, path).n == 2 * N + 7
    table = read(path)
    assert table["file"].tolist() == ["cells"] * N + ["store"] * N + ["rows"] * 7
    names = anndata.read_h5ad(folder / "cells.h5ad").obs_names.tolist()
    assert [str(name) for name in table["row"]] == [*names, *map(str, [*range(1, N + 1), *range(1, 8)])]
    np.testing.assert_array_equal(table["score"][:N], table["score"][N : 2 * N])
    lines = tmp_path / "lines"
    predict(folder / "run", [folder / "cells.h5ad", folder / "s.h5"], lines)
    assert lines.read_text().split() == table["label"][: 2 * N].tolist()


def test_names_of_rows_come_with_every_kind_of_data(folder: Path, tmp_path: Path) -> None:
    frame = pd.DataFrame(X.toarray(), index=[f"r{i}" for i in range(N)])
    names = np.array([f"n{i}" for i in range(N)], dtype=object)
    for data, wanted in [
        (frame, frame.index.tolist()),
        (frame.reset_index(drop=True), list(range(N))),
        (cells := anndata.read_h5ad(folder / "cells.h5ad"), cells.obs_names.tolist()),
        (iter([(as_rows(X, LABELS), names)]), names.tolist()),
        (X.toarray(), list(range(1, N + 1))),
    ]:
        predict(folder / "run", data, tmp_path / "p.parquet", force=True)
        assert read(tmp_path / "p.parquet")["row"].tolist() == wanted


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_labels_below_a_threshold_are_missing(folder: Path, tmp_path: Path, suffix: str) -> None:
    scores, order = expected(folder)
    path = tmp_path / f"p.{suffix}"
    with pytest.raises(SettingsError, match="threshold needs top_k"):
        predict(folder / "run", folder / "cells.h5ad", path, threshold=0.0)
    predict(folder / "run", folder / "cells.h5ad", path, threshold=0.0, top_k=2)
    table, best = read(path), np.take_along_axis(scores, order, 1)
    for place, ending in enumerate(["", "_2"]):
        np.testing.assert_array_equal(table[f"label{ending}"].notna(), best[:, place] > 0)
        np.testing.assert_array_equal(table[f"score{ending}"].notna(), best[:, place] > 0)
    assert 0 < (best[:, 1] > 0).sum() < N
    assert table["margin"].notna().all()


def test_probabilities_stand_beside_the_scores_and_one_class_has_no_margin(tmp_path: Path) -> None:
    record = {"classes": list("abc"), "dtype": "float64", "n_features": 2, "index_base": 1}
    record |= {"loss": "logistic", "transforms": []}
    weights = np.array([[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]])
    save_weights(tmp_path / "model", weights, record)
    data = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, -0.2]])
    predict(tmp_path / "model", data, tmp_path / "p.parquet", proba=True, top_k=2)
    table, scores = read(tmp_path / "p.parquet"), data @ weights
    softmax = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert list(table.columns)[:5] == ["row", "label", "score", "probability", "margin"]
    np.testing.assert_allclose(table["score"], scores.max(axis=1))
    np.testing.assert_allclose(table["probability"], softmax.max(axis=1))
    np.testing.assert_allclose(table["probability_2"], np.sort(softmax, axis=1)[:, -2])
    save_weights(tmp_path / "one", weights[:, :1], {**record, "classes": ["only"]})
    for suffix in ("csv", "jsonl", "parquet"):
        predict(tmp_path / "one", data, tmp_path / f"one.{suffix}")
        assert read(tmp_path / f"one.{suffix}")["margin"].isna().all()


def test_memory_does_not_grow_with_the_rows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Python's objects: pyarrow's own memory is bounded by the row groups, which are counted."""
    monkeypatch.setattr(prediction_files, "_GROUP_BYTES", 20_000)  # 21 bytes a row
    model, rows = load_model(folder / "run"), as_rows(X, LABELS, "float32")

    def peak(times: int, suffix: str) -> int:
        tracemalloc.start()
        predict(model, (rows for _ in range(times)), tmp_path / f"p.{suffix}", force=True)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    for suffix in ("csv", "jsonl", "parquet", "txt"):
        peak(1, suffix)
        assert peak(200, suffix) < peak(20, suffix) + 200_000
    predict(model, (rows for _ in range(200)), tmp_path / "p.parquet", force=True)
    groups = pyarrow.parquet.ParquetFile(tmp_path / "p.parquet").metadata
    assert groups.num_rows == 200 * N
    sizes = [groups.row_group(g).num_rows for g in range(groups.num_row_groups)]
    assert max(sizes) < 1000 + N


def test_a_full_disk_is_an_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not one of pyarrow, which cannot close the file."""
    record = {"classes": [str(c) for c in range(50)], "n_features": 50, "index_base": 1}
    rows = np.random.default_rng(0).normal(size=(4000, 50))
    monkeypatch.setattr(prediction_files, "_GROUP_BYTES", 10**6)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            predict(Model(np.eye(50), record), rows, tmp_path / "p.parquet", top_k=20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_value_that_is_not_finite_is_named_by_its_row(folder: Path, tmp_path: Path) -> None:
    """In files and in blocks of rows; `test_api_wrong_arguments` tests matrices."""
    bad = X.copy()
    bad.data[bad.indptr[70]] = np.nan
    anndata.AnnData(sp.csr_matrix(bad)).write_h5ad(tmp_path / "bad.h5ad")
    with pytest.raises(StoreError, match=r"bad\.h5ad: .*row 71: a value is not finite"):
        predict(folder / "run", tmp_path / "bad.h5ad", tmp_path / "p.csv")
    first, second = as_rows(X[:50], LABELS[:50]), as_rows(bad[50:], LABELS[50:])
    with pytest.raises(ModelError, match="row 71 of the data: the value nan is not finite"):
        predict(folder / "run", iter([first, second]))


def test_predictions_do_not_replace_the_data_that_they_are_of(folder: Path, tmp_path: Path) -> None:
    before = (folder / "s.h5").read_bytes()
    (tmp_path / "link.h5").symlink_to(folder / "s.h5")
    for out in (folder / "s.h5", tmp_path / "link.h5"):
        with pytest.raises(SettingsError, match="out is one of the input files; choose another file"):
            predict(folder / "run", folder / "s.h5", out, force=True)
    assert (folder / "s.h5").read_bytes() == before
