"""Online training on stores, AnnData and matrices where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import make_store
from run_files import metrics_of, model_bytes, stop_after, without_times
from sklearn.datasets import dump_svmlight_file
from streamsvm_converters import TextSource

from streamsvm import StoreStream, evaluate, load_model, online, open_store, resume
from streamsvm.errors import InputError, Interrupted, SettingsError, StoreError

N, D = 500, 20
STREAM = "streamsvm.training.store_stream"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{STREAM}._VALUES", 90 * D)
    monkeypatch.setattr(f"{STREAM}._ROWS", 200)


def matrix(folder: Path, n_classes: int, dtype: Any = np.float64) -> dict[str, Any]:
    """Write a dense matrix and its labels; return what `StoreStream` takes."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % n_classes)
    X = rng.normal(size=(n_classes, D))[y] + rng.normal(size=(N, D))
    np.save(folder / "X.npy", X.astype(dtype))
    np.save(folder / "y.npy", y)
    return {"path": folder / "X.npy", "labels": folder / "y.npy"}


def stream(path: Path, **options: Any) -> StoreStream:
    return StoreStream(path, **options)


def test_a_store_gives_the_model_of_its_rows_as_text(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % 5)
    X = sp.random_array((N, D), density=0.3, rng=rng, format="csr", dtype=np.float32)
    path = make_store(tmp_path / "a.zarr", X, y, n_classes=5)
    with open_store(path) as store:
        rows = store.rows(0, N)
        assert store.classes == tuple("01234")
    in_order = sp.csr_array((rows.data, rows.indices, rows.indptr.astype(np.int32)), (N, D))
    dump_svmlight_file(in_order, rows.labels, str(tmp_path / "rows.txt"), zero_based=False)
    options: dict[str, Any] = {"C": 0.3}
    of_store = online(StoreStream(path), out=tmp_path / "run", **options)
    text = TextSource([tmp_path / "rows.txt"], classes=list("01234"), n_features=D, index_base=1)
    of_text = online(text, out=tmp_path / "text", **options)
    assert of_store.progressive_accuracy == of_text.progressive_accuracy
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, load_model(tmp_path / "text").coef_)


@pytest.mark.parametrize("n_classes", [7, 70])  # by products from 65 on, whose averages are others
def test_dense_rows_are_predicted_as_sparse_ones(tmp_path: Path, n_classes: int) -> None:
    given = matrix(tmp_path, n_classes)
    X, y = np.load(given["path"]), np.load(given["labels"])
    dump_svmlight_file(X, y, str(tmp_path / "rows.txt"), zero_based=True)
    options: dict[str, Any] = {"C": 0.1, "dtype": "float64"}
    dense = online(stream(**given), out=tmp_path / "run", **options)
    text = TextSource(
        [tmp_path / "rows.txt"], classes=sorted(map(str, range(n_classes)), key=int), dtype="float64"
    )
    sparse = online(text, out=tmp_path / "text", **options)
    assert dense.progressive_accuracy == sparse.progressive_accuracy
    assert dense.rows == N
    models = load_model(tmp_path / "run"), load_model(tmp_path / "text")
    if n_classes == 7:
        np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-6, atol=1e-9)
    assert evaluate(models[0], given["path"], labels=given["labels"]).accuracy == pytest.approx(
        (models[0].predict(X) == y).mean()
    )


def test_a_run_stopped_and_resumed_anywhere_has_the_same_bytes(tmp_path: Path) -> None:
    given = matrix(tmp_path, 70, np.float32)
    online(stream(**given), out=tmp_path / "whole", C="auto")
    for n in (1, 2, 4):
        run = tmp_path / f"run-{n}"
        with pytest.raises(Interrupted):
            online(stream(**given), out=run, stop=stop_after(n), checkpoint_every="1 blocks")
        resume(run)
        assert model_bytes(run) == model_bytes(tmp_path / "whole"), n
        assert without_times(metrics_of(run)) == without_times(metrics_of(tmp_path / "whole")), n


def test_rows_of_weight_zero_are_left_out(tmp_path: Path) -> None:
    given = matrix(tmp_path, 7)
    weights = (np.arange(N) % 3 > 0).astype(float)
    np.save(tmp_path / "w.npy", weights)
    X, y = np.load(given["path"]), np.load(given["labels"])
    np.save(tmp_path / "some.npy", X[weights > 0])
    np.save(tmp_path / "labels.npy", y[weights > 0])
    online(stream(**given, weights=tmp_path / "w.npy"), out=tmp_path / "run", C=0.1, dtype="float64")
    some = StoreStream(tmp_path / "some.npy", labels=tmp_path / "labels.npy")
    online(some, out=tmp_path / "other", C=0.1, dtype="float64")
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, load_model(tmp_path / "other").coef_)


def test_data_that_changed_since_the_run_began_are_an_error(tmp_path: Path) -> None:
    given = matrix(tmp_path, 7)
    with pytest.raises(Interrupted):
        online(stream(**given), out=tmp_path / "run", stop=stop_after(2), checkpoint_every="1 blocks")
    X = np.load(given["path"])
    np.save(given["path"], X + 1)
    with pytest.raises(InputError, match=r"X\.npy has changed since the run learned from it"):
        resume(tmp_path / "run")
    np.save(given["path"], X)
    assert resume(tmp_path / "run").rows == N


def test_what_it_does_not_take(tmp_path: Path) -> None:
    given = matrix(tmp_path, 7)
    with pytest.raises(InputError, match="its labels are missing"):
        StoreStream(given["path"])
    with pytest.raises(SettingsError, match="as they stand in text"):
        online(stream(**given), out=tmp_path / "run", hash_bits=4)
    large = np.load(given["path"])
    large[333, 2] = 1e100
    np.save(given["path"], large)
    with pytest.raises(StoreError, match=r"row 333: the value 1e\+100 is too large for float32"):
        online(stream(**given), out=tmp_path / "run")
