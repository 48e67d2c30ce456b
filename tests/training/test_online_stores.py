"""Online passes over the rows of stores, AnnData and dense matrices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import as_rows, make_problem, make_store, text_lines, write_rows
from helpers import plain_online as online
from run_files import model_bytes, stop_after
from streamsvm_converters import TextSource, convert

from streamsvm import load_model, resume
from streamsvm.errors import InputError, Interrupted, PlanError, SettingsError, StoreError
from streamsvm.info import inspect

pytestmark = pytest.mark.engine

N, D, K = 700, 12, 70  # so many classes that dense rows are visited by products


@pytest.fixture(scope="module")
def problem() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_problem(N, D, K, density=1.0)
    return X.toarray(), y


@pytest.fixture
def matrix(tmp_path: Path, problem) -> dict[str, Any]:
    """A dense matrix and its labels in files."""
    np.save(tmp_path / "X.npy", problem[0])
    np.save(tmp_path / "y.npy", problem[1])
    return {"data": tmp_path / "X.npy", "labels": tmp_path / "y.npy", "C": 0.05}


def in_small_batches(options: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The options with the least memory that a run needs."""
    with pytest.raises(PlanError) as caught:
        online(**options, memory="1K", **more)
    return {**options, "memory": caught.value.needed_memory}


class Killed(Exception):
    """What ends a process at once, without a commit."""


def killed_after(batches: int) -> Any:
    calls = iter(range(batches))

    def progress(*state: object) -> None:
        if next(calls, None) is None:
            raise Killed

    return progress


@pytest.mark.parametrize("options", [{}, {"loss": "cs", "C": 0.1}, {"transform": "hash=4"}])
def test_sparse_rows_give_the_coefficients_of_the_same_rows_as_text(tmp_path: Path, options) -> None:
    X, y = make_problem(150, 13, 5, noise=1.5, empty=2)
    labels = ["ebadc"[code] for code in y]
    (tmp_path / "text").write_text("".join(text_lines(X, labels)))
    convert(tmp_path / "text", tmp_path / "a.zarr", shuffle=False, index_base=1)
    text = TextSource([tmp_path / "text"], classes=list("abcde"), n_features=13, index_base=1)
    expected = online(text, out=tmp_path / "of-text", **options)
    found = online(tmp_path / "a.zarr", out=tmp_path / "of-store", **options)
    names = ("status", "C", "rows", "classes", "features", "progressive_accuracy", "empty_rows")
    assert [getattr(found, name) for name in names] == [getattr(expected, name) for name in names]
    coef = [load_model(tmp_path / run).coef_ for run in ("of-text", "of-store")]
    assert np.array_equal(*coef)
    assert coef[0].any()
    assert list(load_model(tmp_path / "of-store").classes_) == list("abcde")


@pytest.mark.parametrize("classes", [5, K])
def test_dense_rows_give_the_model_of_sparse_ones(
    tmp_path: Path, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_MIN_ROWS", "_MAX_ROWS"):  # of a tile, whose steps the average takes to be made at once
        monkeypatch.setattr(f"streamsvm.training.products.{name}", 1)
    X, y = make_problem(N, D, classes, density=1.0)
    dense = make_store(tmp_path / "dense.zarr", X, y, dense=True)
    sparse = make_store(tmp_path / "sparse.zarr", X, y)
    runs = [
        online(store, out=tmp_path / store.stem, dtype="float64", memory="20M") for store in (dense, sparse)
    ]
    assert runs[0].rows == N
    assert runs[0].progressive_accuracy == runs[1].progressive_accuracy > 2 / classes
    of_dense, of_sparse = (load_model(run.model).coef_ for run in runs)
    np.testing.assert_allclose(of_dense, of_sparse, rtol=0, atol=1e-9 * abs(of_sparse).max())
    assert abs(of_sparse).max() > 0.01


@pytest.mark.parametrize("kind", ["matrix", "sparse.zarr", "dense.h5"])
@pytest.mark.parametrize("batches", [1, 2, 5])
def test_a_killed_or_stopped_pass_ends_in_the_same_bytes(
    tmp_path: Path, problem, matrix, kind, batches
) -> None:
    X, y = problem
    if kind != "matrix":
        store = make_store(
            tmp_path / kind, sp.csr_array(X), y, dtype="float32", dense=kind != "sparse.zarr", shuffled=False
        )
        matrix = {"data": store, "C": 0.05}
    options = in_small_batches(matrix, out=tmp_path / "whole")
    whole = online(**options, out=tmp_path / "whole", checkpoint_every="20")
    assert whole.checkpoints > 6
    for run, callback in ("stopped", stop_after(batches)), ("killed", killed_after(batches)):
        given = {"stop" if run == "stopped" else "progress": callback}
        with pytest.raises((Interrupted, Killed)):
            online(**options, out=tmp_path / run, checkpoint_every="2 blocks", **given)
        if run == "killed" and batches == 1:  # before the first commit
            online(**options, out=tmp_path / run)
        else:
            assert resume(tmp_path / run).rows == N
        assert model_bytes(tmp_path / run) == model_bytes(tmp_path / "whole")
    assert resume(tmp_path / "whole").status == "done"


def test_a_store_that_moved_or_changed(tmp_path: Path, problem, matrix) -> None:
    options = in_small_batches(matrix, out=tmp_path / "whole")
    online(**options, out=tmp_path / "whole")
    with pytest.raises(Interrupted, match=r"`resume\(.*\)` continues"):
        online(**options, out=tmp_path / "run", stop=stop_after(2))
    np.save(tmp_path / "y.npy", np.roll(problem[1], 1))
    with pytest.raises(InputError, match=r"X\.npy has changed since the run learned from it"):
        resume(tmp_path / "run")
    np.save(tmp_path / "y.npy", problem[1])
    (tmp_path / "X.npy").rename(tmp_path / "Z.npy")
    with pytest.raises(StoreError, match="does not exist"):
        resume(tmp_path / "run")
    assert resume(tmp_path / "run", store=tmp_path / "Z.npy").rows == N
    assert resume(tmp_path / "run").rows == N  # which knows now where it is
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_an_embedding_and_columns_of_anndata(tmp_path: Path, problem, matrix) -> None:
    X, y = problem
    obs = pd.DataFrame({"kind": pd.Categorical([None, *(f"k{code:02}" for code in y)])})
    obs.index = obs.index.astype(str)
    whole = np.concatenate([np.ones((1, D), np.float32), X])
    data = anndata.AnnData(sp.csr_matrix(np.abs(whole)), obs=obs, obsm={"emb": whole})
    data.var_names = [f"g{j}" for j in range(D)]
    data.write_h5ad(tmp_path / "a.h5ad")
    result = online(tmp_path / "a.h5ad", obsm="emb", label="kind", out=tmp_path / "emb", C=0.05)
    assert (result.rows, result.input["unlabelled"]) == (N, 1)
    online(**matrix, out=tmp_path / "npy")
    found, expected = load_model(tmp_path / "emb"), load_model(tmp_path / "npy")
    assert np.array_equal(found.coef_, expected.coef_)
    assert list(found.classes_[:2]) == ["k00", "k01"]
    online(tmp_path / "a.h5ad", label="kind", out=tmp_path / "X", C=0.05)
    assert list(load_model(tmp_path / "X").feature_names_in_) == list(data.var_names)


def test_classes_that_are_given(tmp_path: Path, problem, matrix) -> None:
    online(**matrix, out=tmp_path / "own")
    online(**matrix, out=tmp_path / "back", classes=range(K)[::-1])
    online(**matrix, out=tmp_path / "more", classes=[*range(K), 99])
    own, back, more = (load_model(tmp_path / run) for run in ("own", "back", "more"))
    assert back.classes_.tolist() == list(range(K))[::-1]
    np.testing.assert_allclose(back.coef_[::-1], own.coef_, atol=1e-4)
    assert more.classes_.tolist() == [*range(K), 99]
    assert more.coef_[K].any()  # it is a wrong class of all rows
    with pytest.raises(StoreError, match="label outside"):
        online(**matrix, out=tmp_path / "fewer", classes=range(K - 1))
    kept = online(**matrix, out=tmp_path / "fewer", classes=range(K - 1), unseen_label="keep")
    assert kept.empty_rows == np.count_nonzero(problem[1] == K - 1)
    with pytest.raises(SettingsError, match="a class twice"):
        online(**matrix, out=tmp_path / "twice", classes=[0, 1, 1])


@pytest.mark.parametrize(("line", "fault"), [("1 oops\n", "no colon"), ("9 1:1\n", "not among the 3 known")])
def test_the_rows_before_a_bad_line_are_learned_and_counted(tmp_path: Path, line: str, fault: str) -> None:
    text = tmp_path / "train.txt"
    rows = [f"{i % 3} {1 + i % 3}:1 {4 + i % 7}:0.5\n" for i in range(200)]
    text.write_text("".join(rows))
    online(text, out=tmp_path / "whole", classes=[0, 1, 2])
    text.write_text("".join([*rows[:50], line, *rows[50:]]))
    with pytest.raises(InputError, match=rf"line 51, .* {fault}.*after learning from 50 rows.*; .*resume"):
        online(text, out=tmp_path / "run", classes=[0, 1, 2])
    found = inspect(tmp_path / "run")  # the last line of the report was after 32 rows
    assert (found["result"]["rows"], found["commits"]) == (50, ["50 rows done"])
    text.write_text("".join(rows))
    assert resume(tmp_path / "run").rows == 200
    assert model_bytes(tmp_path / "run") == model_bytes(tmp_path / "whole")


def test_what_cannot_be_learned_from_is_refused(tmp_path: Path, matrix) -> None:
    text, sets = tmp_path / "text", tmp_path / "sets.zarr"
    text.write_text("1,2 1:1 2:1\n2 1:1\n1 2:1\n")
    convert(text, sets, multilabel=True)
    store = make_store(tmp_path / "a.zarr", *make_problem(20, 4, 3))
    refused: list[tuple[Any, dict[str, Any], type, str]] = [
        (matrix["data"], {}, InputError, "matrix without labels"),
        (matrix["data"], {"labels": matrix["labels"], "transform": "hash=4"}, SettingsError, "data has none"),
        (text, {"layer": "counts"}, SettingsError, "layer is only for a store"),
        (np.ones((3, 2)), {}, SettingsError, "must not be a matrix in memory"),
        (TextSource([text]), {"labels": matrix["labels"]}, SettingsError, "labels is only for a store"),
        (sets, {}, StoreError, "several labels, but online needs one"),
        (store, {"transform": "idf"}, SettingsError, "idf needs statistics of all rows"),
    ]
    for data, options, error, words in refused:
        with pytest.raises(error, match=words):
            online(data, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_weights_of_rows_are_refused_unless_they_shall_be_left_out(tmp_path: Path) -> None:
    X, y = make_problem(20, 4, 3)
    plain = make_store(tmp_path / "plain.zarr", X, y)
    weighted = write_rows(tmp_path / "w.zarr", as_rows(X, y)._replace(cost=np.arange(20.0)), 4, 3)
    with pytest.raises(StoreError, match="have weights, which online does not support"):
        online(weighted, out=tmp_path / "run")
    online(plain, out=tmp_path / "plain", sample_weight="none")
    online(weighted, out=tmp_path / "run", sample_weight="none")
    assert np.array_equal(*(load_model(tmp_path / run).coef_ for run in ("plain", "run")))
